"""Workflows beside their peers, and what peers do not have: children by the thousand, and many that sleep.

Durable commits, without Redis. The first table has each library in a worker process of its own, by the same
roles; the goals are ratios to the best peer of the same run. Children and sleepers are measured with the
worker in this process. Commits are those of the whole server, the worker's own loops included.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench import workflow_peers
from bench.bench_server import migrated_database, server_facts
from bench.jobs_env import Servers, servers
from bench.report import Goal, Report, Row, machine
from fencepost import ChildJob, Fencepost, Job, Workflow, WorkflowHandler
from fencepost.embedded import Database
from fencepost.jobs.settings import JobSettings

TAKEOVER_SECONDS = workflow_peers.LEASE_SECONDS + 2.0


@dataclass(frozen=True, slots=True)
class WorkflowsLength:
    workflows: int
    beside: int
    """Workflows of each library in the first table."""
    alone: int
    zombies: bool
    children: int
    sleepers: int


QUICK = WorkflowsLength(workflows=1000, beside=100, alone=20, zombies=False, children=2000, sleepers=50_000)
WHOLE = WorkflowsLength(
    workflows=5000, beside=3000, alone=200, zombies=True, children=10_000, sleepers=1_000_000
)


def run(*, quick: bool) -> Report:
    length = QUICK if quick else WHOLE
    with servers() as pair:
        rows, goals = _beside_peers(pair, length, quick=quick)
    with migrated_database() as database:
        facts = machine(**server_facts(database))
        more_rows, more_goals = asyncio.run(_measure(database, length))
    return Report("workflows", quick, [*rows, *more_rows], [*goals, *more_goals], facts)


def _beside_peers(pair: Servers, length: WorkflowsLength, *, quick: bool) -> tuple[list[Row], list[Goal]]:
    """All libraries, one after another; a short run installs nothing."""
    peers = workflow_peers.STRANGE_WORKFLOWS
    taking_part = [peer for peer in peers if peer.ready] if quick else list(peers)
    ours, *others = (
        workflow_peers.measure(pair, peer, length.beside, length.alone)
        for peer in (workflow_peers.OURSELVES, *taking_part)
    )
    killed = workflow_peers.takeover_seconds(pair, "killed")
    frozen = workflow_peers.takeover_seconds(pair, "frozen")
    rows = [one.row() for one in (ours, *others)]
    rows.append({"work": "five steps of one statement each", "per_second": ours.writes_per_second})
    rows += [
        {"library": peer.title, "not measured": "not installed: a whole run installs it"}
        for peer in peers
        if peer not in taking_part
    ]
    if length.zombies:
        rows += [workflow_peers.zombie_row(pair, peer) for peer in (workflow_peers.OURSELVES, *taking_part)]
    goals = [
        Goal("one workflow of five steps alone, p50 ms", ours.alone_ms, 10, at_most=True),
        Goal("commits a step, with a row", ours.row_commits, 1.2, at_most=True),
        Goal("commits a step, without", ours.trivial_commits, 0.1, at_most=True),
        Goal("takeover after kill -9 in a step, seconds", killed, TAKEOVER_SECONDS, at_most=True),
        Goal("takeover from a frozen open transaction, seconds", frozen, TAKEOVER_SECONDS, at_most=True),
    ]
    best_rows = workflow_peers.best(others, "rows_per_second")
    best_atomic = workflow_peers.best((one for one in others if one.peer.name == "dbos"), "rows_per_second")
    best_trivial = workflow_peers.best(others, "trivial_per_second")
    if best_rows and best_trivial:
        goals += [
            Goal("five steps with a row each, times the best peer", ours.rows_per_second / best_rows, 5),
            Goal(
                "five steps with a row each, times DBOS, whose row commits with its step too",
                ours.rows_per_second / best_atomic if best_atomic else 0.0,
                5,
            ),
            Goal(
                "five steps of one statement each, times the best peer with a row each",
                ours.writes_per_second / best_rows,
                5,
            ),
            Goal("five trivial steps, times the best peer", ours.trivial_per_second / best_trivial, 5),
        ]
    return rows, goals


async def _measure(database: Database, length: WorkflowsLength) -> tuple[list[Row], list[Goal]]:
    fp = Fencepost(database.url)
    entrants = _declare(fp)
    async with fp:
        trivial = await _median_throughput(fp, database, entrants.trivial, length.workflows)
        plain = await _plain(fp, database, entrants.job, length.children)
        fan_out = await _fan_out(fp, entrants.parent, length.children)
        await asyncio.to_thread(_put_to_sleep, database, length.sleepers)
        beside = await _median_throughput(fp, database, entrants.trivial, length.workflows)
    rows: list[Row] = [
        {"work": "five trivial steps", "per_second": trivial},
        {"work": f"{length.children} plain jobs", "per_second": plain},
        {"work": f"{length.children} children and back", "per_second": fan_out},
        {"work": f"five trivial steps beside {length.sleepers} sleepers", "per_second": beside},
    ]
    goals = [
        Goal("children and back, of plain jobs", fan_out / plain, 0.5),
        Goal("beside sleepers, of without", beside / trivial, 0.95),
    ]
    return rows, goals


@dataclass(frozen=True, slots=True)
class Entrants:
    trivial: WorkflowHandler[[], None]
    parent: WorkflowHandler[[int], int]
    job: Any


def _declare(fp: Fencepost) -> Entrants:
    async def nothing(step: int) -> int:
        return step

    @fp.workflow("trivial")
    async def trivial(wf: Workflow) -> None:
        for step in range(workflow_peers.STEPS):
            await wf.options(key=step).step(nothing, step)

    @fp.job("children")
    async def job(job: Job, number: int) -> int:
        return number

    @fp.workflow("parents")
    async def parent(wf: Workflow, count: int) -> int:
        results = await wf.gather(*(ChildJob.of(job.submission(number=number)) for number in range(count)))
        return len(results)

    return Entrants(trivial, parent, job)


@asynccontextmanager
async def _working(fp: Fencepost) -> AsyncGenerator[None]:
    worker = fp.jobs.worker(JobSettings(concurrency=200, poll_seconds=0.02))
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def _median_throughput(
    fp: Fencepost, database: Database, workflow: WorkflowHandler[[], None], count: int
) -> float:
    """Of three runs: two that are compared differ by a tenth on a machine that does something else too."""
    return median([await _throughput(fp, database, workflow, count) for _ in range(3)])


async def _throughput(
    fp: Fencepost, database: Database, workflow: WorkflowHandler[[], None], count: int
) -> float:
    async with fp.transaction() as tx:
        nothing: dict[str, Any] = {}
        await workflow.handler.submit_many(tx, [nothing] * count)
    began = time.perf_counter()
    async with _working(fp):
        await asyncio.to_thread(_until_gone, database, workflow.handler.queue)
        return count / (time.perf_counter() - began)


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
    """Workflows that sleep for a year, in the same queue. What autovacuum and the checkpointer would do about
    so many new rows is done before anything is measured."""
    with database.connect_admin() as owner:
        for _ in range(max(1, count // 50_000)):
            owner.execute(
                """select count(*) from fencepost.job_submit_many('trivial/trivial@1', 'trivial@1',
                     array(select '{}'::jsonb from generate_series(1, %s)),
                     p_run_at => fencepost.clock() + interval '1 year')""",
                (min(count, 50_000),),
            )
        owner.execute("vacuum analyze")
        owner.execute("checkpoint")
