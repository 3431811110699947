"""Forgetting what nobody needs any more, beside the finished jobs that the sweeper prunes by age."""

from __future__ import annotations

import random

from fencepost.jobs.job import Database
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import batch, outcome, rate, schedule
from fencepost.kernel.call import Call
from fencepost.signals import announce

BATCH = 1000
BATCHES_PER_TICK = 50
WAITERS_KEEP_SECONDS = 86_400.0


class Pruner:
    """Finished jobs past a count, ticks, complete batches, full buckets, waiters that are gone."""

    def __init__(self, database: Database, settings: JobSettings) -> None:
        self._database = database
        self._settings = settings

    async def tick(self) -> float:
        await self._until_short(rate.prune(BATCH))
        await self._database.run(outcome.prune_waiters(WAITERS_KEEP_SECONDS))
        if self._settings.keep_finished_count is not None:
            await self._until_short(outcome.prune_excess(self._settings.keep_finished_count, BATCH))
        if self._settings.keep_finished_seconds is not None:
            await self._until_short(schedule.prune(self._settings.keep_finished_seconds, BATCH))
            await self._until_short(batch.prune(self._settings.keep_finished_seconds, BATCH))
        announce("jobs.pruned")
        # Jittered, so that many workers do not prune at once.
        return self._settings.prune_interval_seconds * random.uniform(0.8, 1.2)  # noqa: S311

    async def _until_short(self, prune: Call[int]) -> None:
        """Batch after batch until one is not full; within a throttle, for others want the disk too."""
        for _ in range(BATCHES_PER_TICK):
            if await self._database.run(prune) < BATCH:
                return
