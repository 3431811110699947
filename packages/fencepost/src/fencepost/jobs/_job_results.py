"""Waits for the result of a job: notified by PostgreSQL when the job ends, with polling as a fallback."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, TypeGuard

from fencepost._connections import Connections
from fencepost._sync_form import settled
from fencepost.backoff import Backoff
from fencepost.errors import Cancelled, FencepostError, NotFound
from fencepost.kernel import _notify as notify
from fencepost.kernel import job_queries
from fencepost.kernel._lineage import PRIMARY, ReadAge
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
        raise _not_found(job_id)
    if seen.state == "dead":
        raise JobFailed(job_id, seen)
    if seen.state == "cancelled":
        why = f": {seen.error}" if seen.error else ""
        raise Cancelled(f"job {job_id} was cancelled{why}.", noun="job", subject=str(job_id))
    return seen.result


def _not_found(job_id: int) -> NotFound:
    return NotFound(
        f"There is no job {job_id}: it never existed, or it was pruned.", noun="job", subject=str(job_id)
    )


def _goes_on(seen: job_queries.JobOutcome | None) -> TypeGuard[job_queries.JobOutcome]:
    return seen is not None and not seen.is_final


def too_late(job_id: int, within_seconds: float, seen: job_queries.JobOutcome) -> TimeoutError:
    return TimeoutError(
        f"job {job_id} had not ended after {within_seconds:g} s; it is {seen.state}. It goes on."
    )


class Polling:
    """How long to wait before the next query: short at first, then longer, never past the deadline."""

    def __init__(self, within_seconds: float) -> None:
        self._deadline = time.monotonic() + within_seconds
        self._waits = POLLS.waits()

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def wait_seconds(self) -> float:
        return min(next(self._waits), max(0.0, self._deadline - time.monotonic()))


async def wait_for_result(connections: Connections[Any], job_id: int, within_seconds: float) -> Json:
    """The result of a job that ends in time; raises the matching error for any other end."""
    return read_result(job_id, await _wait(connections, job_id, within_seconds))


async def wait_for_end(
    connections: Connections[Any], job_id: int, within_seconds: float
) -> job_queries.JobOutcome:
    """How a job ended that ends in time."""
    seen = await _wait(connections, job_id, within_seconds)
    if seen is None:
        raise _not_found(job_id)
    return seen


@dataclass(frozen=True, slots=True)
class PolledJob:
    """The state of a job, where it was read, and how old that may be."""

    outcome: job_queries.JobOutcome
    read_from: ReadAge


async def poll(connections: Connections[Any], job_id: int) -> PolledJob:
    """From the standby, if there is one. It may not have heard of the job yet: then the primary is asked."""
    age, seen = await connections.read_aside(job_queries.look(job_id))
    if seen is None and age.is_standby:
        age, seen = (
            PRIMARY,
            await connections.run(job_queries.look(job_id)),
        )
    if seen is None:
        raise _not_found(job_id)
    return PolledJob(seen, age)


async def _wait(
    connections: Connections[Any], job_id: int, within_seconds: float
) -> job_queries.JobOutcome | None:
    seen = await connections.run(job_queries.look(job_id))
    if not _goes_on(seen):
        return seen
    topic = job_queries.topic(job_id)
    async with connections.hearing(topic) as heard:
        # Registered before the next query: a job that ends later notifies, one that ended earlier is seen.
        await connections.run(notify.sleep_on(topic))
        seen = await connections.run(job_queries.look(job_id))
        if not _goes_on(seen):
            # The job ended before the registration: nothing else removes the registration.
            await connections.run(notify.wake_up(topic))
        polling = Polling(within_seconds)
        while _goes_on(seen):
            if polling.is_over:
                await connections.run(notify.wake_up(topic))
                raise too_late(job_id, within_seconds, seen)
            await settled(heard(polling.wait_seconds()))
            seen = await connections.run(job_queries.look(job_id))
        return seen
