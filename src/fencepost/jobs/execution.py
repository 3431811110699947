"""Running one handler: what came of it, as a value."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import structlog

from fencepost.drive.stream import Entry
from fencepost.errors import InvalidInput, Refusal
from fencepost.jobs.handler import Handler
from fencepost.jobs.job import Job
from fencepost.jobs.policy import Bury, Retry
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import document

_log = structlog.get_logger(__name__)
_ERROR_MAX = 2000


@dataclass(slots=True, eq=False)
class Active:
    """A job that this worker holds. `deadline` is when its lease ends, on this machine's own steady clock."""

    running: kernel_job.Running
    entry: Entry | None
    job: Job
    deadline: float
    task: asyncio.Task[Any] | None = None
    lost: bool = False
    cancelled: bool = False
    outcome_known: bool = False
    started_at: float = field(default_factory=time.monotonic)

    @property
    def ended(self) -> bool:
        """Its handler is done: what came of it is decided, if not yet written."""
        return self.outcome_known or self.job.finished


@dataclass(frozen=True, slots=True)
class Committed:
    """The handler finished it in a transaction of its own: only the entry is left to settle."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Somebody else has it by now, or will have: nothing is written, nothing acknowledged."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The database refused a write of this attempt, for a reason after which the entry has done its work, or
    not."""

    reason: str


Outcome = kernel_job.Finish | kernel_job.Leave | Committed | Lost | Refused


async def execute(active: Active, handler: Handler[Any], executor: Executor) -> Outcome:
    """Run the handler and say what came of it. Never raises, but for the cancellation of the whole worker."""
    running = active.running
    try:
        arguments = handler.parse(running.payload)
    except InvalidInput as error:
        return _leave(running, "bury", f"payload_missing_or_invalid: {error}")
    try:
        async with asyncio.timeout(handler.timeout_seconds):
            result = await _invoke(active, handler, arguments, executor)
        return Committed() if active.job.finished else _finish(running, result)
    except asyncio.CancelledError:
        return _stopped(active)
    except TimeoutError as error:
        active.job.stop()
        return _failed(active, handler, error)
    except Refusal as refusal:
        return Committed() if active.job.finished else Refused(refusal.reason)
    except Exception as error:
        return _failed(active, handler, error)


async def _invoke(
    active: Active, handler: Handler[Any], arguments: dict[str, Any], executor: Executor
) -> Any:
    if handler.is_async:
        return await handler.function(active.job, **arguments)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(executor, lambda: handler.function(active.job, **arguments))


def _finish(running: kernel_job.Running, result: Any) -> kernel_job.Finish | kernel_job.Leave:
    try:
        document("result", result)
    except InvalidInput as error:
        return _leave(running, "bury", f"the handler's result cannot be stored: {error}")
    return kernel_job.Finish(running.job_id, running.attempt, "ok", result)


def _stopped(active: Active) -> Outcome:
    """Why the task was cancelled: an operator, a lost lease, or the end of this worker."""
    active.job.stop()
    if active.lost:
        return Lost()
    # Released, it ends as cancelled when a cancel was requested, and is given back otherwise.
    return _leave(active.running, "release", None)


def _failed(active: Active, handler: Handler[Any], error: Exception) -> Outcome:
    if active.job.finished:
        # The commit went through and something after it failed: the effect stands, and so does the finish.
        _log.warning("failed_after_finish", job_id=active.running.job_id, error=repr(error))
        return Committed()
    if active.lost:
        return Lost()
    text = f"{type(error).__name__}: {error}"[:_ERROR_MAX].replace("\0", "")
    match handler.policy(active.running.tries, error):
        case Bury():
            return _leave(active.running, "bury", text)
        case Retry(delay_seconds):
            return _leave(active.running, "retry", text, delay_seconds)


def _leave(
    running: kernel_job.Running,
    how: kernel_job.Leaving,
    error: str | None,
    delay_seconds: float | None = None,
) -> kernel_job.Leave:
    return kernel_job.Leave(running.job_id, running.attempt, how, error, delay_seconds)
