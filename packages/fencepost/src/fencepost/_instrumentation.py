"""Instrumentation of kernel calls: each is timed; a refusal is counted, logged and recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from fencepost._refusal_recorder import RefusalRecorder
from fencepost.errors import Refusal
from fencepost.kernel.call import Call
from fencepost.logs import LogLimiter, get_logger
from fencepost.metrics import KernelMetrics, Metrics
from fencepost.settings import Settings

_log = get_logger(__name__)


class CallObserver:
    """One per client, shared by its sync and its async form. Never raises, never blocks."""

    def __init__(self, counts: KernelMetrics, recorder: RefusalRecorder) -> None:
        self._counts = counts
        self._recorder = recorder
        self._log_limiter = LogLimiter()
        # Looking up a histogram by its labels costs more than observing: once per statement is enough.
        self._observe: dict[tuple[str, str], Callable[[float], None]] = {}

    @classmethod
    def of(cls, database_url: str, owner: str, settings: Settings, metrics: Metrics) -> Self:
        counts = KernelMetrics.on(metrics)
        recorder = RefusalRecorder(
            database_url,
            owner,
            connect_seconds=settings.connect_seconds,
            on_drop=counts.unrecorded_refusals.inc,
        )
        return cls(counts, recorder)

    def watch(self, call: Call[Any], on_refusal: Callable[[Refusal], None] | None = None) -> CallTimer:
        """Wrap one call: time it, and note its refusal."""
        return CallTimer(self, call, on_refusal)

    def refused(self, refusal: Refusal) -> None:
        self._counts.refusals.labels(reason=refusal.reason, noun=refusal.noun or "unknown").inc()
        self._log_limiter.log(
            _log.info,
            "refused",
            flood=f"{refusal.reason} {refusal.noun}",
            reason=refusal.reason,
            noun=refusal.noun,
            subject=refusal.subject,
            attempted=dict(refusal.attempted),
            seen=dict(refusal.seen),
        )
        self._recorder.note(refusal)

    def answered(self, call: Call[Any], outcome: str, seconds: float) -> None:
        observe = self._observe.get((call.sql, outcome))
        if observe is None:
            observe = self._counts.call_seconds.labels(call.function, outcome).observe
            self._observe[call.sql, outcome] = observe
        observe(seconds)

    def lost_commit(self) -> None:
        self._counts.indeterminate_commits.inc()

    def close(self) -> None:
        """Write the refusals that wait, as far as time allows."""
        self._recorder.close()


class CallTimer:
    """A class and not a generator, for speed: it wraps every call."""

    __slots__ = ("_call", "_observer", "_on_refusal", "_started")

    def __init__(
        self, observer: CallObserver, call: Call[Any], on_refusal: Callable[[Refusal], None] | None
    ) -> None:
        self._observer = observer
        self._call = call
        self._on_refusal = on_refusal
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._started
        if error is None:
            self._observer.answered(self._call, "ok", seconds)
        elif isinstance(error, Refusal):
            self._observer.answered(self._call, error.reason, seconds)
            self._observer.refused(error)
            if self._on_refusal is not None:
                self._on_refusal(error)
        else:
            self._observer.answered(self._call, "error", seconds)
