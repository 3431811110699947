"""Replays or discards many dead letters, at a limited rate.

A replay by filter can be repeated and can continue after an interruption: it selects the jobs that were dead
at one point in time, and a job that dies again died later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from fencepost.kernel import dead_letter
from fencepost.kernel.call import Call

T = TypeVar("T")
BATCH_MAX = 100


class Send(Protocol):
    """Makes one call in its own transaction."""

    def __call__(self, call: Call[T], /) -> T: ...


def settle_all(
    send: Send,
    wanted: dead_letter.Filter,
    how: dead_letter.Settling,
    actor: str,
    *,
    per_second: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], Any] = time.sleep,
) -> Iterator[Sequence[dead_letter.Settled]]:
    """Settles the jobs that match the filter, at most `per_second`; yields the result of each batch."""
    size = max(1, min(BATCH_MAX, int(per_second)))
    after_id: int | None = None
    while job_ids := send(dead_letter.page(wanted, after_id=after_id, limit=size)):
        began = clock()
        settled = send(dead_letter.settle(job_ids, how, actor))
        yield settled
        after_id = job_ids[-1]
        if len(job_ids) < size:
            return
        pause(max(0.0, len(job_ids) / per_second - (clock() - began)))
