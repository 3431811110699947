"""Workflows a second on one worker: steps with a row of their own, trivial steps, one alone, children, and
the same beside many that sleep.

Durable commits, without Redis, the worker in this process. A commit is counted by the server, those of the
worker's own loops included.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.bench_server import migrated_database, server_facts
from bench.report import Goal, Report, Row, machine
from fencepost import ChildJob, Fencepost, Job, Transaction, Workflow, WorkflowHandler
from fencepost.embedded import Database
from fencepost.jobs.settings import JobSettings

STEPS = 5
BEST_WITH_ROWS = 42.0
"""DBOS with transactions, measured on a machine of this size; likewise the figures below."""
BEST_TRIVIAL = 199.0


@dataclass(frozen=True, slots=True)
class WorkflowsLength:
    workflows: int
    alone: int
    children: int
    sleepers: int


QUICK = WorkflowsLength(workflows=1000, alone=50, children=2000, sleepers=50_000)
WHOLE = WorkflowsLength(workflows=5000, alone=300, children=10_000, sleepers=1_000_000)


def run(*, quick: bool) -> Report:
    length = QUICK if quick else WHOLE
    with migrated_database() as database:
        facts = machine(**server_facts(database))
        rows, goals = asyncio.run(_measure(database, length))
    return Report("workflows", quick, rows, goals, facts)


@dataclass(frozen=True, slots=True)
class Measured:
    per_second: float
    commits_a_step: float


async def _measure(database: Database, length: WorkflowsLength) -> tuple[list[Row], list[Goal]]:
    with database.connect_admin() as owner:
        owner.execute("create table effect (workflow bigint, step integer)")
        owner.execute("grant insert on effect to fencepost_app")
    fp = Fencepost(database.url)
    entrants = _declare(fp)
    async with fp:
        with_rows = await _throughput(fp, database, entrants.with_rows, length.workflows)
        trivial = await _throughput(fp, database, entrants.trivial, length.workflows)
        alone_ms = await _alone(fp, entrants.trivial, length.alone)
        plain = await _plain(fp, database, entrants.job, length.children)
        fan_out = await _fan_out(fp, entrants.parent, length.children)
        await asyncio.to_thread(_put_to_sleep, database, length.sleepers)
        beside = await _throughput(fp, database, entrants.trivial, length.workflows)
    rows: list[Row] = [
        {
            "work": "five steps with a row each",
            "per_second": with_rows.per_second,
            "commits_a_step": with_rows.commits_a_step,
        },
        {
            "work": "five trivial steps",
            "per_second": trivial.per_second,
            "commits_a_step": trivial.commits_a_step,
        },
        {"work": "five trivial steps, alone, p50 ms", "per_second": alone_ms, "commits_a_step": 1},
        {"work": f"{length.children} plain jobs", "per_second": plain, "commits_a_step": 0},
        {"work": f"{length.children} children and back", "per_second": fan_out, "commits_a_step": 0},
        {
            "work": f"five trivial steps beside {length.sleepers} sleepers",
            "per_second": beside.per_second,
            "commits_a_step": beside.commits_a_step,
        },
    ]
    goals = [
        Goal("five steps with a row each, times the best peer", with_rows.per_second / BEST_WITH_ROWS, 5),
        Goal("five trivial steps, times the best peer", trivial.per_second / BEST_TRIVIAL, 5),
        Goal("one workflow of five steps alone, p50 ms", alone_ms, 10, at_most=True),
        Goal("commits a step, with a row", with_rows.commits_a_step, 1.2, at_most=True),
        Goal("commits a step, without", trivial.commits_a_step, 0.1, at_most=True),
        Goal("children and back, of plain jobs", fan_out / plain, 0.5),
        Goal("beside sleepers, of without", beside.per_second / trivial.per_second, 0.95),
    ]
    return rows, goals


@dataclass(frozen=True, slots=True)
class Entrants:
    with_rows: WorkflowHandler[[], None]
    trivial: WorkflowHandler[[], None]
    parent: WorkflowHandler[[int], int]
    job: Any


def _declare(fp: Fencepost) -> Entrants:
    async def write(tx: Transaction, workflow: int, step: int) -> None:
        await tx.execute("insert into effect values (%s, %s)", (workflow, step))

    async def nothing(step: int) -> int:
        return step

    @fp.workflow("rows")
    async def with_rows(wf: Workflow) -> None:
        for step in range(STEPS):
            await wf.options(key=step).transaction(write, wf.id, step)

    @fp.workflow("trivial")
    async def trivial(wf: Workflow) -> None:
        for step in range(STEPS):
            await wf.options(key=step).step(nothing, step)

    @fp.job("children")
    async def job(job: Job, number: int) -> int:
        return number

    @fp.workflow("parents")
    async def parent(wf: Workflow, count: int) -> int:
        results = await wf.gather(*(ChildJob.of(job.submission(number=number)) for number in range(count)))
        return len(results)

    return Entrants(with_rows, trivial, parent, job)


@asynccontextmanager
async def _working(fp: Fencepost) -> AsyncGenerator[None]:
    worker = fp.jobs.worker(JobSettings(concurrency=200, poll_seconds=0.02))
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def _throughput(
    fp: Fencepost, database: Database, workflow: WorkflowHandler[[], None], count: int
) -> Measured:
    async with fp.transaction() as tx:
        nothing: dict[str, Any] = {}
        await workflow.handler.submit_many(tx, [nothing] * count)
    before = _commits(database)
    began = time.perf_counter()
    async with _working(fp):
        await asyncio.to_thread(_until_gone, database, workflow.handler.queue)
        seconds = time.perf_counter() - began
    # The server tells its figures up to a second late.
    await asyncio.sleep(1.5)
    return Measured(count / seconds, (_commits(database) - before) / (count * STEPS))


async def _alone(fp: Fencepost, workflow: WorkflowHandler[[], None], count: int) -> float:
    took: list[float] = []
    async with _working(fp):
        for _ in range(count):
            began = time.perf_counter()
            async with fp.transaction() as tx:
                started = await workflow.start(tx)
            await workflow.result(started)
            took.append((time.perf_counter() - began) * 1000)
    return median(took)


async def _plain(fp: Fencepost, database: Database, job: Any, count: int) -> float:
    began = time.perf_counter()
    async with _working(fp):
        async with fp.transaction() as tx:
            await job.submit_many(tx, [{"number": number} for number in range(count)])
        await asyncio.to_thread(_until_gone, database, "children")
        return count / (time.perf_counter() - began)


async def _fan_out(fp: Fencepost, parent: WorkflowHandler[[int], int], count: int) -> float:
    began = time.perf_counter()
    async with _working(fp):
        async with fp.transaction() as tx:
            started = await parent.start(tx, count)
        assert await parent.result(started, within=600) == count, "a child is missing"
        return count / (time.perf_counter() - began)


def _until_gone(database: Database, queue: str) -> None:
    """Until nothing of the queue is due or runs. Polls ten times a second, on a connection of its own."""
    with database.connect_admin() as owner:
        while True:
            row = owner.execute(
                """select exists (select 1 from fencepost.job_waiting w
                                  where hashtext(w.queue) = hashtext(%(q)s) and w.queue = %(q)s
                                    and w.run_at <= fencepost.clock() + interval '1 hour')
                     or exists (select 1 from fencepost.job_running r where r.queue = %(q)s)""",
                {"q": queue},
            ).fetchone()
            if row == (False,):
                return
            time.sleep(0.1)


def _put_to_sleep(database: Database, count: int) -> None:
    """Workflows that sleep for a year, in the same queue."""
    with database.connect_admin() as owner:
        for _ in range(max(1, count // 50_000)):
            owner.execute(
                """select count(*) from fencepost.job_submit_many('trivial/trivial@1', 'trivial@1',
                     array(select '{}'::jsonb from generate_series(1, %s)),
                     p_run_at => fencepost.clock() + interval '1 year')""",
                (min(count, 50_000),),
            )


def _commits(database: Database) -> int:
    with database.connect_admin() as owner:
        row = owner.execute(
            "select xact_commit from pg_stat_database where datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])
