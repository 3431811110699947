"""Recovers jobs of lost owners: finds them in PostgreSQL by index, whatever Redis holds, and in the streams
by idle time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import psycopg

from fencepost.crashpoints import crash_point
from fencepost.jobs._fetcher import Fetcher
from fencepost.jobs._job_fields import lost_fields
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import REDIS_ERRORS, RedisHealth
from fencepost.jobs.retry_policy import RECLAIM_DECISIONS
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import CallRunner
from fencepost.kernel.eviction import evict_job
from fencepost.kernel.job import Reclaimed
from fencepost.logs import get_logger
from fencepost.redis_streams.stream import StreamEntry, Streams, is_missing_group
from fencepost.signals import announce

_log = get_logger(__name__)
BATCH = 500
EVICTIONS = 10
START = "0-0"
DROPPED = frozenset({"done_or_stale", "not_found"})


def report_lost(jobs: Iterable[Reclaimed], metrics: JobMetrics, **fields: object) -> None:
    """Counts and logs the jobs of lost workers that were put back or ended."""
    for job in jobs:
        metrics.reclaimed(job)
        log = _log.error if job.state == "dead" else _log.warning
        log("worker_lost", **lost_fields(job), **fields)
        announce("jobs.reclaimed")


class Reclaimer:
    """Puts expired jobs back, takes over idle entries, and evicts stalled holders."""

    def __init__(
        self,
        fetcher: Fetcher,
        database: CallRunner,
        redis: RedisHealth,
        metrics: JobMetrics,
        settings: JobSettings,
        *,
        database_url: str,
        longest_lease_seconds: float,
        on_suspects: Callable[[], None],
    ) -> None:
        """`on_suspects` is called after jobs were put back as suspects."""
        self._fetcher = fetcher
        self._database = database
        self._redis = redis
        self._metrics = metrics
        self._settings = settings
        self._database_url = database_url
        self._on_suspects = on_suspects
        # An entry of a job whose lease may still be valid must not be taken from its consumer.
        self._min_idle_ms = round((longest_lease_seconds + settings.reclaim_grace_seconds) * 1000)
        # Kept between ticks: starting at 0-0 each time would rescan a long list and never reach its end.
        self._cursors = dict.fromkeys(fetcher.streams, START)

    async def tick(self) -> float:
        began = time.monotonic()
        with self._metrics.reclaims_in_progress.track_inprogress():
            await self._put_back()
            streams = self._redis.streams
            if streams is not None:
                await self._take_idle(streams)
            await self._evict_blockers()
        self._metrics.reclaim_seconds.observe(time.monotonic() - began)
        return self._settings.reclaim_interval_seconds

    async def _put_back(self) -> None:
        while True:
            crash_point("jobs.reclaim.before_commit")
            reclaimed = await self._database.run(kernel_job.reclaim(BATCH))
            crash_point("jobs.reclaim.after_commit")
            report_lost(reclaimed, self._metrics)
            if not all(job.charged for job in reclaimed):
                self._on_suspects()
            if len(reclaimed) < BATCH:
                return

    async def _take_idle(self, streams: Streams) -> None:
        for stream in self._cursors:
            count = min(self._settings.reclaim_count, self._fetcher.free)
            if count <= 0:
                return
            try:
                cursor, entries = await streams.claim_idle(
                    stream, self._fetcher.consumer, self._min_idle_ms, self._cursors[stream], count
                )
            except REDIS_ERRORS as error:
                if is_missing_group(error):
                    continue
                self._redis.failed(error)
                return
            crash_point("jobs.reclaim.after_take")
            self._cursors[stream] = cursor
            if entries:
                await self._decide(entries)

    async def _decide(self, entries: Sequence[StreamEntry]) -> None:
        try:
            taken = await self._fetcher.accept(entries)
        except psycopg.Error:
            # They stay pending, now for this consumer, and the fetcher claims them again.
            self._metrics.reclaims.labels(status="error", reason="db_error").inc(len(entries))
            raise
        if taken is None:
            return
        self._metrics.reclaims.labels(status="claimed", reason="").inc(len(taken.claimed))
        for decision, count in Counter(RECLAIM_DECISIONS[refusal] for refusal in taken.refusals).items():
            status = "dropped" if decision in DROPPED else "left"
            self._metrics.reclaims.labels(status=status, reason=decision).inc(count)

    async def _evict_blockers(self) -> None:
        """Terminates, past the grace, a holder that stopped inside a fenced transaction and so keeps its
        job."""
        blocked = await self._database.run(
            kernel_job.blocked(EVICTIONS, grace_seconds=self._settings.reclaim_grace_seconds)
        )
        for outcome in await asyncio.gather(*map(self._evict, blocked), return_exceptions=True):
            if outcome is None:
                self._metrics.reclaims.labels(status="evicted", reason="worker_lost").inc()
            else:
                _log.warning("not_evicted", error=str(outcome))

    async def _evict(self, job_id: int) -> None:
        await evict_job(self._database_url, job_id, self._settings.reclaim_grace_seconds)
