"""A worker that leaves: what runs may end, what does not is given back, nothing waits for a lease."""

import asyncio
import time

import pytest

from fencepost.jobs.job import Job
from fencepost.testing import Signals, at_crash_point
from tests.integration.jobs.scene import Scene, quick

WAITING = ("pending", "dispatched")


async def test_what_runs_may_end_and_nothing_new_begins(scene: Scene) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @scene.fp.job("default")
    async def slow(job: Job) -> str:
        began.set()
        await go_on.wait()
        return "ended in peace"

    async with scene.fp.transaction() as tx:
        first = await slow.submit(tx)
    worker = scene.fp.worker(quick())
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(began.wait(), 60)
    worker.stop()
    async with scene.fp.transaction() as tx:
        second = await slow.submit(tx)
    go_on.set()
    await asyncio.wait_for(running, 60)
    assert scene.job(first.job_id).result == "ended in peace"
    assert scene.job(second.job_id).state in WAITING


async def test_what_does_not_end_in_time_is_given_back_with_its_try(scene: Scene) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    @scene.fp.job("default")
    async def endless(job: Job) -> None:
        began.set()
        await asyncio.Event().wait()

    @scene.fp.job("default")
    def endless_thread(job: Job) -> None:
        loop.call_soon_threadsafe(began.set)
        while not job.stopped:
            time.sleep(0.01)

    for handler in (endless, endless_thread):
        began.clear()
        async with scene.fp.transaction() as tx:
            submitted = await handler.submit(tx)
        async with scene.working(quick(drain_seconds=0)):
            await asyncio.wait_for(began.wait(), 60)
        seen = scene.job(submitted.job_id)
        assert (seen.state in WAITING, seen.tries, seen.attempt) == (True, 0, 1)
        assert scene.events(submitted.job_id) == ["released"]
        scene.execute("delete from fencepost.job_waiting")


async def test_a_handler_that_will_not_be_cancelled_does_not_keep_the_worker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.jobs.worker.FAREWELL_SECONDS", 0.2)
    began = asyncio.Event()

    @scene.fp.job("default")
    async def stubborn(job: Job) -> None:
        began.set()
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    ended = asyncio.Event()
    async with scene.fp.transaction() as tx:
        submitted = await stubborn.submit(tx)
    async with scene.working(quick(drain_seconds=0)):
        await asyncio.wait_for(began.wait(), 60)
    # It is left to its lease.
    assert scene.job(submitted.job_id).state == "running"
    ended.set()


async def test_a_stop_does_not_lose_a_claim_that_is_on_its_way(scene: Scene) -> None:
    @scene.fp.job("default")
    async def quick_one(job: Job) -> None: ...

    async with scene.fp.transaction() as tx:
        submitted = await quick_one.submit(tx)
    worker = scene.fp.worker(quick())
    with at_crash_point("jobs.claim.after_commit", worker.stop):
        await asyncio.wait_for(worker.run(), 60)
    assert scene.job(submitted.job_id).state == "finished"


async def test_entries_that_were_read_and_not_claimed_are_given_back(scene: Scene) -> None:
    """Left pending for a worker that has gone, they would wait until somebody takes them for abandoned."""

    @scene.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with scene.fp.transaction() as tx:
        submitted = await nothing.submit(tx)
    worker = scene.fp.worker(quick(reclaim_grace_seconds=3600))

    def stop_and_break() -> None:
        if not scene.redis.xpending_range("deepoj:jobs", "deepoj:workers", "-", "+", 1):
            return  # A read that waited in vain: nothing was driven yet.
        worker.stop()
        raise OSError("the read is cut off after its delivery")

    with at_crash_point("jobs.intake.after_read", stop_and_break):
        await asyncio.wait_for(worker.run(), 60)
    seen = scene.job(submitted.job_id)
    assert (seen.state in WAITING, seen.attempt) == (True, 0)
    assert scene.value("select max(dispatches) from fencepost.job_waiting") >= 1
    async with scene.working(quick(reclaim_grace_seconds=3600)):
        await scene.until_state(submitted.job_id, "finished")


async def test_a_worker_that_leaves_is_forgotten_by_redis(scene: Scene) -> None:
    @scene.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with scene.fp.transaction() as tx:
        submitted = await nothing.submit(tx)
    async with scene.working():
        await scene.until_state(submitted.job_id, "finished")
        await scene.until_empty()
    assert scene.redis.xinfo_consumers("deepoj:jobs", "deepoj:workers") == []


async def test_a_stop_interrupts_a_wait_for_entries(scene: Scene) -> None:
    @scene.fp.job("default")
    async def nothing(job: Job) -> None: ...

    with Signals() as signals:
        worker = scene.fp.worker(quick())
        running = asyncio.create_task(worker.run())
        await signals.wait("dispatch.ticked", count=3)
        began = time.monotonic()
        worker.stop()
        await asyncio.wait_for(running, 60)
    # The read blocks for two seconds.
    assert time.monotonic() - began < 1.5


async def test_a_cancelled_worker_leaves_in_order_too(scene: Scene) -> None:
    began = asyncio.Event()

    @scene.fp.job("default")
    async def endless(job: Job) -> None:
        began.set()
        await asyncio.Event().wait()

    async with scene.fp.transaction() as tx:
        submitted = await endless.submit(tx)
    running = asyncio.create_task(scene.fp.worker(quick(drain_seconds=0)).run())
    await asyncio.wait_for(began.wait(), 60)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert scene.job(submitted.job_id).state in WAITING
