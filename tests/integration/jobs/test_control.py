"""Cancel, pause, delay, unique and concurrency keys, priorities."""

import asyncio
from collections import Counter
from datetime import timedelta

from fencepost.jobs._dispatcher import Dispatcher
from fencepost.jobs._handler import Handler
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import RedisHealth
from fencepost.jobs.job import Job
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel import queue as kernel_queue
from fencepost.metrics import Metrics
from fencepost.testing import Clock, Signals, at_crash_point
from tests.integration.jobs.harness import JobHarness, quick

PLACES = 50


def by_number(x: int) -> str:
    return f"number {x}"


def by_tenant(tenant: str) -> str:
    return tenant


async def test_a_waiting_job_that_is_cancelled_never_runs(harness: JobHarness) -> None:
    ran: list[int] = []

    @harness.fp.job("default")
    async def note(job: Job) -> None:
        ran.append(job.id)

    async with harness.fp.transaction() as tx:
        first, second = await note.submit(tx), await note.submit(tx)
    assert await harness.fp.run(kernel_job.cancel(first.job_id, "carol")) == "cancelled"
    async with harness.working():
        await harness.until_state(second.job_id, "finished")
    assert harness.job(first.job_id).state == "cancelled"
    assert ran == [second.job_id]


async def test_a_running_job_is_told_to_stop_and_ends_as_cancelled(harness: JobHarness) -> None:
    began = asyncio.Event()

    @harness.fp.job("default")
    async def long(job: Job) -> None:
        began.set()
        await asyncio.Event().wait()

    async with harness.fp.transaction() as tx:
        submitted = await long.submit(tx)
    async with harness.working():
        await asyncio.wait_for(began.wait(), 60)
        assert await harness.fp.run(kernel_job.cancel(submitted.job_id, "carol")) == "requested"
        await harness.until_state(submitted.job_id, "cancelled")
        await harness.until_empty()


async def test_a_running_sync_job_sees_that_it_was_cancelled(harness: JobHarness) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    @harness.fp.job("default")
    def long(job: Job) -> None:
        loop.call_soon_threadsafe(began.set)
        while not job.stopped:
            pass

    async with harness.fp.transaction() as tx:
        submitted = await long.submit(tx)
    async with harness.working():
        await asyncio.wait_for(began.wait(), 60)
        await harness.fp.run(kernel_job.cancel(submitted.job_id, "carol"))
        await harness.until_state(submitted.job_id, "cancelled")


async def test_a_finish_after_the_cancel_is_refused_and_the_job_ends_as_cancelled(
    harness: JobHarness,
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @harness.fp.job("default")
    async def deaf(job: Job, how: str) -> None:
        began.set()
        await asyncio.shield(go_on.wait())
        if how == "own":
            async with job.finish() as tx:
                await tx.execute("insert into effect (job_id) values (%s)", (job.id,))

    # A heartbeat that comes late, so that the finish meets the flag first.
    async with harness.working(quick(lease_seconds=120, heartbeat_seconds=60)):
        for how in ("own", "bare"):
            began.clear()
            go_on.clear()
            async with harness.fp.transaction() as tx:
                submitted = await deaf.submit(tx, how=how)
            await asyncio.wait_for(began.wait(), 60)
            await harness.fp.run(kernel_job.cancel(submitted.job_id, "carol"))
            go_on.set()
            await harness.until_state(submitted.job_id, "cancelled")
    assert harness.value("select count(*) from effect") == 0


async def test_a_delayed_job_runs_when_its_time_has_come(harness: JobHarness, clock: Clock) -> None:
    @harness.fp.job("default")
    async def later(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await later.options(run_at=clock.now() + timedelta(hours=1)).submit(tx)
    async with harness.working():
        with Signals() as signals:
            await signals.wait("dispatch.ticked", count=5)
        assert harness.job(submitted.job_id).state == "pending"
        clock.advance(3601)
        await harness.until_state(submitted.job_id, "finished")


async def test_one_live_job_for_a_unique_key(harness: JobHarness) -> None:
    go_on = asyncio.Event()

    @harness.fp.job("default", unique=by_number)
    async def once(job: Job, x: int) -> None:
        await go_on.wait()

    async with harness.fp.transaction() as tx:
        first, second, other = [await once.submit(tx, x=x) for x in (1, 1, 2)]
    assert (first.job_id == second.job_id, second.created, other.created) == (True, False, True)
    async with harness.working():
        await harness.until_state(first.job_id, "running")
        async with harness.fp.transaction() as tx:
            assert not (await once.submit(tx, x=1)).created
        go_on.set()
        await harness.until_state(first.job_id, "finished")
    async with harness.fp.transaction() as tx:
        assert (await once.submit(tx, x=1)).created


async def test_a_concurrency_key_bounds_how_many_run_at_once(harness: JobHarness) -> None:
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @harness.fp.job("default", concurrency_key=by_tenant, concurrency_limit=2)
    async def work(job: Job, tenant: str) -> None:
        now[tenant] += 1
        most[tenant] = max(most[tenant], now[tenant])
        await asyncio.sleep(0.01)  # Work takes time: one too many would begin meanwhile.
        now[tenant] -= 1

    async with harness.fp.transaction() as tx:
        for n in range(40):
            await work.submit(tx, tenant="ab"[n % 2])
    async with harness.working():
        await harness.until_all_ended()
    assert most == {"a": 2, "b": 2}


async def test_a_paused_queue_starts_nothing_and_goes_on_when_it_is_resumed(harness: JobHarness) -> None:
    ran: list[int] = []

    @harness.fp.job("mail")
    async def note(job: Job) -> None:
        ran.append(job.id)

    async with harness.working():
        async with harness.fp.transaction() as tx:
            before = await note.submit(tx)
        await harness.until_state(before.job_id, "finished")
        await harness.fp.run(kernel_queue.pause("mail", "carol"))
        async with harness.fp.transaction() as tx:
            waiting = await note.submit(tx)
        # Also an entry that was driven before the pause starts nothing.
        harness.redis.xadd(
            "fencepost:{jobs}:q:mail",
            {"job_id": waiting.job_id, "enqueue_ts": 1, "payload_ref": "x", "priority": 1},
        )
        await harness.until_empty()
        assert harness.job(waiting.job_id).state == "pending"
        await harness.fp.run(kernel_queue.resume("mail", "carol"))
        await harness.until_state(waiting.job_id, "finished")
    assert ran == [before.job_id, waiting.job_id]


async def test_a_busy_priority_starves_no_other(harness: JobHarness) -> None:
    """With one place, and work in every priority, each priority gets its share."""
    order: list[int] = []

    @harness.fp.job("default")
    async def note(job: Job, priority: int) -> None:
        order.append(priority)

    async with harness.fp.transaction() as tx:
        for priority in range(4):
            for _ in range(60):
                await note.options(priority=priority).submit(tx, priority=priority)
    async with harness.working(quick(concurrency=1)):
        await harness.until("seventy have run", lambda: len(order) >= 70)
    assert Counter(order[:60]).keys() == {0, 1, 2, 3}
    shares = Counter(order[:60])
    assert shares[0] > shares[1] > shares[2] > shares[3] >= 2


async def test_a_busy_priority_starves_no_other_without_redis(lonely_harness: JobHarness) -> None:
    order: list[int] = []

    @lonely_harness.fp.job("default")
    async def note(job: Job, priority: int) -> None:
        order.append(priority)

    async with lonely_harness.fp.transaction() as tx:
        for priority in range(4):
            for _ in range(30):
                await note.options(priority=priority).submit(tx, priority=priority)
    async with lonely_harness.working(quick(concurrency=1)):
        await lonely_harness.until("thirty have run", lambda: len(order) >= 30)
    assert Counter(order[:30]).keys() == {0, 1, 2, 3}


async def test_an_empty_priority_costs_no_place_of_a_claim(harness: JobHarness, redis_url: str) -> None:
    """The lowest priority is alone: its jobs get every place, also the shares of the others."""
    handler = in_the_least_priority(harness)
    async with harness.fp.transaction() as tx:
        await handler.submit_many(tx, ({} for _ in range(PLACES)))
    settings = quick(concurrency=PLACES)
    metrics = JobMetrics.on(Metrics())
    redis = RedisHealth(redis_url, metrics, settings, reply_seconds=5)
    await redis.probe()
    try:
        await Dispatcher("default", harness.fp, redis, metrics, settings).tick()
    finally:
        await redis.close()
    assert harness.entries() == PLACES
    assert await claimed_at_first(harness, "jobs.claim.after_commit", settings) == PLACES


async def test_an_empty_priority_costs_no_place_of_a_claim_without_redis(lonely_harness: JobHarness) -> None:
    handler = in_the_least_priority(lonely_harness)
    async with lonely_harness.fp.transaction() as tx:
        await handler.submit_many(tx, ({} for _ in range(PLACES)))
    settings = quick(concurrency=PLACES)
    first = await claimed_at_first(lonely_harness, "jobs.claim_next.after_commit", settings)
    assert first == PLACES


def in_the_least_priority(harness: JobHarness) -> Handler[[]]:
    @harness.fp.job("default", priority=3)
    async def note(job: Job) -> None: ...

    return note


async def claimed_at_first(harness: JobHarness, point: str, settings: JobSettings) -> int:
    """How many jobs run when a worker's first claim has committed."""
    counts: list[int] = []
    running = "select count(*) from fencepost.job_running"
    with at_crash_point(point, lambda: counts.append(harness.value(running))):
        async with harness.working(settings):
            await harness.until_all_ended()
    return counts[0]
