"""A workflow that crashes or stands still at any point of any step leaves what one leaves that does not."""

from datetime import timedelta
from typing import Any

import pytest

from fencepost import ChildJob, Job, SyncWorkflow, Transaction, Workflow
from fencepost.jobs.retry_policy import Retry, Verdict
from fencepost.testing import (
    Clock,
    EffectsDiffer,
    KitError,
    crash_everywhere,
    stubbed_steps,
    workflow_harness,
)
from tests.integration.jobs.harness import JobHarness


def at_once(tries: int, error: Exception) -> Verdict:
    return Retry(0)


async def reserve(tx: Transaction, job_id: int) -> str:
    await tx.execute("insert into effect (job_id, note) values (%s, 'reserved')", (job_id,))
    return "reserved"


async def ship(tx: Transaction, job_id: int, parts: list[int]) -> None:
    await tx.execute("insert into effect (job_id, note) values (%s, %s)", (job_id, f"shipped {parts}"))


async def price(order_id: int) -> int:
    return order_id * 100


def declare(harness: JobHarness) -> Any:
    @harness.fp.job("packing")
    async def pack(job: Job, line: int) -> int:
        return line + 1

    @harness.fp.workflow("orders", retry=at_once, tries=10)
    async def fulfil(wf: Workflow, order_id: int) -> int:
        cents = await wf.step(price, order_id)
        await wf.transaction(reserve, wf.id)
        await wf.write(("insert into effect (job_id, note) values (%s, 'noted')", (wf.id,)))
        await wf.event("approve", timeout=timedelta(days=2))
        parts = await wf.gather(*(ChildJob.of(pack.submission(line=line)) for line in range(2)))
        await wf.sleep(timedelta(hours=1))
        await wf.transaction(ship, wf.id, parts)
        return cents

    return fulfil


def effects(harness: JobHarness, job_id: int) -> Any:
    notes = harness.rows("select note from effect where job_id = %s order by id", (job_id,))
    children = harness.rows("select count(*) from fencepost.job where queue = 'packing'")
    ended = harness.rows("select state, result from fencepost.jobs where job_id = %s", (job_id,))
    steps = harness.rows("select name from fencepost.workflow_steps where job_id = %s order by 1", (job_id,))
    harness.execute("delete from fencepost.job where queue = 'packing'")
    return [notes, children, ended, steps]


async def test_nothing_is_lost_and_nothing_doubled(harness: JobHarness, clock: Clock) -> None:
    fulfil = declare(harness)
    async with workflow_harness(harness.fp, clock, events={"approve": True}) as under_test:
        report = await crash_everywhere(
            under_test, lambda: fulfil.submission(order_id=7), lambda job_id: effects(harness, job_id)
        )

    names = {name for name, _, _ in report.crashes}
    assert names == {
        "jobs.group.after_commit",
        "jobs.group.after_fence",
        "jobs.group.before_commit",
        "jobs.group.before_fence",
        "workflow.park.after_commit",
        "workflow.park.before_commit",
        "workflow.spawn.after_commit",
        "workflow.spawn.before_commit",
        "workflow.step.after_commit",
        "workflow.step.after_fence",
        "workflow.step.before_commit",
        "workflow.step.before_fence",
        "workflow.steps.after_commit",
        "workflow.steps.before_commit",
    }
    assert len(report.crashes) >= 2 * (4 * 2 + 4 + 2 + 2 * 2 + 2 * 3)
    assert report.effects[0] == [("reserved",), ("noted",), ("shipped [1, 2]",)]


async def test_a_sync_workflow_too(harness: JobHarness, clock: Clock) -> None:
    def store(tx: Any, job_id: int, note: str) -> None:
        tx.execute("insert into effect (job_id, note) values (%s, %s)", (job_id, note))

    @harness.fp.workflow("orders", retry=at_once, tries=10)
    def fulfil(wf: SyncWorkflow) -> float:
        number = wf.random()
        wf.transaction(store, wf.id, "stored")
        wf.sleep(60)
        wf.options(name="last").transaction(store, wf.id, "last")
        assert 0 <= number < 1
        return 1.0

    def left(job_id: int) -> Any:
        return harness.rows("select note from effect where job_id = %s order by id", (job_id,))

    async with workflow_harness(harness.fp, clock) as under_test:
        report = await crash_everywhere(under_test, fulfil.submission, left, faults=("kill",))
    assert len(report.crashes) == 4 * 4
    assert report.effects == [("stored",), ("last",)]


async def test_a_step_that_commits_before_its_record_is_noticed(harness: JobHarness, clock: Clock) -> None:
    """A planted bug: the writes of a step commit in a transaction of their own."""

    async def store(tx: Transaction, job_id: int) -> None:
        async with harness.fp.transaction() as other:
            await other.execute("insert into effect (job_id, note) values (%s, 'doubled')", (job_id,))

    @harness.fp.workflow("orders", retry=at_once)
    async def careless(wf: Workflow) -> None:
        await wf.transaction(store, wf.id)

    def left(job_id: int) -> Any:
        return harness.rows("select note from effect where job_id = %s", (job_id,))

    async with workflow_harness(harness.fp, clock) as under_test:
        with pytest.raises(EffectsDiffer, match=r"at workflow\.step\.\w+, hit 1, .*doubled"):
            await crash_everywhere(under_test, careless.submission, left)


async def test_steps_are_stubbed_by_name(harness: JobHarness, clock: Clock) -> None:
    fulfil = declare(harness)

    async def no_reserve(tx: Transaction, job_id: int) -> str:
        return "stubbed"

    def cheap(order_id: int) -> int:
        return 5

    with stubbed_steps(harness.fp, {"price": cheap, "reserve": no_reserve}):
        async with workflow_harness(harness.fp, clock, events={"approve": True}) as under_test:
            job_id = await under_test.run(fulfil.submission(order_id=7))
            assert await fulfil.result(job_id) == 5
    assert [note for (note,) in harness.rows("select note from effect")] == ["noted", "shipped [1, 2]"]
    assert harness.fp.workflow_runtime.stubs == {}


async def test_a_workflow_without_points_shows_nothing(harness: JobHarness, clock: Clock) -> None:
    @harness.fp.workflow("orders")
    async def empty(wf: Workflow) -> None: ...

    async with workflow_harness(harness.fp, clock) as under_test:
        with pytest.raises(KitError, match="nothing was shown"):
            await crash_everywhere(under_test, empty.submission, lambda job_id: None)
