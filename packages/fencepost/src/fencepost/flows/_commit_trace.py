"""The traces of the records that a task has read since its last commit.

A commit covers many records, and they may come from many requests. So each trace gets its own span, from the
read to the commit. When all records are of one trace, what the sinks send continues it.

Without tracing nothing is gathered: the traces of a chunk are empty then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fencepost.tracing import TRACEPARENT, is_traced, past_span, place_of, span

TRACES_MAX = 100
"""The maximum number of traces recorded for one commit: a flow may take a million records at once."""
Traces = Sequence[str | None]
"""The trace context of each record of a read; empty without tracing."""


def traces_of(headers: Callable[[], Iterable[Mapping[str, Any]]]) -> Traces:
    """The trace contexts in the headers of records; headers are read only when tracing is on."""
    return [place_of(one) for one in headers()] if is_traced() else ()


class CommitTrace:
    def __init__(self, flow: str, task: str) -> None:
        self._flow = flow
        self._task = task
        self._began: dict[str, int] = {}
        self._records = 0

    def saw(self, traces: Traces) -> None:
        for place in traces:
            if place is not None and (place in self._began or len(self._began) < TRACES_MAX):
                self._began.setdefault(place, time.time_ns())
                self._records += 1

    @contextmanager
    def commit(self, records: int) -> Generator[None]:
        """Wraps the commit of `records` records."""
        if not self._began:
            yield
            return
        name = f"flow {self._flow}"
        about: dict[str, str | int] = {"task": self._task, "records": records}
        if len(self._began) == 1 and self._records == records:
            with span(name, "consumer", {TRACEPARENT: next(iter(self._began))}, **about):
                yield
        else:
            yield
            for place, began_ns in self._began.items():
                past_span(name, "consumer", place, began_ns, **about)
        self._began.clear()
        self._records = 0
