"""Requeues a job that cannot be judged here and now. The try does not count, and the delay grows each
time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from fencepost.backoff import Backoff
from fencepost.client import Fencepost
from fencepost.crashpoints import crash_point
from fencepost.errors import NotRunning
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call
from fencepost.logs import get_logger
from fencepost.signals import announce
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge._judging import JudgeFault
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._problem import ANSWERS
from fencepost_judge._settings import JudgeSettings

_log = get_logger(__name__)
RETURNS = Backoff(0.1, 15.0, jitter=0)


def needs_of(languages: Iterable[str]) -> dict[str, list[str]]:
    """The header of a job that takes these languages. A worker offers the same for those that it compiles, so
    it never claims a job that it cannot judge."""
    return {"needs": [f"language:{name}" for name in languages if name != ANSWERS]}


async def pass_on(fp: Fencepost, job: Job, language: str) -> NoReturn:
    """Release the job to a worker that can compile the language, now or later: the problem has changed since
    the submission said what it needs. Raises NotRunning, which tells the runtime that the job waits."""
    await fp.run(_put_back(job))
    _log.info("judge_passed_on", language=language, **log_fields(job))
    raise NotRunning(f"This worker does not support {language}.", noun="job", subject=str(job.id))


async def wait_for_store(fp: Fencepost, job: Job, reason: str, *, minutes_max: float) -> None:
    """Release the job, because its test data cannot be reached. Raises NotRunning, which tells the runtime
    that the job waits; returns when the job has waited longer than `minutes_max`."""
    async with fp.transaction() as tx:
        waited = await tx.run(judge_calls.store_away(job.id, job.attempt, job.owner))
        if waited.total_seconds() >= minutes_max * 60:
            return
        await tx.run(_put_back(job))
    _log.warning("judge_store_away", waited_seconds=waited.total_seconds(), error=reason, **log_fields(job))
    raise NotRunning("The test data cannot be reached.", noun="job", subject=str(job.id))


async def repeat_elsewhere(
    fp: Fencepost, job: Job, fault: Exception, settings: JudgeSettings, metrics: JudgeMetrics
) -> None:
    """Record a system error of this judge, and put the job back. Raises NotRunning, which tells the runtime
    that the job waits; returns when the job has no tries left. The database may disable this judge for it."""
    about = log_fields(job)
    cause = fault.cause if isinstance(fault, JudgeFault) else "judge"
    crash_point("judge.before_system_error")
    told = await fp.run(
        judge_calls.system_error(
            job,
            str(fault) or type(fault).__name__,
            cause,
            delay_seconds=RETURNS.seconds(job.attempt),
            settings=settings,
        )
    )
    crash_point("judge.after_system_error")
    metrics.system_errors.labels(reason=cause, outcome="blamed" if told.blamed else "charged").inc()
    if told.disabled_for is not None:
        alone = "" if told.others else " No other judge is in service: submissions wait."
        _log.error(
            "judge_out_of_service",
            judge=told.judge,
            reason=told.disabled_for,
            others_in_service=told.others,
            remedy="Find the cause (`fencepost judge probe` and the log on that host), then"
            f" `fencepost workers enable {told.judge}`.{alone}",
            **about,
        )
        announce("judge.out_of_service")
    if told.outcome == "repeated":
        raise NotRunning("The judge failed; the job is judged again.", noun="job", subject=str(job.id))


async def leave_to_others(fp: Fencepost, job: Job) -> None:
    """Release a job that this judge has failed at, while another one can judge it. Raises NotRunning, as
    above."""
    if await fp.run(judge_calls.leave_to_others(job)):
        await fp.run(_put_back(job))
        _log.info("judge_left_to_others", **log_fields(job))
        raise NotRunning("Another judge is to try it.", noun="job", subject=str(job.id))


def log_fields(job: Job) -> dict[str, object]:
    """The names of a job in a line of the log."""
    return {"job_id": job.id, "attempt": job.attempt, "try": job.tries, "trace_id": job.trace_id}


def _put_back(job: Job) -> Call[str]:
    return kernel_job.release(job.id, job.attempt, job.owner, delay_seconds=RETURNS.seconds(job.attempt))
