"""The online judge: workers that are killed while they judge, and that also set exams, submit and rejudge.

An exam is a problem of its own with two programs with known verdicts: the problem is imported, the programs
are submitted with a key each, and both are rejudged. Every step is repeated until its caller is told that it
is done.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from fencepost import Fencepost, FencepostError
from fencepost.embedded._errors import BinaryMissingError
from fencepost.jobs.settings import JobSettings
from fencepost.kernel.migrate import component
from fencepost.logs import configure_logging
from fencepost.testing import Breach
from fencepost_judge import _service as service
from fencepost_judge._language import find_languages, read_specs
from fencepost_judge._rejudging import Filter
from fencepost_judge._settings import JudgeSettings
from fencepost_judge.sandbox._probing import probe_machine
from fencepost_torture._child_setup import PATIENT, told_to_end
from fencepost_torture._operation_log import OperationLog
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment
from fencepost_torture.systems._judge_checker import NOTES, PROGRAMS, Exam, JudgeChecker
from fencepost_torture.systems._judge_leftovers import LeftoverScan

# Asking its compiler for the version takes a hundredth of the time of asking Python, and such a program takes
# half of the CPU time in all.
LANGUAGE = "c"
# A worker that is killed has not failed: no submission is abandoned for how often its workers died.
TRIES = 1000
IDLE_SECONDS = 0.05
LISTED_SECONDS = 3
STREAM = "fencepost:{torture-judge}"
"""Our own stream: the systems of a run share one Redis, and another system has jobs too."""

SCHEMA: LiteralString = """
    create table exam (id bigint primary key, place int not null);
    create index on exam (place, id);
    create table told (exam bigint, step text, answer bigint not null, primary key (exam, step));
    grant select, insert on exam, told to fencepost_app;
"""
ASK: LiteralString = """
    insert into exam select n, n %% %(places)s from generate_series(%(first)s::bigint, %(last)s::bigint) n
    on conflict do nothing
"""
NEXT: LiteralString = """
    select e.id from exam e where e.place = %s and e.id > %s
    and not exists (select from told t where t.exam = e.id and t.step = 'rejudge') order by e.id limit 1
"""
TOLD: LiteralString = "select step, answer from told where exam = %s"
TELL: LiteralString = "insert into told values (%s, %s, %s) on conflict do nothing"
# A rejudging whose caller died before the answer is one more than was asked for.
DONE: LiteralString = """
    select (select count(*) from verdict where generation = 0)
         + (select count(*) from verdict v join told t on t.step = 'rejudge' and t.answer = v.generation)
"""
OPEN: LiteralString = """
    select count(*) from job_made j where not exists (select from finishing f where f.job_id = j.job_id)
"""


class JudgeSystem:
    """Workers of the judge, each with a caller of its own."""

    name = "judge"
    processes = 3
    uses_redis = True
    bears_clock_jumps = True
    # A judging takes as much CPU time as a hundred jobs: no more than is done in a few seconds.
    open_max = 60
    points = (
        "judge.import.after_data",
        "judge.submit.before_commit",
        "judge.rejudge.before_commit",
        "judge.before_run",
        "judge.after_run",
        "judge.after_result",
    )

    def load(self) -> None:
        """What is imported at its first use would be imported by each process."""
        for late in ("fencepost.jobs._worker", "fencepost.jobs._process_pool"):
            import_module(late)
        read_specs()
        component("judge")

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        _require_sandbox()
        with env.database.connect_admin() as admin:
            admin.execute(SCHEMA)
            admin.execute(NOTES)
        self._asked: list[Exam] = []
        self._leftovers = LeftoverScan(env.directory)
        (env.directory / "tmp").mkdir()
        yield {"folder": str(env.directory)}

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        tempfile.tempdir = str(Path(task.more["folder"]) / "tmp")
        asyncio.run(_serve(task))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        first = turn * self.processes
        exams = [Exam(number) for number in range(first, first + self.processes)]
        for exam in exams:
            exam.write(env.directory)
        env.insist(lambda: self._request(env, exams))
        self._asked += exams

    def _request(self, env: SystemEnvironment, exams: list[Exam]) -> None:
        with env.asking() as connection:
            facts = {"first": exams[0].number, "last": exams[-1].number, "places": self.processes}
            connection.execute(ASK, facts)

    def account(self, env: SystemEnvironment) -> Account:
        judgings = 2 * sum(len(exam.programs) for exam in self._asked)
        return Account(judgings, int(env.value(DONE)))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        yield from JudgeChecker(env, self._asked).judge()
        yield from self._leftovers.of_everybody()

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        if jobs := env.value(OPEN):
            yield Breach("left behind", "submissions", f"{jobs} are not judged")
        yield from env.entries_left(STREAM)
        yield from self._leftovers.of_the_dead()


def _require_sandbox() -> None:
    """Without a sandbox, submissions would wait for a worker that has one."""
    report = probe_machine()
    if not report.ready:
        raise BinaryMissingError("\n".join(report.lines()))
    if not find_languages(spec for spec in read_specs() if spec.name == LANGUAGE):
        raise BinaryMissingError("There is no C compiler for the programs of the exams. Install one: gcc.")


async def _serve(task: ProcessTask) -> None:
    stop = told_to_end()
    folder = Path(task.more["folder"])
    # With a database URL it is a deployment of its own, which gets no sample problems.
    settings = PATIENT.model_copy(update={"database_url": task.database_url})
    fp = Fencepost(
        task.database_url,
        redis_url=task.redis_url,
        settings=settings,
        job_settings=_job_settings(task.lease_seconds),
    )
    judging = service.Judging(
        fp,
        JudgeSettings(
            slots=2,
            parallel_tests=1,
            languages=LANGUAGE,
            store=folder / "store",
            workspace=folder / "workspace",
            discovery_lease_seconds=LISTED_SECONDS,
            lease_seconds=task.lease_seconds,
            tries=TRIES,
            # All judges of a run are one host, and no person would enable it again.
            errors_in_a_row=0,
            errors_share=0,
        ),
    )
    async with fp:
        caller = JudgeCaller(judging, task, stop)
        async with asyncio.TaskGroup() as group:
            # The caller does not wait until a judge runs.
            group.create_task(caller.work())
            async with judging.running():
                await stop.wait()


def _job_settings(lease_seconds: float) -> JobSettings:
    return JobSettings(
        stream_key=STREAM,
        stream_group=STREAM,
        lease_seconds=lease_seconds,
        heartbeat_seconds=lease_seconds / 5,
        poll_seconds=0.2,
        sweep_interval_seconds=0.3,
        reclaim_interval_seconds=0.3,
        reclaim_grace_seconds=0.2,
        drain_seconds=5,
        batch=10,
    )


class JudgeCaller:
    """Sets the exams of its place, one by one, and repeats each step until it is told that it is done."""

    def __init__(self, judging: service.Judging, task: ProcessTask, stop: asyncio.Event) -> None:
        self._judging = judging
        self._fp = judging.fp
        self._task = task
        self._stop = stop
        self._operation_log = OperationLog(Path(task.operation_log), f"caller-{task.boot}")
        self._orders = 0

    async def work(self) -> None:
        last = -1
        while not self._stop.is_set():
            # After any error the same again: steps that were answered already are not repeated.
            with suppress(FencepostError, psycopg.Error, TimeoutError):
                exam = await self._next(last)
                if exam is not None:
                    await self._hold(exam)
                    last = exam.number
                    continue
            await asyncio.sleep(IDLE_SECONDS)

    async def _next(self, last: int) -> Exam | None:
        async with self._fp.transaction() as tx:
            row = await (await tx.execute(NEXT, (self._task.place, last))).fetchone()
        return row and Exam(row[0])

    async def _hold(self, exam: Exam) -> None:
        async with self._fp.transaction() as tx:
            told = dict(await (await tx.execute(TOLD, (exam.number,))).fetchall())
        if "import" not in told:
            version, *_ = await asyncio.gather(*(self._import(exam) for _ in range(exam.copies)))
            await self._tell(exam, "import", version)
        for program in exam.programs:
            if program not in told:
                copies = (self._submit(exam, program) for _ in range(exam.copies))
                told[program], *_ = await asyncio.gather(*copies)
                await self._tell(exam, program, told[program])
        await self._tell(exam, "rejudge", await self._rejudge(exam, [told[name] for name in exam.programs]))

    async def _tell(self, exam: Exam, step: str, answer: int) -> None:
        async with self._fp.transaction() as tx:
            await tx.execute(TELL, (exam.number, step, answer))

    async def _import(self, exam: Exam) -> int:
        operation = self._operation_log.begin("import", exam.slug)
        place = exam.place(Path(self._task.more["folder"]))
        imported = await self._judging.import_problem(place, slug=exam.slug)
        self._operation_log.end(operation, imported.version)
        return imported.version

    async def _submit(self, exam: Exam, program: str) -> int:
        key = exam.key(program)
        operation = self._operation_log.begin("submit", key)
        sources = {"main.c": PROGRAMS[program].source}
        job_id = await self._judging.submit(exam.slug, LANGUAGE, sources, author=key, key=key)
        self._operation_log.end(operation, job_id)
        return job_id

    async def _rejudge(self, exam: Exam, submissions: list[int]) -> int:
        """A rejudge order has no idempotency key: each is a new one, identified by its reason."""
        self._orders += 1
        reason = f"{exam.slug} by {self._task.boot}.{self._orders}"
        operation = self._operation_log.begin("rejudge", reason, exam=exam.number, submissions=submissions)
        chosen = Filter(submissions=submissions)
        opened = await self._judging.rejudge(chosen, reason=reason, actor="torture")
        self._operation_log.end(operation, [opened.generation, opened.submissions])
        return opened.generation


JUDGE = JudgeSystem
