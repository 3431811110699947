"""The trail of a task: which traces what it has read since its last commit belongs to.

A commit is made for many records at once, and they may come from many requests. So each trace gets a span of
its own, from the reading to the commit. When all of it is of one trace, what the sinks send goes on with it.

Nothing is gathered where nobody sees spans: the traces of a chunk are empty then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fencepost.tracing import TRACEPARENT, is_traced, past_span, place_of, span

TRACES_MAX = 100
"""At most so many traces are told of one commit: a flow may take a million records at once."""
Traces = Sequence[str | None]
"""The place in a trace of each record that was read together; empty when nobody asks."""


def traces_of(headers: Callable[[], Iterable[Mapping[str, Any]]]) -> Traces:
    """The places that the headers of records name, looked at only where somebody sees spans."""
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
        """Around the commit of so many records."""
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
