"""Dead letters by the thousand: replayed or discarded slowly enough that nothing is flooded.

A replay by filter can be repeated, and can go on after a break: it means what was dead at one moment, and a
job that dies again died later.
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
    """Makes one call in a transaction of its own."""

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
    """Settle what the filter means, at most `per_second`; yields what was done, batch by batch."""
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
