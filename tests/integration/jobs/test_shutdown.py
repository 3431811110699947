"""A worker that leaves: what runs may end, what does not is given back, nothing waits for a lease."""

import asyncio
import time

import pytest

from fencepost.embedded._deadline import Deadline
from fencepost.jobs.job import Job
from fencepost.testing import Signals, at_crash_point
from tests.integration.jobs.harness import JobHarness, quick

WAITING = ("pending", "dispatched")


async def test_what_runs_may_end_and_nothing_new_begins(harness: JobHarness) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @harness.fp.job("default")
    async def slow(job: Job) -> str:
        began.set()
        await go_on.wait()
        return "ended in peace"

    async with harness.fp.transaction() as tx:
        first = await slow.submit(tx)
    worker = harness.fp.jobs.worker(quick())
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(began.wait(), 60)
    worker.stop()
    async with harness.fp.transaction() as tx:
        second = await slow.submit(tx)
    go_on.set()
    await asyncio.wait_for(running, 60)
    assert harness.job(first.job_id).result == "ended in peace"
    assert harness.job(second.job_id).state in WAITING


async def test_what_does_not_end_in_time_is_given_back_with_its_try(harness: JobHarness) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    @harness.fp.job("default")
    async def endless(job: Job) -> None:
        began.set()
        await asyncio.Event().wait()

    @harness.fp.job("default")
    def endless_thread(job: Job) -> None:
        loop.call_soon_threadsafe(began.set)
        Deadline(60, "it is told to stop").wait(lambda: job.stopped)

    for handler in (endless, endless_thread):
        began.clear()
        async with harness.fp.transaction() as tx:
            submitted = await handler.submit(tx)
        async with harness.working(quick(drain_seconds=0)):
            await asyncio.wait_for(began.wait(), 60)
        seen = harness.job(submitted.job_id)
        assert (seen.state in WAITING, seen.tries, seen.attempt) == (True, 0, 1)
        assert harness.events(submitted.job_id) == ["released"]
        harness.execute("delete from fencepost.job_waiting")


async def test_a_handler_that_will_not_be_cancelled_does_not_keep_the_worker(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.jobs._worker.FAREWELL_SECONDS", 0.2)
    began = asyncio.Event()

    @harness.fp.job("default")
    async def stubborn(job: Job) -> None:
        began.set()
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    ended = asyncio.Event()
    async with harness.fp.transaction() as tx:
        submitted = await stubborn.submit(tx)
    async with harness.working(quick(drain_seconds=0)):
        await asyncio.wait_for(began.wait(), 60)
    # It is left to its lease.
    assert harness.job(submitted.job_id).state == "running"
    ended.set()


async def test_a_stop_does_not_lose_a_claim_that_is_on_its_way(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def quick_one(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await quick_one.submit(tx)
    worker = harness.fp.jobs.worker(quick())
    with at_crash_point("jobs.claim.after_commit", worker.stop):
        await asyncio.wait_for(worker.run(), 60)
    assert harness.job(submitted.job_id).state == "finished"


async def test_entries_that_were_read_and_not_claimed_are_given_back(harness: JobHarness) -> None:
    """Left pending for a worker that has gone, they would wait until they count as abandoned."""

    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await nothing.submit(tx)
    worker = harness.fp.jobs.worker(quick(reclaim_grace_seconds=3600))

    def stop_and_break() -> None:
        if not harness.redis.xpending_range("fencepost:{jobs}", "fencepost:workers", "-", "+", 1):
            return  # A read that waited in vain: nothing was driven yet.
        worker.stop()
        raise OSError("the read is cut off after its delivery")

    with at_crash_point("jobs.fetch.after_read", stop_and_break):
        await asyncio.wait_for(worker.run(), 60)
    seen = harness.job(submitted.job_id)
    assert (seen.state in WAITING, seen.attempt) == (True, 0)
    assert harness.value("select max(dispatches) from fencepost.job_waiting") >= 1
    async with harness.working(quick(reclaim_grace_seconds=3600)):
        await harness.until_state(submitted.job_id, "finished")


async def test_a_worker_that_leaves_is_forgotten_by_redis(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await nothing.submit(tx)
    async with harness.working():
        await harness.until_state(submitted.job_id, "finished")
        await harness.until_empty()
    assert harness.redis.xinfo_consumers("fencepost:{jobs}", "fencepost:workers") == []


async def test_a_stop_interrupts_a_wait_for_entries(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    with Signals() as signals:
        worker = harness.fp.jobs.worker(quick())
        running = asyncio.create_task(worker.run())
        await signals.wait("dispatch.ticked", count=3)
        began = time.monotonic()
        worker.stop()
        await asyncio.wait_for(running, 60)
    # The read blocks for two seconds.
    assert time.monotonic() - began < 1.5


async def test_a_cancelled_worker_leaves_in_order_too(harness: JobHarness) -> None:
    began = asyncio.Event()

    @harness.fp.job("default")
    async def endless(job: Job) -> None:
        began.set()
        await asyncio.Event().wait()

    async with harness.fp.transaction() as tx:
        submitted = await endless.submit(tx)
    running = asyncio.create_task(harness.fp.jobs.worker(quick(drain_seconds=0)).run())
    await asyncio.wait_for(began.wait(), 60)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert harness.job(submitted.job_id).state in WAITING
