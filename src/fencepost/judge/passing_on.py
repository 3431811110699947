"""A worker that cannot compile a language passes the job on: another one can, or will when it comes."""

from __future__ import annotations

from typing import NoReturn

from fencepost.errors import NotRunning
from fencepost.house import Fencepost
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.logs import get_logger

_log = get_logger(__name__)
SECONDS_MAX = 15.0


async def pass_on(fp: Fencepost, job: Job, language: str) -> NoReturn:
    """Put it back, its try not counted, for longer each time. Raises what tells the runtime that it waits."""
    delay_seconds = min(SECONDS_MAX, 0.1 * 2.0 ** min(job.attempt - 1, 10))
    await fp.run(kernel_job.release(job.id, job.attempt, job.owner, delay_seconds=delay_seconds))
    _log.info("judge_passed_on", job_id=job.id, attempt=job.attempt, language=language)
    raise NotRunning(f"Nobody here compiles {language}.", noun="job", subject=str(job.id))
