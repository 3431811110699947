"""Heartbeats keep what is alive, and let go of what is not."""

import asyncio
import time

from fencepost.embedded import Database
from fencepost.jobs.job import Job
from fencepost.testing import Proxy, Signals, at_crash_point
from tests.integration.jobs.harness import JobHarness, open_harness, quick
from tests.takeover import TAKEN_OVER


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(harness: JobHarness) -> None:
    @harness.fp.job("default", lease=0.9)
    async def block(job: Job) -> None:
        time.sleep(2.5)  # noqa: ASYNC251 -- that is the point.

    async with harness.fp.transaction() as tx:
        submitted = await block.submit(tx)
    other = harness.fp.jobs.worker(quick())
    async with harness.working():
        with harness.database.connect() as reclaimer:
            await harness.until_state(submitted.job_id, "running", "finished")
            reclaimer.execute("select * from fencepost.job_reclaim(10)")
        seen = await harness.until_state(submitted.job_id, "finished")
    assert (seen.attempt, seen.tries) == (1, 1)
    assert other.owner != seen.owner


async def test_a_job_with_a_shorter_lease_than_the_heartbeat_is_renewed_in_time(harness: JobHarness) -> None:
    go_on = asyncio.Event()

    @harness.fp.job("default", lease=3)
    async def long(job: Job) -> None:
        await go_on.wait()

    async with harness.fp.transaction() as tx:
        submitted = await long.submit(tx)
    with Signals() as signals:
        async with harness.working(quick(lease_seconds=120, heartbeat_seconds=60)):
            await signals.wait("heartbeat.beat", count=4, within=60)
            go_on.set()
            seen = await harness.until_state(submitted.job_id, "finished")
    assert seen.attempt == 1


async def test_the_entry_of_a_long_job_is_not_taken_away(harness: JobHarness) -> None:
    """Two workers, and entries that count as abandoned after a second."""
    began, go_on = asyncio.Event(), asyncio.Event()

    @harness.fp.job("default", lease=1)
    async def long(job: Job) -> None:
        began.set()
        await go_on.wait()

    async with harness.fp.transaction() as tx:
        submitted = await long.submit(tx)
    settings = quick(lease_seconds=1, reclaim_grace_seconds=0)
    async with harness.working(settings) as holder:
        await asyncio.wait_for(began.wait(), 60)
        async with harness.working(settings):
            with Signals() as signals:
                await signals.wait("heartbeat.beat", count=20)
            [pending] = harness.redis.xpending_range("fencepost:{jobs}", "fencepost:workers", "-", "+", 10)
            assert pending["consumer"] == holder.owner
            go_on.set()
            seen = await harness.until_state(submitted.job_id, "finished")
    assert (seen.attempt, seen.owner) == (1, holder.owner)


async def test_a_lost_lease_stops_the_handler_and_nothing_is_written(harness: JobHarness) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @harness.fp.job("default", lease=60)
    async def long(job: Job) -> None:
        if job.attempt > 1:
            return
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with harness.fp.transaction() as tx:
        submitted = await long.submit(tx)
    async with harness.working():
        await asyncio.wait_for(began.wait(), 60)
        # Another worker takes it over, as after an expiry that this one did not notice.
        harness.execute(TAKEN_OVER)
        await asyncio.wait_for(stopped.wait(), 60)
        await harness.until("the place is free", lambda: harness.metric("fencepost_jobs_held") == 0)
        seen = harness.job(submitted.job_id)
        assert (seen.state, seen.owner, seen.attempt) == ("running", "successor", 2)
        # Nothing is acknowledged: the entry is the successor's.
        assert harness.redis.xlen("fencepost:{jobs}") == 1
    assert harness.metric("fencepost_jobs_renewals_total", status="refused", reason="lease_lost") == 1
    assert harness.metric("fencepost_jobs_outcomes_total", status="lost") == 1


async def test_a_database_that_falls_silent_does_not_keep_a_job_running(database: Database) -> None:
    """The worker's own clock ends the lease: nothing else tells it that the time is over."""
    began, stopped = asyncio.Event(), asyncio.Event()
    with Proxy.for_postgres(database.url) as proxy:
        async with open_harness(database, None, through=proxy.url) as harness:

            @harness.fp.job("default", lease=1)
            async def long(job: Job) -> None:
                if job.attempt > 1:
                    return
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()

            async with harness.fp.transaction() as tx:
                submitted = await long.submit(tx)
            async with harness.working(quick(lease_seconds=1)):
                await asyncio.wait_for(began.wait(), 60)
                proxy.swallow()
                await asyncio.wait_for(stopped.wait(), 60)
                proxy.heal()
                seen = await harness.until_state(submitted.job_id, "finished")
            assert seen.attempt == 2
            assert harness.metric("fencepost_jobs_outcomes_total", status="lost") == 1


async def test_progress_after_a_takeover_is_refused(harness: JobHarness) -> None:
    refusals: list[str] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    @harness.fp.job("default", lease=60)
    async def report(job: Job) -> None:
        began.set()
        await go_on.wait()
        try:
            await job.progress({"done": 1})
        except Exception as error:
            refusals.append(type(error).__name__)
            raise

    async with harness.fp.transaction() as tx:
        await report.submit(tx)
    async with harness.working(quick(lease_seconds=120, heartbeat_seconds=60)):
        await asyncio.wait_for(began.wait(), 60)
        harness.execute(TAKEN_OVER)
        go_on.set()
        await harness.until("it was refused", lambda: bool(refusals))
        await harness.until("the place is free", lambda: harness.metric("fencepost_jobs_held") == 0)
    assert refusals == ["StaleAttempt"]
    assert harness.metric("fencepost_jobs_outcomes_refused_total", reason="stale_attempt") == 1
    assert harness.rows("select progress from fencepost.job_running") == [(None,)]


async def test_a_claim_whose_answer_comes_after_its_lease_frees_its_place(harness: JobHarness) -> None:
    """The handler is told to stop before it has begun; one place, so a place that is not freed stops all."""

    @harness.fp.job("default", lease=0.5)
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        jobs = [(await nothing.submit(tx)).job_id for _ in range(3)]
    worker = harness.fp.jobs.worker(quick(concurrency=1))

    def stall_and_stop_what_comes() -> None:
        time.sleep(0.7)  # The worker counts its lease by the real clock, from before the claim.
        # As the loop that watches the leases does, in the same turn in which the handler was to begin.
        watch = worker._lease_watch  # pyright: ignore[reportPrivateUsage]
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(watch.tick()))

    with at_crash_point("jobs.claim.after_commit", stall_and_stop_what_comes):
        running = asyncio.create_task(worker.run())
        await harness.until_all_ended()
    worker.stop()
    await asyncio.wait_for(running, 60)
    assert [harness.job(job_id).state for job_id in jobs] == ["finished"] * 3
