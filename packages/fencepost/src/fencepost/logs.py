"""Structured logs: one event, its fields, and the job that it belongs to.

Nothing happens on import. A process calls `configure_logging` once; events of libraries that use the standard
`logging` get the same form. Events go to stderr, because stdout is for the output of commands. In an
application that does not call it, our events go through the application's own `logging`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from fencepost._lazy_imports import on_first_use

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from fencepost._log_processors import configure_logging, log_context

__all__ = ["LogLimiter", "configure_logging", "get_logger", "log_context"]

LogMethod = Callable[..., Any]

if not TYPE_CHECKING:
    # They load structlog, which loads rich: code that imports one of them is going to use it.
    __getattr__ = on_first_use(
        __name__,
        {"configure_logging": "fencepost._log_processors", "log_context": "fencepost._log_processors"},
    )


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of a module: every module of ours takes it from here.

    It logs through the standard logging. structlog's own default prints to stdout, which must stay clean
    in an application that has configured nothing.
    """
    return cast("FilteringBoundLogger", _Logger(name))


def is_debugged(name: str) -> bool:
    """Whether a debug line of this logger is shown: code that runs for each job asks before it makes one."""
    return logging.getLogger(name).isEnabledFor(logging.DEBUG)


class _Logger:
    """structlog's logger, made at the first event: it loads rich, and many processes never log anything."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return getattr(self._theirs, method)

    @cached_property
    def _theirs(self) -> Any:
        from structlog import wrap_logger  # noqa: PLC0415 - See above.

        return wrap_logger(logging.getLogger(self._name))


@dataclass(slots=True)
class _Flood:
    window_ends: float
    passed: int
    suppressed: int


class LogLimiter:
    """Lets the first few events of a kind through in each window, and counts the rest.

    A thousand refusals a second are one fact, not a thousand lines. The next event that passes carries the
    number of events held back, as `suppressed`, so nothing is lost silently.
    """

    def __init__(
        self,
        *,
        burst: int = 5,
        window_seconds: float = 10.0,
        kinds_max: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst = burst
        self._window_seconds = window_seconds
        self._kinds_max = kinds_max
        self._clock = clock
        self._floods: OrderedDict[str, _Flood] = OrderedDict()
        self._lock = threading.Lock()

    def log(self, method: LogMethod, event: str, *, flood: str | None = None, **fields: Any) -> bool:
        """Call `method(event, **fields)` unless events of this kind flood; True when it was called."""
        suppressed = self.admit(flood or event)
        if suppressed is None:
            return False
        if suppressed:
            fields["suppressed"] = suppressed
        method(event, **fields)
        return True

    def admit(self, kind: str) -> int | None:
        """The number of this kind held back since the last that passed, or None: hold this one back too."""
        now = self._clock()
        with self._lock:
            flood = self._floods.get(kind)
            if flood is None or now >= flood.window_ends:
                suppressed = flood.suppressed if flood else 0
                self._remember(kind, _Flood(now + self._window_seconds, passed=1, suppressed=0))
                return suppressed
            if flood.passed < self._burst:
                flood.passed += 1
                return 0
            flood.suppressed += 1
            return None

    def _remember(self, kind: str, flood: _Flood) -> None:
        """Kinds may come from outside, so their number is bounded: the one that began first is dropped."""
        self._floods[kind] = flood
        self._floods.move_to_end(kind)
        if len(self._floods) > self._kinds_max:
            self._floods.popitem(last=False)
