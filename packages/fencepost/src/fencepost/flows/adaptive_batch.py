"""How many records a step gets at once, so that a slow step does not block the other units.

All units of a worker share one event loop. A unit inside a commit would stall meanwhile, and the database
terminates a fenced transaction that stalls for half of its lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from fencepost.flows.steps import Batch, Enrich, Step

TURN_SECONDS = 0.025
SIZE_MAX = 1 << 20


class AdaptiveBatch:
    """Begins with one record, since the time per record is unknown, and continues with as many as fit into a
    turn."""

    def __init__(self) -> None:
        self._size = 1

    @classmethod
    def of(cls, steps: Iterable[Step]) -> AdaptiveBatch | None:
        """None with an enrichment: it awaits I/O, and takes as many records at once as it may."""
        return None if any(isinstance(step, Enrich) for step in steps) else cls()

    async def push(self, step: Step, records: Batch) -> None:
        """Push all records, in order; before each turn other tasks can run."""
        done = 0
        while done < len(records):
            await asyncio.sleep(0)
            turn = records[done : done + self._size]
            began = time.perf_counter()
            await step.push(turn, 0)
            done += len(turn)
            self._size = next_size(self._size, len(turn), time.perf_counter() - began)


async def push(step: Step, records: Batch, pace: AdaptiveBatch | None) -> None:
    """Push records to the first step of a wiring: in adaptive batches, or all at once."""
    if pace is None:
        await step.push(records, 0)
    else:
        await pace.push(step, records)


def next_size(size: int, count: int, seconds: float) -> int:
    """The next size after `count` records took `seconds`. A few fast records are no evidence for larger
    batches."""
    if seconds > TURN_SECONDS:
        return max(1, int(count * TURN_SECONDS / seconds))
    if count == size and seconds < TURN_SECONDS / 2:
        return min(SIZE_MAX, size * 2)
    return size
