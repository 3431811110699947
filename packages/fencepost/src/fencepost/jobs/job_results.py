"""Waits for the result of a job: notified by PostgreSQL when the job ends, with polling as a fallback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeGuard

import psycopg

from fencepost.backoff import Backoff
from fencepost.errors import Cancelled, FencepostError, NotFound
from fencepost.jobs.job import AsyncDatabase, SyncDatabase
from fencepost.kernel import job_queries, notify
from fencepost.kernel.call import Json

POLLS = Backoff(0.05, 2.0, jitter=0)


class JobFailed(FencepostError):
    """The job is dead: no try succeeded. Replay it when the cause is gone."""

    def __init__(self, job_id: int, seen: job_queries.JobOutcome) -> None:
        super().__init__(
            f"job {job_id} is dead ({seen.final_status}) after {seen.tries} tries: {seen.error}. "
            f"See `fencepost explain {job_id}`; `fencepost jobs replay {job_id}` runs it again."
        )
        self.job_id = job_id
        self.final_status = seen.final_status
        self.error = seen.error
        self.tries = seen.tries


def read_result(job_id: int, seen: job_queries.JobOutcome | None) -> Json:
    """The result of a finished job; raises the matching error for any other outcome."""
    if seen is None:
        raise NotFound(
            f"There is no job {job_id}: it never existed, or it was pruned.", noun="job", subject=str(job_id)
        )
    if seen.state == "dead":
        raise JobFailed(job_id, seen)
    if seen.state == "cancelled":
        raise Cancelled(f"job {job_id} was cancelled.", noun="job", subject=str(job_id))
    return seen.result


def _goes_on(seen: job_queries.JobOutcome | None) -> TypeGuard[job_queries.JobOutcome]:
    return seen is not None and not seen.is_final


def too_late(job_id: int, within: float, seen: job_queries.JobOutcome) -> TimeoutError:
    return TimeoutError(f"job {job_id} had not ended after {within:g} s; it is {seen.state}. It goes on.")


class Polling:
    """How long to wait before the next query: short at first, then longer, never past the deadline."""

    def __init__(self, within: float) -> None:
        self._deadline = time.monotonic() + within
        self._waits = POLLS.waits()

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def wait_seconds(self) -> float:
        return min(next(self._waits), max(0.0, self._deadline - time.monotonic()))


async def wait_for_result(
    database: AsyncDatabase,
    subscribe: Callable[[str, Callable[[], None]], Callable[[], None]],
    job_id: int,
    within: float,
) -> Json:
    """`subscribe` registers a callback for a topic's notifications, and returns the function that unregisters
    it."""
    seen = await database.run(job_queries.look(job_id))
    if not _goes_on(seen):
        return read_result(job_id, seen)
    topic = job_queries.topic(job_id)
    told = asyncio.Event()
    unsubscribe = subscribe(topic, told.set)
    try:
        # Registered before the next query: a job that ends later notifies, one that ended earlier is seen.
        await database.run(notify.sleep_on(topic))
        seen = await database.run(job_queries.look(job_id))
        if not _goes_on(seen):
            # The job ended before the registration: nothing else removes the registration.
            await database.run(notify.wake_up(topic))
        polling = Polling(within)
        while _goes_on(seen):
            if polling.is_over:
                await database.run(notify.wake_up(topic))
                raise too_late(job_id, within, seen)
            with suppress(TimeoutError):
                async with asyncio.timeout(polling.wait_seconds()):
                    await told.wait()
            told.clear()
            seen = await database.run(job_queries.look(job_id))
        return read_result(job_id, seen)
    finally:
        unsubscribe()


def wait_for_result_sync(database: SyncDatabase, listen_url: str, job_id: int, within: float) -> Json:
    """The synchronous variant, on a listening connection of its own."""
    seen = database.run(job_queries.look(job_id))
    if not _goes_on(seen):
        return read_result(job_id, seen)
    topic = job_queries.topic(job_id)
    with psycopg.connect(listen_url, autocommit=True, application_name="fencepost-result") as ear:
        ear.execute(notify.LISTEN)
        database.run(notify.sleep_on(topic))
        seen = database.run(job_queries.look(job_id))
        if not _goes_on(seen):
            database.run(notify.wake_up(topic))
        polling = Polling(within)
        while _goes_on(seen):
            if polling.is_over:
                database.run(notify.wake_up(topic))
                raise too_late(job_id, within, seen)
            _hear(ear, topic, polling.wait_seconds())
            seen = database.run(job_queries.look(job_id))
        return read_result(job_id, seen)


def _hear(ear: psycopg.Connection[tuple[object, ...]], topic: str, seconds: float) -> None:
    """Returns at the topic's notification, or when the time is over. Ignores other topics."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for notice in ear.notifies(timeout=left, stop_after=1):
            if notice.payload == topic:
                return
