"""Runs one handler and returns the outcome as a value."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, cast

from fencepost.errors import InvalidInput, Refusal
from fencepost.jobs.handler import Handler
from fencepost.jobs.job import Job
from fencepost.jobs.process_pool import FailedInProcess, ProcessPool
from fencepost.jobs.retry_policy import PAYLOAD_INVALID, Bury, Retry, Verdict, exponential
from fencepost.jobs.thread_pool import ThreadPool
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import document
from fencepost.logs import get_logger
from fencepost.redis_streams.stream import StreamEntry

_log = get_logger(__name__)
ERROR_CHARACTERS_MAX = 2000
DELAY_SECONDS_MAX = 365 * 86_400.0


@dataclass(slots=True, eq=False)
class HeldJob:
    """A job that this worker holds. `deadline` is the end of its lease on this machine's monotonic clock."""

    running: kernel_job.Running
    entry: StreamEntry | None
    job: Job
    deadline: float
    task: asyncio.Task[Any] | None = None
    lost: bool = False
    cancelled: bool = False
    outcome_known: bool = False
    started_at: float = field(default_factory=time.monotonic)

    @property
    def ended(self) -> bool:
        """Whether its handler has ended: the outcome is decided, if not yet written."""
        return self.outcome_known or self.job.finished or self.job.parked


@dataclass(frozen=True, slots=True)
class Committed:
    """The handler finished or parked the job in its own transaction: only the entry is left to settle."""

    parked: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Another owner has the job, or will have it: nothing is written, nothing acknowledged."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The database refused a write of this attempt; the reason says whether the entry is still needed."""

    reason: str


Outcome = kernel_job.Finish | kernel_job.Leave | Committed | Lost | Refused


def is_poison(outcome: Outcome) -> bool:
    """Whether the handler could not be called with the payload."""
    return isinstance(outcome, kernel_job.Leave) and (outcome.error or "").startswith(f"{PAYLOAD_INVALID}: ")


async def execute(
    active: HeldJob,
    handler: Handler[...],
    threads: ThreadPool,
    processes: ProcessPool | None = None,
) -> Outcome:
    """Run the handler and return its outcome. Never raises: without an outcome the job is held for ever."""
    running = active.running
    try:
        arguments = handler.parse(running.payload)
    except Exception as error:
        return leave(running, "bury", f"{PAYLOAD_INVALID}: {describe(error)}")
    try:
        if handler.place == "loop" and handler.timeout_seconds is None:
            # The common case; this saves a coroutine for each of them.
            result = await cast("Awaitable[Any]", handler.function(active.job, **arguments))
        # A process has its own timeout, which does not count its start-up time.
        elif handler.timeout_seconds is None or handler.place == "process":
            result = await _invoke(active, handler, arguments, threads, processes)
        else:
            async with asyncio.timeout(handler.timeout_seconds):
                result = await _invoke(active, handler, arguments, threads, processes)
    except asyncio.CancelledError:
        return _stopped(active, handler)
    except Refusal as refusal:
        return _refused(active, handler, refusal)
    except (Exception, SystemExit) as error:
        # SystemExit too: a handler that calls a command line must not end the worker.
        return _failed(active, handler, error)
    if active.job.parked:
        return Committed(parked=True)
    return Committed() if active.job.finished else _finish(running, result)


def leave(
    running: kernel_job.Running, how: kernel_job.Leaving, error: str | None = None, delay_seconds: float = 0
) -> kernel_job.Leave:
    delay = delay_seconds if math.isfinite(delay_seconds) else DELAY_SECONDS_MAX
    bounded = min(DELAY_SECONDS_MAX, max(0.0, delay))
    return kernel_job.Leave(running.job_id, running.attempt, how, error, bounded)


def describe(error: BaseException) -> str:
    """The error as a text that PostgreSQL can store, whatever it contains."""
    try:
        text = error.text if isinstance(error, FailedInProcess) else f"{type(error).__name__}: {error}"
    except Exception:
        text = f"{type(error).__name__}, whose text cannot be had"
    return text[:ERROR_CHARACTERS_MAX].replace("\0", "").encode(errors="replace").decode()


async def _invoke(
    active: HeldJob,
    handler: Handler[...],
    arguments: dict[str, Any],
    threads: ThreadPool,
    processes: ProcessPool | None,
) -> Any:
    if handler.place == "process":
        assert processes is not None, "a worker with such handlers is given processes"
        return await processes.call(handler, active.running, active.job)
    if handler.is_async:
        return await cast("Awaitable[Any]", handler.function(active.job, **arguments))
    try:
        return await threads.call(lambda: handler.function(active.job, **arguments))
    except BaseException:
        # The thread may still run, and checks this flag.
        active.job.stop()
        raise


def _finish(running: kernel_job.Running, result: Any) -> kernel_job.Finish | kernel_job.Leave:
    # Most return nothing, which needs no check.
    if result is not None:
        try:
            document("result", result)
        except InvalidInput as error:
            return leave(running, "bury", f"the handler's result cannot be stored: {describe(error)}")
    return kernel_job.Finish(running.job_id, running.attempt, "ok", result)


def _stopped(active: HeldJob, handler: Handler[...]) -> Outcome:
    """Why the task was cancelled: by an operator, a lost lease, a worker shutdown, or from inside."""
    if active.job.finished:
        return Committed()
    if active.lost:
        return Lost()
    if not active.job.stopped:
        return _failed(active, handler, RuntimeError("the handler was cancelled, and not by its worker"))
    # Once released, it ends as cancelled when a cancel was requested, and is given back otherwise.
    return leave(active.running, "release")


def _refused(active: HeldJob, handler: Handler[...], refusal: Refusal) -> Outcome:
    """A refusal of this attempt ends it. Any other refusal is an error like any other."""
    if active.job.finished:
        return Committed()
    if (refusal.noun, refusal.subject) == ("job", str(active.running.job_id)):
        return Refused(refusal.reason)
    return _failed(active, handler, refusal)


def _failed(active: HeldJob, handler: Handler[...], error: BaseException) -> Outcome:
    if active.job.finished:
        # The commit succeeded and something after it failed: the effect and the finish both stand.
        _log.warning("failed_after_finish", job_id=active.running.job_id, error=describe(error))
        return Committed()
    if active.lost:
        return Lost()
    match _verdict(active.running.tries, handler, error):
        case Bury():
            return leave(active.running, "bury", describe(error))
        case Retry(delay_seconds):
            return leave(active.running, "retry", describe(error), delay_seconds)


def _verdict(tries: int, handler: Handler[...], error: BaseException) -> Verdict:
    """The verdict of the handler's policy; a policy that fails, or returns nothing, gets the default."""
    if isinstance(error, FailedInProcess):
        return error.verdict
    known = error if isinstance(error, Exception) else RuntimeError(describe(error))
    try:
        verdict: object = handler.policy(tries, known)
    except Exception as failure:
        verdict = failure
    if isinstance(verdict, Retry | Bury):
        return verdict
    _log.error("retry_policy_failed", kind=handler.kind, verdict=repr(verdict))
    return exponential()(tries, known)
