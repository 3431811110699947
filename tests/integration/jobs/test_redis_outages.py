"""Redis is away, comes back, is wiped, loses its last moments: nothing is lost, and everybody can see it."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from fencepost.cli._status_snapshot import read_board
from fencepost.embedded import Database, ValkeyServer
from fencepost.jobs._dispatcher import Dispatcher
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import RedisHealth
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.metrics import Metrics
from fencepost.redis_streams.stream import Dispatched, Streams
from fencepost.testing import Proxy, Signals
from tests.integration.jobs.harness import JobHarness, open_harness, quick
from tests.tmp_dirs import server_directory


@pytest.fixture
def persistent_valkey() -> Iterator[ValkeyServer]:
    """A Valkey that comes back with what it had."""
    directory = server_directory()
    with ValkeyServer(directory, append_only=True, ephemeral=True) as server:
        yield server


@asynccontextmanager
async def counting(database: Database, redis_url: str | None) -> AsyncGenerator[tuple[JobHarness, list[int]]]:
    """A scene whose handler writes its job down in the finishing transaction."""
    ran: list[int] = []
    async with open_harness(database, redis_url) as harness:

        @harness.fp.job("default", lease=5)
        async def count(job: Job, n: int) -> None:
            async with job.finish() as tx:
                await tx.execute(
                    "insert into effect (job_id, attempt) values (%s, %s)", (job.id, job.attempt)
                )
            ran.append(n)

        yield harness, ran


async def submit(harness: JobHarness, count: int) -> None:
    [handler] = harness.fp.handlers
    async with harness.fp.transaction() as tx:
        for n in range(count):
            await handler.submit(tx, n=n)


def once(harness: JobHarness, count: int) -> bool:
    return harness.rows("select count(*), count(distinct job_id) from effect") == [(count, count)]


def driven_by(database: Database) -> dict[str, int]:
    """What `fencepost status` shows of the workers."""
    with database.connect_admin() as connection:
        return {found.drive: found.workers for found in read_board(connection).workers}


async def test_without_redis_at_the_start_work_goes_on_and_returns_to_the_streams(
    database: Database, own_valkey: ValkeyServer
) -> None:
    url = own_valkey.url
    own_valkey.kill()
    with structlog.testing.capture_logs() as logs, Signals() as signals:
        async with counting(database, url) as (harness, _):
            await submit(harness, 20)
            async with harness.working():
                await harness.until_all_ended()
                assert harness.metric("fencepost_jobs_redis_up") == 0
                assert driven_by(database) == {"postgresql": 1}
                own_valkey.start()
                await signals.wait("drive.up", within=60)
                assert harness.metric("fencepost_jobs_redis_up") == 1
                await harness.until("it is seen", lambda: driven_by(database) == {"redis": 1})
                await submit(harness, 20)
                await harness.until_all_ended()
                await harness.until(
                    "entries were settled", lambda: harness.metric("fencepost_jobs_held") == 0
                )
            assert once(harness, 40)
            assert harness.metric("fencepost_jobs_dispatches_total", status="ok", reason="") == 20
    events = [log["event"] for log in logs]
    assert events.index("postgresql_drives_alone") < events.index("redis_drives")


async def test_what_could_not_be_driven_tells_why_and_keeps_its_place(
    harness: JobHarness, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> Dispatched:
        raise RedisConnectionError("gone")

    settings = quick()
    metrics = JobMetrics.on(Metrics())
    redis = RedisHealth(redis_url, metrics, settings, reply_seconds=5)
    await redis.probe()
    due = "select run_at from fencepost.job_waiting where job_id = %s"
    job = await harness.fp.run(kernel_job.submit("mail", "send", {}))
    before = harness.value(due, (job.job_id,))
    monkeypatch.setattr(Streams, "dispatch", fail)
    try:
        await Dispatcher("mail", harness.fp, redis, metrics, settings).tick()
    finally:
        await redis.close()
    [(status, attempts, error)] = harness.rows(
        "select status, attempts, last_error from fencepost.outbox_events where job_id = %s", (job.job_id,)
    )
    assert (status, error) == ("pending", "ConnectionError: gone")
    assert attempts in {1, 2}, "two batches are driven at once, and the second may find it free again"
    assert harness.value(due, (job.job_id,)) == before, "PostgreSQL drives it alone, at once"


async def test_without_redis_a_worker_is_called_when_something_is_submitted(database: Database) -> None:
    with Signals() as signals:
        async with counting(database, None) as (harness, _), harness.working(quick(poll_seconds=600)):
            for moment in ("dispatch.ticked", "listener.listening", "worker.idle"):
                await signals.wait(moment)
            await submit(harness, 3)
            await harness.until_all_ended()


def measured(harness: JobHarness) -> bool:
    return any(name.startswith("fencepost_jobs_stream_") for name, _ in harness.samples())


async def test_redis_goes_down_in_the_middle_and_comes_back_empty(
    database: Database, own_valkey: ValkeyServer
) -> None:
    with structlog.testing.capture_logs() as logs, Signals() as signals:
        async with counting(database, own_valkey.url) as (harness, ran):
            await submit(harness, 300)
            async with harness.working(quick(concurrency=3)):
                await harness.until("some have run", lambda: len(ran) > 20)
                await harness.until("the stream is measured", lambda: measured(harness))
                await asyncio.to_thread(own_valkey.kill)
                await signals.wait("drive.down")
                await harness.until("no old figure is shown", lambda: not measured(harness))
                await asyncio.to_thread(own_valkey.start)
                await signals.wait("drive.up", count=2)
                await submit(harness, 50)
                await harness.until_all_ended(within=60)
            assert once(harness, 350)
    events = [log["event"] for log in logs]
    assert "redis_drives" in events[events.index("postgresql_drives_alone") :]


async def test_what_runs_here_is_not_asked_for_again_after_an_outage(harness: JobHarness) -> None:
    """The entries of a worker are read again then: what it never heard of, and not what it holds."""
    goes_on = asyncio.Event()

    @harness.fp.job("default")
    async def held(job: Job) -> None:
        await goes_on.wait()

    @harness.fp.job("default")
    async def after(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        first = await held.submit(tx)
    with Signals() as signals:
        async with harness.working() as worker:
            await harness.until_state(first.job_id, "running")
            worker._redis.failed(RedisConnectionError("gone"))  # pyright: ignore[reportPrivateUsage]
            await signals.wait("drive.up", count=2)
            async with harness.fp.transaction() as tx:
                second = await after.submit(tx)
            await harness.until_state(second.job_id, "finished")
            goes_on.set()
            await harness.until_all_ended()
    assert harness.metric("fencepost_jobs_claims_total", status="refused") == 0


async def test_a_flush_in_the_middle_loses_nothing(harness: JobHarness) -> None:
    ran: list[int] = []

    @harness.fp.job("default")
    async def count(job: Job, n: int) -> None:
        ran.append(n)
        if n % 40 == 20:
            harness.redis.flushall()

    async with harness.fp.transaction() as tx:
        for n in range(200):
            await count.submit(tx, n=n)
    async with harness.working(quick(concurrency=5, batch=50)):
        await harness.until_all_ended(within=60)
    assert sorted(ran) == list(range(200))
    assert harness.metric("fencepost_jobs_redispatches_total", reason="wiped") > 0
    # A wipe is no outage: Redis answered all the time.
    assert harness.metric("fencepost_jobs_redis_up") == 1


async def test_what_redis_forgot_in_a_crash_is_driven_again(harness: JobHarness) -> None:
    """Entries of the last second before a crash may not be on disk, in the same life of Redis."""

    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await nothing.submit(tx)
    harness.redis.set("fencepost:{jobs}:incarnation", "same life")
    harness.redis.xadd("fencepost:{jobs}", {"old": "entry"}, id="5-0")
    with harness.database.connect() as dispatcher:
        dispatcher.execute(
            "select fencepost.job_dispatched(%s, %s, 'same life')", ([submitted.job_id], ["9999999999999-0"])
        )
    async with harness.working():
        await harness.until_state(submitted.job_id, "finished")
    assert harness.metric("fencepost_jobs_redispatches_total", reason="rewound") == 1


async def test_a_trimmed_entry_is_driven_again(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        jobs = [(await nothing.submit(tx)).job_id for _ in range(3)]
    with Signals() as signals:
        # Not read: the worker that dispatches them has no room.
        async with _driving_only(harness):
            await signals.wait("dispatch.ticked", count=3)
            await harness.until(
                "they are driven", lambda: all(harness.job(j).state == "dispatched" for j in jobs)
            )
    harness.redis.xtrim("fencepost:{jobs}", maxlen=1, approximate=False)
    async with harness.working():
        await harness.until_all_ended()
    assert harness.metric("fencepost_jobs_redispatches_total", reason="trimmed") == 2


async def test_an_entry_that_a_zombie_acknowledged_is_driven_again(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await nothing.submit(tx)
    async with _driving_only(harness):
        await harness.until_state(submitted.job_id, "dispatched")
    # One consumer reads it, and another acknowledges it: XACK does not check which one owns an entry.
    with suppress(ResponseError):  # The worker may have made it.
        harness.redis.xgroup_create("fencepost:{jobs}", "fencepost:workers", id="0")
    harness.redis.xreadgroup("fencepost:workers", "died", {"fencepost:{jobs}": ">"})
    [(entry_id, _)] = harness.redis.xrange("fencepost:{jobs}")
    assert harness.redis.xack("fencepost:{jobs}", "fencepost:workers", entry_id) == 1
    async with harness.working():
        await harness.until_state(submitted.job_id, "finished")
    assert harness.metric("fencepost_jobs_redispatches_total", reason="orphaned") == 1


async def test_an_entry_that_waits_its_turn_is_left_alone(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await nothing.submit(tx)
    async with _driving_only(harness):
        await harness.until_state(submitted.job_id, "dispatched")
        with Signals() as signals:
            await signals.wait("jobs.swept", count=20, within=60)
        assert harness.job(submitted.job_id).state == "dispatched"
        assert harness.redis.xlen("fencepost:{jobs}") == 1
        assert not [name for name, _ in harness.samples() if name == "fencepost_jobs_redispatches_total"]


async def test_a_stream_stays_below_half_of_its_bound_and_everything_is_driven(harness: JobHarness) -> None:
    most = 0

    @harness.fp.job("default")
    async def look(job: Job) -> None:
        nonlocal most
        most = max(most, harness.redis.xlen("fencepost:{jobs}"))

    async with harness.fp.transaction() as tx:
        for _ in range(400):
            await look.submit(tx)
    async with harness.working(quick(stream_maxlen=100, batch=10, concurrency=5)):
        await harness.until_all_ended(within=60)
    assert 0 < most <= 50
    assert harness.metric("fencepost_jobs_redispatches_total", reason="trimmed") == 0


async def test_entries_whose_reply_was_lost_are_found_at_once(
    database: Database, valkey: ValkeyServer, redis_url: str
) -> None:
    """Not after the time that makes an entry abandoned, which is an hour here."""
    with Proxy.for_redis(valkey.url) as proxy:
        async with counting(database, proxy.url) as (harness, ran):
            async with harness.working(quick(reclaim_grace_seconds=3600)):
                await submit(harness, 5)
                await harness.until("five have run", lambda: len(ran) == 5)
                for _ in range(5):
                    proxy.lose_reply(nth=2)
                    await submit(harness, 10)
                    await harness.until_all_ended()
            assert once(harness, 55)


async def test_a_redis_that_hangs_stops_no_caller(database: Database, own_valkey: ValkeyServer) -> None:
    with Signals() as signals:
        async with counting(database, own_valkey.url) as (harness, _):
            harness.fp.settings = harness.fp.settings.model_copy(update={"redis_reply_seconds": 0.5})
            async with harness.working():
                await signals.wait("drive.up")
                own_valkey.pause()
                await submit(harness, 30)
                await harness.until_all_ended()
                own_valkey.resume()
                await signals.wait("drive.up", count=2)
            assert once(harness, 30)


async def test_a_redis_that_is_full_stops_no_caller(harness: JobHarness) -> None:
    ran: list[int] = []

    @harness.fp.job("default")
    async def count(job: Job) -> None:
        ran.append(job.id)

    harness.redis.config_set("maxmemory", "1")
    try:
        async with harness.fp.transaction() as tx:
            for _ in range(20):
                await count.submit(tx)
        async with harness.working():
            await harness.until("all have run", lambda: len(ran) == 20)
            assert harness.metric("fencepost_jobs_redis_up") == 0
    finally:
        harness.redis.config_set("maxmemory", "0")


async def test_a_restarted_redis_that_kept_its_entries_runs_nothing_twice(
    database: Database, persistent_valkey: ValkeyServer
) -> None:
    async with counting(database, persistent_valkey.url) as (harness, ran):
        await submit(harness, 200)
        async with harness.working(quick(concurrency=4)):
            await harness.until("some have run", lambda: len(ran) > 20)
            await asyncio.to_thread(persistent_valkey.restart)
            await harness.until_all_ended(within=60)
            await harness.until_empty()
        assert once(harness, 200)


@asynccontextmanager
async def _driving_only(harness: JobHarness) -> AsyncGenerator[None]:
    """A worker whose only place is taken: it drives and sweeps, and reads nothing."""
    took_place, let_go = asyncio.Event(), asyncio.Event()

    @harness.fp.job("obstacle", kind="obstacle")
    async def obstacle(job: Job) -> None:
        took_place.set()
        await let_go.wait()

    async with harness.fp.transaction() as tx:
        await obstacle.options(priority=0).submit(tx)
    # The obstacle is all there is at first: claimed while what is tested is not yet driven.
    harness.execute(
        "update fencepost.job_waiting set run_at = run_at + interval '1 hour' where queue <> 'obstacle'"
    )
    async with harness.working(quick(concurrency=1)) as worker:
        await asyncio.wait_for(took_place.wait(), 60)
        harness.execute("update fencepost.job_waiting set run_at = run_at - interval '1 hour'")
        try:
            yield
        finally:
            # In this order, so that the place is not used for anything else.
            worker.stop()
            let_go.set()
