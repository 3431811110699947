"""Jobs of lost owners: found in PostgreSQL by index, whatever Redis holds, and in the streams by idle
time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

import psycopg
import structlog
from redis.exceptions import RedisError

from fencepost.crashpoints import crash_point
from fencepost.drive.stream import Streams
from fencepost.jobs.drive_link import DriveLink
from fencepost.jobs.intake import Intake, Taken
from fencepost.jobs.job import Database
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.signals import announce

_log = structlog.get_logger(__name__)
BATCH = 500
START = "0-0"


class Reclaimer:
    """Puts expired jobs back, evicts holders that block it, and takes over idle entries."""

    def __init__(
        self,
        database: Database,
        link: DriveLink,
        intake: Intake,
        consumer: str,
        metrics: JobMetrics,
        settings: JobSettings,
        *,
        longest_lease_seconds: float,
        evict: Callable[[int], Awaitable[None]],
        accept: Callable[[Taken], Awaitable[None]],
        free: Callable[[], int],
    ) -> None:
        self._database = database
        self._link = link
        self._intake = intake
        self._consumer = consumer
        self._metrics = metrics
        self._settings = settings
        self._evict = evict
        self._accept = accept
        self._free = free
        # An entry of a job whose lease may still be valid must not be taken away from its consumer.
        self._min_idle_ms = round((longest_lease_seconds + settings.reclaim_grace_seconds) * 1000)
        # Kept between ticks: from 0-0 each time, a long list would be scanned anew and its end never reached.
        self._cursors = dict.fromkeys(intake.streams, START)

    async def tick(self) -> float:
        began = time.monotonic()
        with self._metrics.reclaim_inflight.track_inprogress():
            await self._put_back()
            await self._evict_blockers()
            streams = self._link.streams
            if streams is not None:
                await self._take_idle(streams)
        self._metrics.reclaim_ms.observe((time.monotonic() - began) * 1000)
        return self._settings.reclaim_interval_seconds

    async def _put_back(self) -> None:
        while True:
            crash_point("jobs.reclaim.before_put_back")
            reclaimed = await self._database.run(kernel_job.reclaim(BATCH))
            for job in reclaimed:
                self._metrics.reclaims.labels(status=job.state, reason="worker_lost").inc()
                _log.warning(
                    "worker_lost", job_id=job.job_id, attempt=job.attempt, owner=job.owner, state=job.state
                )
                announce("jobs.reclaimed")
            if len(reclaimed) < BATCH:
                return

    async def _evict_blockers(self) -> None:
        """A holder that stopped inside a fenced transaction keeps its job: past the grace, he is ended."""
        blocked = await self._database.run(
            kernel_job.blocked(BATCH, grace_seconds=self._settings.reclaim_grace_seconds)
        )
        for job_id in blocked:
            await self._evict(job_id)
            self._metrics.reclaims.labels(status="evicted", reason="worker_lost").inc()

    async def _take_idle(self, streams: Streams) -> None:
        for stream in self._intake.streams:
            count = min(self._settings.reclaim_count, self._free())
            if count <= 0:
                return
            try:
                cursor, entries = await streams.claim_idle(
                    stream, self._consumer, self._min_idle_ms, self._cursors[stream], count
                )
            except (RedisError, OSError) as error:
                # A wiped Redis has no group; the intake makes it again. Anything else is for the link to
                # judge.
                if "NOGROUP" not in str(error):
                    self._link.failed(error)
                return
            if not entries:
                self._cursors[stream] = cursor
                continue
            try:
                taken = await self._intake.claim(entries)
            except psycopg.OperationalError:
                self._metrics.reclaims.labels(status="error", reason="db_error").inc(len(entries))
                raise
            # Only now: a cursor that moved before the claim would pass over what the claim did not reach.
            self._cursors[stream] = cursor
            self._count(len(entries), taken)
            await self._accept(taken)

    def _count(self, seen: int, taken: Taken) -> None:
        left = seen - len(taken.claimed) - len(taken.done)
        self._metrics.reclaims.labels(status="claimed", reason="").inc(len(taken.claimed))
        self._metrics.reclaims.labels(status="dropped", reason="done_or_stale").inc(len(taken.done))
        self._metrics.reclaims.labels(status="left", reason="lease_still_valid").inc(max(0, left))


def longest(leases: Sequence[float]) -> float:
    return max(leases, default=0.0)
