"""Structured logs: one event, its fields, and the job that it belongs to.

Nothing happens on import. A process calls `configure_logging` once; libraries that use the standard `logging`
come out in the same form. Events go to stderr, because stdout belongs to what a command answers. An
application that does not call it hears of us through its own `logging`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from fencepost.redaction import redact_named

LogMethod = Callable[..., Any]


def configure_logging(
    *,
    level: Literal["debug", "info", "warning", "error"] = "info",
    form: Literal["console", "json"] = "console",
    stream: TextIO | None = None,
) -> None:
    """Route structlog and the standard `logging` through one chain. A second call replaces the first."""
    target = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    enrich = _enrichment()
    structlog.configure(
        processors=[*enrich, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            # A foreign record carries its extra fields on the record, not in the event.
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *enrich],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(form, target)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of a module: every module of ours takes it from here.

    It speaks through the standard logging. structlog's own default prints to stdout, where an application
    that has configured nothing must not find us.
    """
    return cast("FilteringBoundLogger", structlog.wrap_logger(logging.getLogger(name)))


def log_context(
    *, job_id: int | None = None, attempt: int | None = None, trace_id: str | None = None
) -> AbstractContextManager[None]:
    """Every event inside the block, also of other libraries, carries these fields."""
    given = {"job_id": job_id, "attempt": attempt, "trace_id": trace_id}
    return structlog.contextvars.bound_contextvars(**{k: v for k, v in given.items() if v is not None})


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The last processor before the renderer, so that it sees the text of tracebacks too."""
    return {
        name: value if name.startswith("_") else redact_named(name, value) for name, value in event.items()
    }


def _enrichment() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_event,
    ]


def _renderer(form: Literal["console", "json"], target: TextIO) -> Processor:
    if form == "json":
        return structlog.processors.JSONRenderer(default=str)
    # Plain tracebacks: the pretty ones print local variables, and those hold what was just redacted.
    return structlog.dev.ConsoleRenderer(
        colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


@dataclass(slots=True)
class _Flood:
    window_ends: float
    passed: int
    suppressed: int


class FloodGate:
    """Lets the first few events of a kind through in each window, and counts the rest.

    A thousand refusals a second are one fact, not a thousand lines. The next event that passes carries the
    number that did not, as `suppressed`, so nothing is lost silently.
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

    def log(self, method: LogMethod, event: str, *, kind: str | None = None, **fields: Any) -> bool:
        """Call `method(event, **fields)` unless this kind floods; True when it was called."""
        suppressed = self.admit(kind or event)
        if suppressed is None:
            return False
        if suppressed:
            fields["suppressed"] = suppressed
        method(event, **fields)
        return True

    def admit(self, kind: str) -> int | None:
        """How many of this kind were held back since the last one that passed, or None: hold this one too."""
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
        """Kinds may come from outside, so their number is bounded: the one that began longest ago goes."""
        self._floods[kind] = flood
        self._floods.move_to_end(kind)
        if len(self._floods) > self._kinds_max:
            self._floods.popitem(last=False)
