"""Workers that are drained, disabled and pinned while they run."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fencepost.jobs.job import Job
from fencepost.kernel import worker as kernel_worker
from fencepost.testing import Signals
from tests.integration.jobs.harness import JobHarness, quick

ANN = "ann", "a new disk"


@pytest.fixture(params=["redis", "postgresql"])
def some_harness(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("harness" if request.param == "redis" else "lonely_harness")


async def test_a_drained_worker_finishes_what_it_has_and_another_takes_the_rest(
    some_harness: JobHarness,
) -> None:
    harness, began, go_on = some_harness, asyncio.Event(), asyncio.Event()
    ran: dict[int, str] = {}

    @harness.fp.job("default")
    async def note(job: Job, number: int) -> None:
        ran[number] = job.owner
        if number == 1:
            began.set()
            await go_on.wait()

    first = await note.enqueue(number=1)
    async with AsyncExitStack() as stack:
        drained = await stack.enter_async_context(harness.working(quick(worker_id="one")))
        await asyncio.wait_for(began.wait(), 60)
        assert await harness.fp.run(kernel_worker.drain(drained.owner, *ANN)) == [drained.owner]
        # The worker has not noticed yet, and none other is there: what it reads it cannot claim.
        second = await note.enqueue(number=2)
        other = await stack.enter_async_context(harness.working(quick(worker_id="two")))
        await harness.until_state(second.job_id, "finished")
        assert ran[2] == other.owner
        go_on.set()
        await harness.until_state(first.job_id, "finished")
    assert ran == {1: drained.owner, 2: other.owner}


async def test_a_disabled_worker_reads_nothing_until_it_is_enabled(some_harness: JobHarness) -> None:
    harness = some_harness

    # An entry that was given back unclaimed is removed when it has been idle for the longest lease.
    @harness.fp.job("default", lease=2)
    async def note(job: Job) -> None: ...

    with Signals() as signals:
        async with harness.working(quick(worker_id="one")) as worker:
            host = worker.owner.rpartition("@")[2].partition(":")[0]
            await harness.fp.run(kernel_worker.disable(host, *ANN))
            submitted = await note.enqueue()
            await signals.wait("worker.out_of_service", within=60)
            assert harness.job(submitted.job_id).attempt == 0
            await harness.fp.run(kernel_worker.enable(host, *ANN))
            await signals.wait("worker.in_service", within=60)
            await harness.until_state(submitted.job_id, "finished")
        async with harness.working(quick(worker_id="two")):
            await harness.until(
                "its stream is empty", lambda: harness.redis is None or harness.entries() == 0
            )
    assert harness.job(submitted.job_id).attempt == 1


async def test_a_pinned_worker_leaves_the_other_kinds_to_others(some_harness: JobHarness) -> None:
    harness, ran = some_harness, dict[str, str]()

    @harness.fp.job("default")
    async def letter(job: Job) -> None:
        ran["letter"] = job.owner

    @harness.fp.job("default")
    async def picture(job: Job) -> None:
        ran["picture"] = job.owner

    async with AsyncExitStack() as stack:
        pinned = await stack.enter_async_context(harness.working(quick(worker_id="one")))
        await harness.fp.run(kernel_worker.pin(pinned.owner, *ANN, kinds=["letter"]))
        refused = await picture.enqueue()
        taken = await letter.enqueue()
        await harness.until_state(taken.job_id, "finished")
        assert harness.job(refused.job_id).state in ("pending", "dispatched")
        other = await stack.enter_async_context(harness.working(quick(worker_id="two")))
        await harness.until_state(refused.job_id, "finished")
    assert ran == {"letter": pinned.owner, "picture": other.owner}
