"""Deletes data that is no longer needed, except the finished jobs that the stream reconciler prunes by
age."""

from __future__ import annotations

import random

from fencepost.jobs.settings import JobSettings
from fencepost.kernel import _batch as batch
from fencepost.kernel import _event as event
from fencepost.kernel import _job_need as job_need
from fencepost.kernel import job as kernel_job
from fencepost.kernel import job_queries, rate, schedule
from fencepost.kernel.call import CallRunner
from fencepost.retention import BATCH, until_short
from fencepost.signals import announce

WAITERS_KEEP_SECONDS = 86_400.0
NEEDS_KEEP_SECONDS = 3_600.0
EVENTS_KEEP_SECONDS = 30 * 86_400.0
"""An event may come long before a workflow awaits it."""


class Pruner:
    """Prunes finished jobs past a count, ticks, complete batches, old events, full buckets, unique keys whose
    period has passed, and waiters and needs that are gone."""

    def __init__(self, database: CallRunner, settings: JobSettings) -> None:
        self._database = database
        self._settings = settings

    async def tick(self) -> float:
        await until_short(self._database, rate.prune(BATCH))
        await until_short(self._database, kernel_job.prune_unique(BATCH))
        await self._database.run(job_queries.prune_waiters(WAITERS_KEEP_SECONDS))
        await until_short(self._database, job_need.prune(NEEDS_KEEP_SECONDS, BATCH))
        await until_short(self._database, event.prune(EVENTS_KEEP_SECONDS, BATCH))
        if self._settings.keep_finished_count is not None:
            await until_short(
                self._database, job_queries.prune_excess(self._settings.keep_finished_count, BATCH)
            )
        if self._settings.keep_finished_seconds is not None:
            await until_short(self._database, schedule.prune(self._settings.keep_finished_seconds, BATCH))
            await until_short(self._database, batch.prune(self._settings.keep_finished_seconds, BATCH))
        announce("jobs.pruned")
        # Jittered, so that many workers do not prune at once.
        return self._settings.prune_interval_seconds * random.uniform(0.8, 1.2)  # noqa: S311
