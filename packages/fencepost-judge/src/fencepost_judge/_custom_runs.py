"""Custom runs as jobs: submitted, executed by a worker, shown to their author, and removed when they
expire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from fencepost.client import Fencepost
from fencepost.errors import NotFound
from fencepost.jobs.job import Job
from fencepost.kernel.call import (
    Call,
    Json,
    document,
    duration,
    each,
    nothing,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost_judge._custom_run_executor import FAILED, CustomRunOutcome
from fencepost_judge._judging import Judge, JudgeFault
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._requeue import leave_to_others, needs_of, pass_on, repeat_elsewhere
from fencepost_judge._settings import JudgeSettings

TRIES = 2
PRUNE_LIMIT = 1000
PRUNE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class CustomRun:
    """One custom run; it has no outcome while it waits or runs."""

    job_id: int
    author: str
    language: str
    sources: Mapping[str, str]
    input: str | None
    made_at: datetime
    expires_at: datetime
    outcome: Json


class CustomRuns:
    """`judge` returns the judge that is open on this machine; it is called in workers only."""

    def __init__(
        self,
        fp: Fencepost,
        settings: JudgeSettings,
        metrics: JudgeMetrics,
        queue: str,
        judge: Callable[[], Judge],
    ) -> None:
        self._fp = fp
        self._settings = settings
        self._metrics = metrics
        self._judge = judge
        declare = fp.job(queue, kind="judge_custom_run", tries=TRIES, lease=settings.lease_seconds)
        self._job = declare(self._run)

    async def submit(
        self,
        language: str,
        sources: Mapping[str, str],
        given: str | None,
        *,
        author: str,
        allowance: Call[None] | None = None,
    ) -> int:
        """Run a program on an input; without an input, only compile it. Returns the job."""
        async with self._fp.transaction() as tx:
            if allowance is not None:
                await tx.run(allowance)
            submitted = await self._job.options(headers=needs_of([language])).submit(tx)
            await tx.run(
                put(
                    submitted.job_id,
                    author,
                    language,
                    sources,
                    given,
                    keep_seconds=self._settings.custom_run_keep_seconds,
                )
            )
        return submitted.job_id

    async def get(self, job_id: int) -> CustomRun:
        found = await self._fp.run(get(job_id))
        if not found:
            raise no_custom_run(job_id)
        return found[0]

    async def prune(self) -> float:
        """One tick: remove expired custom runs. Runs again immediately if there were more."""
        removed = await self._fp.run(prune(PRUNE_LIMIT))
        return 0.0 if removed >= PRUNE_LIMIT else PRUNE_SECONDS

    async def _run(self, job: Job) -> None:
        found = await self._fp.run(get(job.id))
        if not found:
            async with job.finish(None, final_status="EXPIRED"):
                return
        custom_run = found[0]
        if custom_run.language not in self._judge().languages:
            await pass_on(self._fp, job, custom_run.language)
        await leave_to_others(self._fp, job)
        fault: Exception = JudgeFault("sandbox: a custom run ended with SE")
        try:
            tried = await self._judge().try_out(
                custom_run.language,
                {name: content.encode() for name, content in custom_run.sources.items()},
                None if custom_run.input is None else custom_run.input.encode(),
                job_id=str(job.id),
                attempt_id=job.attempt,
            )
        except OSError as error:
            tried, fault = CustomRunOutcome(verdict="SE", message=FAILED), error
        if tried.verdict == "SE":
            await repeat_elsewhere(self._fp, job, fault, self._settings, self._metrics)
        # Input and output are not part of the job's own result, which is kept longer than a custom run.
        async with job.finish(None, final_status=tried.verdict) as tx:
            await tx.run(done(job.id, job.attempt, job.owner, tried))


def no_custom_run(job_id: int) -> NotFound:
    return NotFound(f"There is no custom run {job_id}.", noun="custom_run", subject=str(job_id))


def put(
    job_id: int,
    author: str,
    language: str,
    sources: Mapping[str, str],
    given: str | None,
    *,
    keep_seconds: float,
) -> Call[None]:
    return Call(
        "select fencepost.judge_custom_run_put"
        "(%s::bigint, %s::text, %s::text, %s::jsonb, %s::text, %s::interval)",
        (
            job_id,
            text("author", author),
            language,
            document("sources", dict(sources)),
            optional_text("input", given),
            duration("keep", keep_seconds),
        ),
        nothing,
    )


def get(job_id: int) -> Call[list[CustomRun]]:
    return Call(
        "select job_id, author, language, sources::text, input, made_at, expires_at, outcome::text"
        " from fencepost.judge_custom_run_get(%s::bigint)",
        (job_id,),
        each(_custom_run),
    )


def done(job_id: int, attempt: int, owner: str, tried: CustomRunOutcome) -> Call[None]:
    return Call(
        "select fencepost.judge_custom_run_done(%s::bigint, %s::bigint, %s::text, %s::jsonb)",
        (job_id, attempt, owner, document("outcome", asdict(tried))),
        nothing,
    )


def prune(limit: int) -> Call[int]:
    return Call("select fencepost.judge_custom_run_prune(%s::integer)", (limit,), scalar)


def _custom_run(
    job_id: int,
    author: str,
    language: str,
    sources: str,
    given: str | None,
    made_at: datetime,
    expires_at: datetime,
    outcome: str | None,
) -> CustomRun:
    return CustomRun(job_id, author, language, parsed(sources), given, made_at, expires_at, parsed(outcome))
