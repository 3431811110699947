"""A worker that stands still inside a step until a successor has finished the workflow changes nothing."""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from fencepost import ChildJob, Fencepost, Job, Transaction, Workflow, WorkflowHandler, crashpoints
from fencepost.embedded import Database
from fencepost.embedded._database import SERVICE
from fencepost.settings import Settings
from fencepost.testing import Clock
from tests.integration.jobs.harness import JobHarness, quick

LEASE_SECONDS = 90.0


async def price(order_id: int) -> int:
    return order_id


async def reserve(tx: Transaction, job_id: int) -> None:
    await tx.execute("insert into effect (job_id, note) values (%s, 'reserved')", (job_id,))


async def announce(tx: Transaction, job_id: int) -> None:
    await tx.execute("insert into effect (job_id, note) values (%s, 'announced')", (job_id,))


def declare(fp: Fencepost) -> WorkflowHandler[[int], int]:
    @fp.job("packing")
    async def pack(job: Job, line: int) -> None: ...

    @fp.workflow("orders", lease=LEASE_SECONDS)
    async def fulfil(wf: Workflow, order_id: int) -> int:
        cents = await wf.step(price, order_id)
        await wf.transaction(reserve, wf.id)
        await wf.write(("insert into effect (job_id, note) values (%s, 'noted')", (wf.id,)))
        await wf.gather(ChildJob.of(pack.submission(line=1)))
        await wf.sleep(0)
        await wf.transaction(announce, wf.id)
        return cents

    return fulfil


class Zombie:
    """A worker in a thread of its own. It stops dead at a point, and goes on when the test says so."""

    def __init__(self, database: Database, point: str) -> None:
        self._database = database
        self._point = point
        self.stopped, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()))
        self._leave: Callable[[], object] = lambda: None

    @contextmanager
    def working(self) -> Generator[None]:
        def watch(name: str) -> None:
            if (
                name == self._point
                and threading.current_thread() is self._thread
                and not self.stopped.is_set()
            ):
                self.stopped.set()
                self.go_on.wait(60)

        with crashpoints.watching(watch):
            self._thread.start()
            try:
                yield
            finally:
                self.go_on.set()
                self._leave()
                self._thread.join(60)

    async def _work(self) -> None:
        settings = Settings(listen_database_url=self._database.server.url(self._database.name, SERVICE))
        async with Fencepost(self._database.url, settings=settings) as fp:
            fulfil = declare(fp)
            # Nothing tells it that its lease is over: only the database refuses it. It leaves the child to
            # its successor: a claim under way when the clock moved would hold the child for a new lease.
            worker = fp.jobs.worker(
                quick(reclaim_interval_seconds=60, lease_seconds=90, heartbeat_seconds=30),
                queues=[fulfil.queue],
            )
            loop = asyncio.get_running_loop()
            self._leave = lambda: loop.call_soon_threadsafe(worker.stop)
            await worker.run()


POINTS = [
    "workflow.steps.before_commit",
    "workflow.steps.after_commit",
    "workflow.step.before_fence",
    "workflow.step.after_fence",
    "workflow.step.before_commit",
    "workflow.step.after_commit",
    "jobs.group.before_fence",
    "jobs.group.after_fence",
    "jobs.group.before_commit",
    "jobs.group.after_commit",
    "workflow.spawn.before_commit",
    "workflow.spawn.after_commit",
    "workflow.park.before_commit",
    "workflow.park.after_commit",
]


async def overtake(harness: JobHarness, clock: Clock, database: Database, point: str) -> list[Any]:
    """A zombie stops at the point; its successor finishes the workflow; the zombie goes on. What is left."""
    fulfil = declare(harness.fp)
    zombie = Zombie(database, point)
    with zombie.working():
        async with harness.fp.transaction() as tx:
            job_id = (await fulfil.start(tx, 7)).job_id
        assert await asyncio.to_thread(zombie.stopped.wait, 60), f"{point} was not reached"
        await asyncio.to_thread(clock.advance, LEASE_SECONDS + 1)
        async with harness.working():
            assert await fulfil.result(job_id, within=60) == 7
    notes = harness.rows("select note from effect where job_id = %s order by id", (job_id,))
    children = harness.value("select count(*) from fencepost.job where queue = 'packing'")
    return [[note for (note,) in notes], children, harness.job(job_id).state]


@pytest.mark.parametrize("point", POINTS)
async def test_a_zombie_changes_nothing(
    harness: JobHarness, clock: Clock, database: Database, point: str
) -> None:
    notes = ["reserved", "noted", "announced"]
    assert await overtake(harness, clock, database, point) == [notes, 1, "finished"]


async def test_without_its_fence_a_zombie_reserves_twice(
    harness: JobHarness, clock: Clock, database: Database
) -> None:
    """The same, with the fence planted away: the test would see it."""
    harness.execute("""
        create or replace function fencepost.job_fence(p_id bigint, p_attempt bigint, p_owner text)
        returns void language sql volatile security definer as $$ select $$;
        create or replace function fencepost.step_commit(
          p_id bigint, p_attempt bigint, p_owner text, p_name text, p_digest text,
          p_result jsonb default null, p_undo jsonb default null
        ) returns void language sql volatile security definer as $$
          insert into fencepost.workflow_step (job_id, name, what, attempt, digest, result, at)
          values (p_id, p_name, 'step', p_attempt, p_digest, p_result, fencepost.clock())
          on conflict do nothing $$
    """)

    left = await overtake(harness, clock, database, "workflow.step.before_fence")

    assert left[0].count("reserved") == 2


async def test_without_the_fence_of_many_a_zombie_notes_twice(
    harness: JobHarness, clock: Clock, database: Database
) -> None:
    harness.execute("""
        create or replace function fencepost.job_fence_all(p_ids bigint[], p_attempts bigint[], p_owner text)
        returns void language sql volatile security definer as $$ select $$;
        create or replace function fencepost.step_commit_all(
          p_ids bigint[], p_attempts bigint[], p_owner text, p_names text[], p_digests text[],
          p_results jsonb[] default null, p_undos jsonb[] default null
        ) returns void language sql volatile security definer as $$
          insert into fencepost.workflow_step (job_id, name, what, attempt, digest, at)
          select i, n, 'step', t, d, fencepost.clock()
          from unnest(p_ids, p_names, p_attempts, p_digests) u (i, n, t, d)
          on conflict do nothing $$
    """)

    left = await overtake(harness, clock, database, "jobs.group.before_fence")

    assert left[0].count("noted") == 2
