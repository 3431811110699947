"""The judge as a service: submissions become jobs, and each job ends with one verdict."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from fencepost.client import Fencepost
from fencepost.crashpoints import crash_point
from fencepost.errors import Backpressure, InvalidInput, NotFound
from fencepost.jobs.job import Job
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import idempotency
from fencepost.kernel.call import Call, Json
from fencepost.kernel.migrate import require
from fencepost.logs import get_logger
from fencepost.loop import Loop
from fencepost.tracing import with_trace
from fencepost.transaction import Transaction
from fencepost_judge import _contests as contests
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _rejudging as rejudging
from fencepost_judge import _time_limit as time_limit
from fencepost_judge._compatible_names import NAMES
from fencepost_judge._compiling import entry_of
from fencepost_judge._custom_run_executor import FAILED
from fencepost_judge._custom_runs import CustomRuns
from fencepost_judge._direct_path import DirectPath, DirectPathSettings
from fencepost_judge._discovery import JudgeListing, ListedWorker, Load, worker_info
from fencepost_judge._grading import CaseResult
from fencepost_judge._judging import DataAway, Judge, JudgeFault, Judgement
from fencepost_judge._language import read_specs
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._problem import ANSWERS, SCRIPT, Problem
from fencepost_judge._rejudging import Filter, Opened
from fencepost_judge._requeue import (
    leave_to_others,
    log_fields,
    needs_of,
    pass_on,
    repeat_elsewhere,
    wait_for_store,
)
from fencepost_judge._runtime import open_directory, open_judge, open_store
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._submission_watch import Streams, SubmissionWatch, no_submission
from fencepost_judge._test_making import make_tests
from fencepost_judge._verifications import Verifications
from fencepost_judge.packages._reading import ReadProblem, read_problem
from fencepost_judge.sandbox._probing import Report, probe_machine

_log = get_logger(__name__)
QUEUE = "judge"
SYSTEM_ERRORS_KEEP_SECONDS = 7 * 86_400.0
PRUNE_LIMIT = 1000
PRUNE_SECONDS = 60.0
PROGRESS_CASES = 20
PROGRESS_SECONDS = 0.2
DROPPED = "DROPPED"
REJUDGING = "rejudging"
"""The header of a job that judges a submission again."""
IMPORTS_AT_ONCE = 2
INFER_SECONDS = 1800
IMPORTS_MAX = 16
"""Imports in progress and waiting, in one process."""
REJUDGE_MAX = 50_000
FINAL_STATUS = {"TLE": "TIMEOUT", "MLE": "OOM", "SE": "SANDBOX_ERROR"}
"""The job's final status for verdicts whose status differs from the verdict itself."""


def final_status(verdict: str) -> str:
    return FINAL_STATUS.get(verdict, verdict)


class Judging:
    """Submissions, problems, and the worker that judges."""

    def __init__(
        self,
        fp: Fencepost,
        settings: JudgeSettings,
        metrics: JudgeMetrics | None = None,
        *,
        job_settings: JobSettings | None = None,
        direct_settings: DirectPathSettings | None = None,
    ) -> None:
        """`job_settings` are those of `fp` unless given; `direct_settings` may choose the direct path."""
        self.settings = settings
        self.store = open_store(settings)
        self.fp = fp
        self.submission_watch = SubmissionWatch(fp)
        self.streams = Streams(total_max=settings.streams_max, per_user_max=settings.streams_per_user)
        self._metrics = metrics or JudgeMetrics.on(fp.metrics)
        self.job_settings = job_settings or fp.job_settings
        if fp.settings.compatible_names:
            fp.metrics.export_also(NAMES.metrics)
            self.job_settings = self.job_settings.with_defaults(NAMES)
        self._direct: DirectPath | None = None
        if direct_settings is not None and not direct_settings.outbox_enabled:
            self._direct = DirectPath(fp, QUEUE, self.job_settings, direct_settings.payload_ttl_seconds)
        self._judge: Judge | None = None
        # A separate executor: pages and judging use the loop's executor, and must not wait behind packages.
        self._import_threads = ThreadPoolExecutor(IMPORTS_AT_ONCE, thread_name_prefix="judge-import")
        self.imports = 0
        """Packages being imported and waiting."""
        self._elsewhere: dict[str, str] = {}
        self._is_serving = False
        self.verifications = Verifications(
            fp, settings, self._metrics, self.store, QUEUE, self._sitting, self._read
        )
        self.custom_runs = CustomRuns(fp, settings, self._metrics, QUEUE, self._sitting)
        declare = fp.job(QUEUE, kind="judge_submission", tries=settings.tries, lease=settings.lease_seconds)
        self._job = declare(self._run)

    @property
    def languages(self) -> list[str]:
        """The languages of this machine and of the workers last seen; all known ones while no judge is there,
        since any may come."""
        known = [spec.name for spec in read_specs()]
        here = self._judge.languages if self._judge is not None else ()
        return [name for name in known if name in here or name in self._elsewhere] or known

    @property
    def language_versions(self) -> dict[str, str]:
        """What the compilers say of themselves, here or at the worker last seen."""
        if self._judge is None:
            return dict(self._elsewhere)
        return {**self._elsewhere, **{name: one.version for name, one in self._judge.languages.items()}}

    async def submit(
        self,
        problem: str,
        language: str,
        sources: Mapping[str, str],
        *,
        author: str,
        contest: str | None = None,
        key: str | None = None,
        limited: bool = False,
    ) -> int:
        """Create the submission and its job, or neither. The same key again returns the same job and is not
        counted.

        `limited` applies the user's rate limit: raises Backpressure when the user exceeds it.
        """
        self.check_program(language, sources)
        body: Json = {"problem": problem, "language": language, "sources": dict(sources), "author": author}
        # Only when a contest is named: the digests of keys used before contests existed stay the same.
        body |= {"contest": contest} if contest is not None else {}
        scope = f"judge:{author}"
        async with self.fp.transaction() as tx:
            if key is not None:
                claim = await tx.claim(scope, key, digest=idempotency.digest("submit", body))
                if claim.replayed:
                    return int(claim.response["job_id"])
            if limited:
                await tx.run(self.allowance(author))
            languages = await tx.run(judge_calls.languages(problem, language))
            submitted = await self._job.options(headers=needs_of(languages)).submit(tx)
            await tx.run(
                judge_calls.put_submission(submitted.job_id, problem, language, author, sources, contest)
            )
            if key is not None:
                await tx.run(idempotency.remember(scope, key, {"job_id": submitted.job_id}))
            crash_point("judge.submit.before_commit")
        if self._direct is not None:
            task: Json = {"job_id": submitted.job_id, "problem_id": problem, **body}
            await self._direct.deliver(submitted.job_id, task, scope=scope, key=key)
        return submitted.job_id

    def allowance(self, name: str) -> Call[None]:
        """Count one request against the user's rate limit; the call raises when the limit is exceeded."""
        return judge_calls.admit(name, self.settings.submits_per_minute, self.settings.submit_burst)

    async def standing(self, job_id: int) -> judge_calls.SubmissionStanding:
        found = await self.fp.run(judge_calls.get_standings([job_id]))
        if not found:
            raise no_submission(job_id)
        return found[0]

    async def problem(self, slug: str) -> judge_calls.StoredProblem:
        found = await self.fp.run(judge_calls.get_problem(slug))
        if not found:
            raise NotFound(f"There is no problem {slug}.", noun="problem", subject=slug)
        return found[0]

    async def check_shown(self, slug: str) -> None:
        """Raises NotFound for a problem that contestants may not see before its contest begins."""
        if await self.fp.run(contests.hidden([slug])):
            raise NotFound(f"There is no problem {slug}.", noun="problem", subject=slug)

    async def problems(self, after: str | None, limit: int) -> Sequence[judge_calls.ProblemTitle]:
        return await self.fp.run(judge_calls.list_problems(after, limit))

    async def history(
        self, author: str, before: int | None, limit: int
    ) -> Sequence[judge_calls.PastSubmission]:
        return await self.fp.run(judge_calls.get_history(author, before, limit))

    async def workers(self) -> Sequence[ListedWorker]:
        """The listed workers, and the load of each."""
        async with open_directory(self.settings, self.fp) as directory:
            return await directory.workers()

    async def rejudge(self, chosen: Filter, *, reason: str, actor: str) -> Opened:
        """Judge submissions again, beside their standing results, at low priority. All of them, or none."""
        async with self.fp.transaction() as tx:
            found = await tx.run(rejudging.find(chosen, REJUDGE_MAX + 1))
            if not found:
                raise NotFound("No submission fits.", noun="submission", subject="rejudge")
            if len(found) > REJUDGE_MAX:
                raise InvalidInput(
                    f"More than {REJUDGE_MAX} submissions match; select fewer.", field="filter"
                )
            job_ids = await self._submit_again(tx, found)
            generation = await tx.run(rejudging.open_generation(found, job_ids, chosen, reason, actor))
            crash_point("judge.rejudge.before_commit")
        return Opened(generation, len(found))

    async def _submit_again(self, tx: Transaction, submission_ids: Sequence[int]) -> list[int]:
        """The new jobs of submissions, in their order; submitted together where they need the same
        languages."""
        languages = await tx.run(judge_calls.submission_languages(submission_ids))
        headers, again = with_trace({}), dict[int, int]()
        for needed in sorted(set(languages.values())):
            alike = [one for one in submission_ids if languages[one] == needed]
            more = {REJUDGING: True, **needs_of(needed)}
            handler = self._job.options(priority="low", headers={**headers, **more})
            jobs = await handler.submit_many(tx, [{} for _ in alike])
            again |= zip(alike, (job.job_id for job in jobs), strict=True)
        return [again[one] for one in submission_ids]

    async def import_problem(
        self, place: Path, *, slug: str | None = None, time_limit_seconds: float | None = None
    ) -> judge_calls.ProblemTitle:
        """Import a problem. Stores the data first, then the row that names it: a crash in between leaves
        unreferenced data.

        A limit given here, in seconds, overrides the package's. If neither gives one, the jury's solutions
        are run to infer it.
        """
        read = await self._read(place, slug)
        crash_point("judge.import.after_data")
        problem = await self._finished(read, time_limit_seconds)
        self._check_code_limit(problem)
        version = await self.fp.run(judge_calls.put_problem(problem))
        return judge_calls.ProblemTitle(problem.slug, version, problem.title)

    async def _finished(self, read: ReadProblem, seconds: float | None) -> Problem:
        """With the tests and the time limit that the package leaves to be made and measured."""
        if seconds is not None:
            read = replace(read, problem=time_limit.given(read.problem, seconds), timing=None)
        if read.timing is None and read.making is None:
            return read.problem
        try:
            async with asyncio.timeout(INFER_SECONDS), self._some_judge(_undone(read)) as judge:
                made = await make_tests(judge, read, self.store)
                return await time_limit.infer(judge, made, python=self.settings.python)
        except TimeoutError:
            raise InvalidInput(
                f"Running the jury's programs took more than {INFER_SECONDS} s. {time_limit.ASK}",
                field="time_limit",
            ) from None

    @asynccontextmanager
    async def _some_judge(self, why: str) -> AsyncGenerator[Judge]:
        """The judge that is open here, or one opened for the duration of the block. `why` begins refusals."""
        if self._judge is not None:
            yield self._judge
            return
        if self._is_serving:
            raise InvalidInput(
                f"{why}, and this process does not run the jury's programs: it has no role `judge`. Import it"
                f" with `fencepost judge import` on a judge's host. {time_limit.ASK}",
                field="time_limit",
            )
        report = await asyncio.to_thread(probe_machine, cgroup=self.settings.cgroup == "auto")
        if not report.ready:
            raise InvalidInput(
                f"{why}, and the jury's programs cannot be run here: {report.error} {time_limit.ASK}",
                field="time_limit",
            )
        async with open_judge(
            self.settings, self._metrics, self.store, bubblewrap=report.bubblewrap
        ) as judge:
            yield judge

    def _check_code_limit(self, problem: Problem) -> None:
        wanted = (problem.bounds.code_kb or 0) * 1024
        if wanted > self.settings.source_max_bytes:
            raise InvalidInput(
                f"problem.yaml: limits.code allows programs of {wanted} bytes, and the judge takes"
                f" {self.settings.source_max_bytes}. Set JUDGE_SOURCE_MAX_BYTES to {wanted}.",
                field="code",
            )

    async def _read(self, place: Path, slug: str | None) -> ReadProblem:
        """Raises Backpressure when too many packages are being read already."""
        if self.imports >= IMPORTS_MAX:
            raise Backpressure(
                f"{self.imports} packages are being imported already. Import this one when they are done."
            )
        self.imports += 1
        try:
            reading = partial(read_problem, place, self.store, slug=slug)
            return await asyncio.get_running_loop().run_in_executor(self._import_threads, reading)
        finally:
            self.imports -= 1

    async def import_samples(self) -> None:
        """Import the sample problems if there are no problems."""
        if await self.problems(None, 1):
            return
        with as_file(files("fencepost_judge") / "samples") as folder:
            for place in sorted(folder.iterdir()):
                await self.import_problem(place)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve and judge while this is open."""
        async with self.serving(), self.working():
            yield

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """What the API and the pages need. Runs no program."""
        for name in ("accounts", "judge"):
            await asyncio.to_thread(require, self.fp.database_url, name)
        # An embedded database starts with sample problems; a database of the user's own gets nothing unasked.
        if self.fp.settings.database_url is None:
            await self.import_samples()
        self._is_serving = True
        try:
            async with self._looping():
                yield
        finally:
            self._is_serving = False

    @asynccontextmanager
    async def _looping(self) -> AsyncGenerator[None]:
        """The loops of every process: they delete what is old, and read which languages are offered."""
        async with AsyncExitStack() as closing:
            directory = await closing.enter_async_context(open_directory(self.settings, self.fp))

            async def see_languages() -> float:
                alive = [one for one in await directory.workers() if one.state == "alive"]
                self._elsewhere = {name: said for one in alive for name, said in one.languages.items()}
                return self.settings.discovery_lease_seconds / 3

            async def prune_errors() -> float:
                removed = await self.fp.run(
                    judge_calls.prune_system_errors(SYSTEM_ERRORS_KEEP_SECONDS, PRUNE_LIMIT)
                )
                return 0.0 if removed >= PRUNE_LIMIT else PRUNE_SECONDS

            for name, tick in (
                ("judge-custom-runs", self.custom_runs.prune),
                ("judge-languages", see_languages),
                ("judge-errors", prune_errors),
            ):
                loop = Loop(name, tick, self._metrics.loop_errors)
                loop.start()
                closing.push_async_callback(loop.stop)
            yield
        self._elsewhere = {}

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """The work of the role `judge`, inside `serving`. Without a sandbox, submissions wait for a worker
        that has one."""
        report = await asyncio.to_thread(probe_machine, cgroup=self.settings.cgroup == "auto")
        for weakness in report.degraded:
            _log.warning("judge_degraded", why=weakness)
        if not report.ready:
            _log.error("judge_cannot_run", error=report.error, remedy=report.remedy)
            yield
            return
        async with open_judge(
            self.settings, self._metrics, self.store, bubblewrap=report.bubblewrap
        ) as judge:
            self._judge = judge
            try:
                async with self._working(judge, report):
                    yield
            finally:
                self._judge = None

    @asynccontextmanager
    async def _working(self, judge: Judge, report: Report) -> AsyncGenerator[None]:
        # A submission needs one box at a time, an interactive one two: with a higher concurrency jobs would
        # only wait.
        fitting = self.job_settings.model_copy(update={"concurrency": self.settings.slots})
        offers = needs_of(judge.languages)["needs"]
        worker = self.fp.jobs.worker(fitting, queues=[QUEUE], offers=offers, name="judge")
        async with self._listed(worker.owner, judge, report):
            working = asyncio.create_task(worker.run(), name="fencepost-judge")
            try:
                yield
            finally:
                worker.stop()
                await working

    @asynccontextmanager
    async def _listed(self, owner: str, judge: Judge, report: Report) -> AsyncGenerator[None]:
        info = worker_info(
            owner,
            {name: language.version for name, language in judge.languages.items()},
            slots=self.settings.slots,
            sandbox=report.kind,
            degraded=report.degraded,
        )

        def load() -> Load:
            return Load(judge.boxes_busy, judge.running, os.getloadavg()[0])

        async with open_directory(self.settings, self.fp) as directory:
            listing = JudgeListing(
                directory,
                info,
                load,
                self._metrics.listed,
                lease_seconds=self.settings.discovery_lease_seconds,
            )

            loop = Loop("judge-listing", listing.tick, self._metrics.loop_errors)
            loop.start()
            try:
                yield
            finally:
                await loop.stop()
                await listing.leave()

    def _sitting(self) -> Judge:
        assert self._judge is not None, "only a started judge takes jobs"
        return self._judge

    async def _run(self, job: Job) -> None:
        """Judge one submission. A fault of the judge is repeated, elsewhere if another judge is there; when
        the last try fails, the verdict is SE."""
        judge = self._sitting()
        found = await self.fp.run(judge_calls.get_task(job.id))
        if not found:
            # The generation was dropped while the job waited: its verdict is no longer needed.
            async with job.finish(None, final_status=DROPPED):
                return
        task = found[0]
        about = log_fields(job)
        _log.info("judge_claimed", problem=task.problem.slug, language=task.language, **about)
        for language in (task.language, *(one.language for one in task.problem.programs)):
            if language not in (SCRIPT, ANSWERS) and language not in judge.languages:
                await pass_on(self.fp, job, language)
        await leave_to_others(self.fp, job)
        crash_point("judge.before_run")
        began = time.monotonic()
        try:
            judgement = await judge.judge(
                task.problem,
                task.language,
                {name: content.encode() for name, content in task.sources.items()},
                job_id=str(job.id),
                attempt_id=job.attempt,
                progress=_reporting(job, task.problem),
            )
        except (JudgeFault, OSError) as fault:
            if isinstance(fault, DataAway):
                minutes = self.settings.store_wait_minutes
                self._metrics.store_waits.inc()
                await wait_for_store(self.fp, job, str(fault), minutes_max=minutes)
            _log.error("judge_fault", error=str(fault), **about)
            await repeat_elsewhere(self.fp, job, fault, self.settings, self._metrics)
            judgement = Judgement(verdict="SE", message=FAILED)
        crash_point("judge.after_run")
        _log.info(
            "judge_executed",
            seconds=round(time.monotonic() - began, 3),
            tests=len(judgement.cases),
            verdict=judgement.verdict,
            time_ms=judgement.time_ms,
            mem_kb=judgement.mem_kb,
            **about,
        )
        status = final_status(judgement.verdict)
        finishing = time.monotonic()
        async with job.finish(_summary(judgement), final_status=status) as tx:
            kept = await tx.run(judge_calls.put_result(job.id, job.attempt, job.owner, judgement))
            if not kept:
                await _say_what_stands(job, tx)
            crash_point("judge.after_result")
        self._metrics.finish_seconds.observe(time.monotonic() - finishing)
        if self._direct is not None:
            await self._direct.forget(job.id)
        if not kept:
            _log.warning("judge_result_not_kept", verdict=judgement.verdict, **about)
            return
        _log.info("judge_written", verdict=judgement.verdict, final_status=status, **about)
        self._metrics.verdicts.labels(verdict=judgement.verdict).inc()
        if REJUDGING not in job.headers:
            waited = (datetime.now(UTC) - job.submitted_at).total_seconds()
            self._metrics.verdict_seconds.observe(max(0.0, waited))

    def check_program(self, language: str, sources: Mapping[str, str]) -> None:
        """Raises when the program cannot be judged here."""
        if language != ANSWERS and language not in self.languages:
            raise InvalidInput(
                f"{language!r} is not offered; there is {', '.join(self.languages)}.", field="language"
            )
        size = sum(len(content.encode("utf-8", "surrogatepass")) for content in sources.values())
        if not any(content.strip() for content in sources.values()):
            raise InvalidInput("The program is empty: there is nothing to judge.", field="code")
        if size > self.settings.source_max_bytes:
            raise InvalidInput(
                f"The program has {size} bytes; allowed are 1 to {self.settings.source_max_bytes}.",
                field="code",
            )
        if language == ANSWERS:
            return
        entry_of(next(spec for spec in read_specs() if spec.name == language), sources)


def _undone(read: ReadProblem) -> str:
    return "The package gives no time limit" if read.making is None else "The package does not hold all tests"


def _reporting(job: Job, problem: Problem) -> Any:
    told_at = 0.0
    secret = (case.name for case in problem.data.all_cases() if not case.sample)
    numbers = {name: place for place, name in enumerate(secret, 1)}

    async def report(results: Sequence[CaseResult], count: int) -> None:
        """Reports the latest results, at most once in PROGRESS_SECONDS: each report is a commit of its
        own."""
        nonlocal told_at
        now = time.monotonic()
        if now - told_at < PROGRESS_SECONDS:
            return
        told_at = now
        latest = [
            {
                "name": one.name[:100],
                # Contestants see the number in the place of a secret test's name.
                "number": numbers.get(one.name),
                "verdict": one.verdict,
                "time_ms": one.time_ms,
                "mem_kb": one.mem_kb,
            }
            for one in results[-PROGRESS_CASES:]
        ]
        await job.progress({"done": len(results), "total": count, "latest": latest})

    return report


async def _say_what_stands(job: Job, tx: Transaction) -> None:
    """Finish the job with the standing result, or as dropped, since its own result came too late."""
    standing = await tx.run(judge_calls.get_standing(job.id))
    if standing:
        job.finish_as(_summary(standing[0]), final_status=final_status(standing[0].verdict))
    else:
        job.finish_as(None, final_status=DROPPED)


def _summary(judgement: Judgement | judge_calls.Stands) -> Json:
    return {
        "verdict": judgement.verdict,
        "score": judgement.score,
        "time_ms": judgement.time_ms,
        "mem_kb": judgement.mem_kb,
    }
