"""Dispatch: pending jobs become entries in the streams of their priorities."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from fencepost.crashpoints import crash_point
from fencepost.database import AsyncDatabase
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import REDIS_ERRORS, RedisHealth
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import _job_need as job_need
from fencepost.kernel import _notify as notify
from fencepost.kernel import job as kernel_job
from fencepost.redis_streams.stream import Streams
from fencepost.redis_streams.stream_names import NORMAL

PATIENCE_SECONDS = 4.0
"""A stalled dispatcher keeps its jobs locked, and workers that received their entries wait for it. PostgreSQL
terminates it when it has idled for half of this."""
CROWDED_SECONDS = 0.1
"""How long to wait when jobs are due and cannot be dispatched: the stream is full, or another dispatcher has
locked them."""
INVITATION_SECONDS = 0.25
"""While the worker of this process draws from PostgreSQL and cannot take all, entries are written only for
other workers: one that waits at the streams takes a batch, and then draws as well."""
BUSY_AT_ONCE = 2


async def _claims_nothing(queue: str) -> bool:
    return False


async def _asks_for_nothing(queue: str) -> tuple[int, int]:
    return 0, 0


class Dispatcher:
    """Dispatches one queue. Several may run: rows are locked, and the claim refuses a second entry.

    It keeps a stream below half of its bound, so that trimming never removes a waiting entry. The backlog
    stays in PostgreSQL, where it costs nothing.
    """

    def __init__(
        self,
        queue: str,
        database: AsyncDatabase,
        redis: RedisHealth,
        metrics: JobMetrics,
        settings: JobSettings,
        serves: job_need.Serves | None = None,
        *,
        draws: Callable[[], bool] = lambda: False,
        leaves_some: Callable[[], bool] = lambda: True,
        on_backlog: Callable[[], None] = lambda: None,
        on_set_aside: Callable[[str], Awaitable[bool]] = _claims_nothing,
        on_notice: Callable[[str], Awaitable[tuple[int, int]]] = _asks_for_nothing,
    ) -> None:
        """`serves` is what this process's worker serves; everything, without it. `draws` tells whether this
        process's worker claims pending jobs directly, and `leaves_some` whether it cannot take them all;
        `on_backlog` is called when the backlog is large enough that it should. `on_set_aside` claims jobs of
        the queue that other workers have set aside and that this one serves, and tells whether there may be
        more: they are in no stream."""
        self._queue = queue
        self._topic = f"job:{queue}"
        self._database = database
        self._redis = redis
        self._metrics = metrics
        self._settings = settings
        self._draws = draws
        self._leaves_some = leaves_some
        self._on_backlog = on_backlog
        self._serves = serves
        self._on_set_aside = on_set_aside
        self._on_notice = on_notice
        self._looked_aside_at = -CROWDED_SECONDS
        self._asleep_until = 0.0
        self._invited_at = 0.0

    async def tick(self) -> float:
        """Dispatch the due jobs; returns how long to wait for more."""
        streams = self._redis.streams
        if streams is None:
            # There is nothing to dispatch: workers claim directly, and need a notification.
            if time.monotonic() >= self._asleep_until:
                await self._fall_asleep()
            return self._asleep_until - time.monotonic()
        if self._draws():
            uninvited_seconds = self._invited_at + INVITATION_SECONDS - time.monotonic()
            if uninvited_seconds > 0:
                return uninvited_seconds
            self._invited_at = time.monotonic()
            if not self._leaves_some() or not await self._has_fellows(streams):
                return INVITATION_SECONDS
        if not await self._is_taken() and await self._dispatch_some(streams) >= self._settings.batch // 2:
            self._on_backlog()
            await self._stay_awake()
            if time.monotonic() - self._looked_aside_at >= CROWDED_SECONDS:
                await self._next_due()
            return 0
        if time.monotonic() >= self._asleep_until:
            # Register before the last query: jobs submitted after it notify, jobs submitted before it are
            # seen now.
            await self._fall_asleep()
            return 0
        return await self._seconds_until_due()

    async def _is_taken(self) -> bool:
        """Whether this process's worker has claimed what is due, or nothing is due.

        One commit starts a job that way; a stream would add another one and two replies.
        """
        claimed, asked = await self._on_notice(self._queue)
        if claimed == asked:
            return False
        if claimed:
            return True
        pending = (await self._next_due()).pending
        if pending is None or pending > 0:
            return True
        # Committed between the claim and this look, most likely: the worker is idle still.
        claimed, asked = await self._on_notice(self._queue)
        return 0 < claimed < asked

    async def _has_fellows(self, streams: Streams) -> bool:
        """Whether any other worker reads the streams."""
        try:
            return await streams.readers(self._settings.stream(self._queue, NORMAL)) > 1
        except REDIS_ERRORS as error:
            self._redis.failed(error)
            return False

    async def _dispatch_some(self, streams: Streams) -> int:
        """Dispatches one batch, or several concurrently under load, because each mostly waits for replies."""
        driving = [asyncio.create_task(self._dispatch(streams)) for _ in range(self._at_once)]
        try:
            # All of them end before anything is raised: a batch that is not awaited may hold rows.
            await asyncio.wait(driving)
            return sum(task.result() for task in driving)
        finally:
            for task in driving:
                task.cancel()

    @property
    def _at_once(self) -> int:
        return 1 if self._asleep_until or self._draws() else BUSY_AT_ONCE

    async def _dispatch(self, streams: Streams) -> int:
        """Dispatches a batch of every priority that has jobs: lock, write and record entries in one
        transaction."""
        began = time.monotonic()
        tried: list[int] = []
        try:
            count = await self._write(streams, tried)
        except REDIS_ERRORS as error:
            # The transaction rolled back: the jobs are pending, and an entry that was written is a duplicate.
            self._metrics.dispatches.labels(self._queue, "error", "redis_error").inc()
            self._redis.failed(error)
            await self._note(tried, error)
            return 0
        if count:
            self._metrics.dispatches.labels(self._queue, "ok", "").inc(count)
            self._metrics.dispatch_seconds.labels(self._queue).observe(time.monotonic() - began)
        return count

    async def _note(self, tried: Sequence[int], error: Exception) -> None:
        """Records on each job how often its dispatch failed, and why. None is delayed: from now on workers
        claim from PostgreSQL directly, and RedisHealth probes Redis less and less often."""
        if tried:
            why = f"{type(error).__name__}: {error}"
            await self._database.run(kernel_job.dispatch_failed(tried, why, 0))

    async def _write(self, streams: Streams, tried: list[int]) -> int:
        count = 0
        async with self._database.transaction() as tx:
            # A server crash loses at most the positions of entries: the jobs are pending then, and entries
            # that exist already are refused. So this commit does not wait for the disk; the claim's commit
            # must.
            await tx.execute("set local synchronous_commit = off")
            due = await tx.run(
                kernel_job.dispatch_by_priority(
                    self._queue, self._settings.batch, patience_seconds=PATIENCE_SECONDS
                )
            )
            tried.extend(job_id for job_ids in due.values() for job_id in job_ids)
            for priority, job_ids in due.items():
                crash_point("jobs.dispatch.before_add")
                stream = self._settings.stream(self._queue, priority)
                sent = await streams.dispatch(stream, priority, job_ids, self._settings.stream_maxlen)
                crash_point("jobs.dispatch.after_add")
                # Jobs that the stream had no room for stay pending.
                written = job_ids[: len(sent.entry_ids)]
                if written:
                    await tx.run(kernel_job.dispatched(written, sent.entry_ids, sent.incarnation))
                count += len(written)
            crash_point("jobs.dispatch.before_commit")
        crash_point("jobs.dispatch.after_commit")
        return count

    async def _fall_asleep(self) -> None:
        """Makes submitters notify from now on. Repeated with every poll: another dispatcher may have marked
        itself awake, and died."""
        self._asleep_until = time.monotonic() + self._settings.poll_seconds
        await self._database.run(notify.sleep_on(self._topic))

    async def _stay_awake(self) -> None:
        """Busy: submitters need not notify."""
        if self._asleep_until:
            self._asleep_until = 0.0
            await self._database.run(notify.wake_up(self._topic))

    async def _seconds_until_due(self) -> float:
        """The time until the next delayed job, at most the poll interval: a notification may have been
        missed."""
        due = await self._next_due()
        known = [seconds for seconds in (due.pending, due.aside) if seconds is not None]
        seconds = min(known, default=self._settings.poll_seconds)
        return min(self._settings.poll_seconds, max(CROWDED_SECONDS, seconds))

    async def _next_due(self) -> job_need.NextDue:
        """When the next jobs are due; has those claimed that are due and were set aside."""
        while True:
            due = await self._database.run(job_need.next_due(self._queue, self._serves))
            self._looked_aside_at = time.monotonic()
            if due.aside is None or due.aside > 0:
                return due
            if not await self._on_set_aside(self._queue):
                # The fetcher has no free place; it claims them when it has.
                return replace(due, aside=None)
