"""Driving: pending jobs become entries in the streams of their lanes."""

from __future__ import annotations

import time
from contextlib import suppress

import psycopg
from redis.exceptions import RedisError

from fencepost.crashpoints import crash_point
from fencepost.drive.lanes import LANES, stream_of
from fencepost.drive.stream import Streams
from fencepost.jobs.drive_link import DriveLink
from fencepost.jobs.job import Database
from fencepost.jobs.listener import Listener
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel import wake


class Dispatcher:
    """Drives one queue. Any number of them may: rows are locked, and a second entry is refused by the claim.

    It keeps a stream below half of its bound, so that trimming never meets a waiting entry. The backlog stays
    in PostgreSQL, where it costs nothing.
    """

    def __init__(
        self,
        queue: str,
        database: Database,
        link: DriveLink,
        listener: Listener,
        metrics: JobMetrics,
        settings: JobSettings,
    ) -> None:
        self._queue = queue
        self._topic = f"job:{queue}"
        self._database = database
        self._link = link
        self._listener = listener
        self._metrics = metrics
        self._settings = settings
        self._asleep = False

    async def tick(self) -> float:
        """Drive what is due; answers how long to wait for more."""
        streams = self._link.streams
        if streams is None:
            return self._settings.poll_seconds
        counts = [await self._drive(streams, lane) for lane in range(len(LANES))]
        if any(count >= self._settings.batch // 2 for count in counts):
            await self._stay_awake()
            return 0
        if not self._asleep:
            # Say so before the last look: what is submitted after it notifies, what came before it is seen
            # now.
            await self._database.run(wake.sleep_on(self._topic))
            self._asleep = True
            return 0
        return await self._seconds_until_due()

    async def _drive(self, streams: Streams, lane: int) -> int:
        """One batch of one lane: lock, write the entries, record them, in one transaction."""
        stream = stream_of(self._settings.stream_key, self._queue, lane)
        began = time.monotonic()
        try:
            room = self._settings.stream_maxlen // 2 - await streams.length(stream)
            limit = min(self._settings.batch, room)
            if limit <= 0:
                return 0
            async with self._database.transaction() as tx:
                due = await tx.run(kernel_job.dispatch(self._queue, lane, limit))
                if not due:
                    return 0
                crash_point("jobs.dispatch.before_add")
                sent = await streams.dispatch(
                    stream, lane, [job.job_id for job in due], self._settings.stream_maxlen
                )
                crash_point("jobs.dispatch.after_add")
                await tx.run(
                    kernel_job.dispatched([job.job_id for job in due], sent.entry_ids, sent.incarnation)
                )
            crash_point("jobs.dispatch.after_commit")
        except (RedisError, OSError) as error:
            # The transaction rolled back: the jobs are pending, and an entry that was written is a duplicate.
            self._metrics.dispatches.labels(status="error", reason="redis_error").inc()
            self._link.failed(error)
            return 0
        self._metrics.dispatches.labels(status="ok", reason="").inc(len(due))
        self._metrics.dispatch_seconds.observe(time.monotonic() - began)
        return len(due)

    async def _stay_awake(self) -> None:
        if self._asleep:
            await self._database.run(wake.wake_up(self._topic))
            self._asleep = False

    async def _seconds_until_due(self) -> float:
        """Until the next delayed job, but never past the poll: a notification may have been missed."""
        due = await self._database.run(kernel_job.next_due(self._queue))
        if due is None:
            return self._settings.poll_seconds
        return min(self._settings.poll_seconds, max(0.0, due.timestamp() - time.time()))

    async def stop(self) -> None:
        with suppress(psycopg.Error):
            await self._stay_awake()
