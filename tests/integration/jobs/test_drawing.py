"""A backlog is claimed where it lies, and Redis calls those who wait."""

import asyncio

import pytest

from fencepost.jobs import _fetcher as fetcher
from fencepost.jobs._dispatcher import INVITATION_SECONDS, Dispatcher
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import RedisHealth
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.metrics import Metrics
from fencepost.redis_streams.stream_names import NORMAL, stream_of
from fencepost.testing import Signals
from tests.integration.jobs.harness import JobHarness, quick

BATCH = 10
BACKLOG = 400
HAND_DRIVEN = quick(batch=BATCH)
SINGLES_MAX = 100


@pytest.fixture
def draws_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that draws does not stop because this machine is busy with something else for a moment."""
    monkeypatch.setattr(fetcher, "DRAWING_SECONDS", 60.0)


def declare(harness: JobHarness) -> list[int]:
    ran: list[int] = []

    @harness.fp.job("default", lease=5)
    async def note(job: Job) -> None:
        ran.append(job.id)

    return ran


async def submit(harness: JobHarness, count: int) -> list[int]:
    payload: dict[str, Json] = {}
    submitted = await harness.fp.run(kernel_job.submit_many("default", "note", [payload] * count))
    return [job.job_id for job in submitted]


def driven(harness: JobHarness) -> float:
    return harness.metric("fencepost_jobs_dispatches_total", status="ok", reason="")


@pytest.mark.usefixtures("draws_on")
async def test_a_backlog_is_claimed_where_it_lies(harness: JobHarness) -> None:
    ran = declare(harness)
    jobs = await submit(harness, BACKLOG)

    async with harness.working(quick(batch=BATCH, concurrency=BATCH * 4)):
        await harness.until_all_ended()
        await harness.until_empty()

    assert sorted(ran) == jobs
    assert 0 < driven(harness) < BACKLOG / 4


async def test_a_caller_that_has_drawn_all_there_was_is_called_by_redis_again(harness: JobHarness) -> None:
    declare(harness)
    await submit(harness, BACKLOG)
    with Signals() as signals:
        async with harness.working(quick(batch=BATCH, concurrency=BATCH * 4)):
            await signals.wait("worker.drawn", within=60)
            await harness.until_all_ended()
            before = driven(harness)
            for _ in range(SINGLES_MAX):
                await submit(harness, 1)
                await harness.until_all_ended()
                # The first of them may be claimed: the worker goes on for a moment.
                if driven(harness) >= before + 3:
                    return
    pytest.fail(f"of {SINGLES_MAX} jobs, one after another, Redis drove {driven(harness) - before}")


async def test_a_caller_that_has_few_places_does_not_draw(harness: JobHarness) -> None:
    """He would ask PostgreSQL for every one of them."""
    ran = declare(harness)
    await submit(harness, BACKLOG)

    async with harness.working(quick(batch=BATCH, concurrency=BATCH // 2 - 1, stream_maxlen=100)):
        await harness.until_all_ended()

    assert len(ran) == driven(harness) == BACKLOG


@pytest.mark.usefixtures("draws_on")
async def test_what_lies_in_the_streams_is_not_drawn_past_them(harness: JobHarness, redis_url: str) -> None:
    declare(harness)
    theirs = await submit(harness, BATCH)
    await drive(harness, redis_url, draws=False)
    [stream] = harness.redis.scan_iter(_type="stream")
    harness.redis.xgroup_create(stream, HAND_DRIVEN.stream_group, "0")
    harness.redis.xreadgroup(HAND_DRIVEN.stream_group, "a fellow", {stream: ">"})
    await submit(harness, BACKLOG)

    async with harness.working(quick(batch=BATCH, concurrency=BATCH * 4, reclaim_grace_seconds=60)):
        await harness.until("only theirs are left", lambda: harness.left() == len(theirs))

    assert driven(harness) < BACKLOG / 2
    assert {harness.job(job_id).state for job_id in theirs} == {"dispatched"}


async def drive(
    harness: JobHarness, redis_url: str, *, draws: bool, leaves_some: bool = True, ticks: int = 1
) -> list[float]:
    metrics = JobMetrics.on(Metrics())
    redis = RedisHealth(redis_url, metrics, HAND_DRIVEN, reply_seconds=5)
    await redis.probe()
    dispatcher = Dispatcher(
        "default",
        harness.fp,
        redis,
        metrics,
        HAND_DRIVEN,
        draws=lambda: draws,
        leaves_some=lambda: leaves_some,
    )
    try:
        return [await dispatcher.tick() for _ in range(ticks)]
    finally:
        await redis.close()


@pytest.mark.parametrize(
    ("draws", "readers", "entries"), [(True, 2, BATCH), (True, 1, 0), (False, 2, BATCH * 4)]
)
async def test_while_its_worker_draws_a_dispatcher_only_invites_fellows(
    harness: JobHarness, redis_url: str, draws: bool, readers: int, entries: int
) -> None:
    stream = stream_of(HAND_DRIVEN.stream_key, "default", NORMAL)
    harness.redis.xgroup_create(stream, HAND_DRIVEN.stream_group, "0", mkstream=True)
    for number in range(readers):
        harness.redis.xgroup_createconsumer(stream, HAND_DRIVEN.stream_group, f"reader {number}")
    await submit(harness, BACKLOG)

    *_, rest_seconds = await drive(harness, redis_url, draws=draws, ticks=2)

    assert harness.entries() == entries
    assert (rest_seconds > 0) == draws
    assert rest_seconds <= INVITATION_SECONDS


async def test_a_worker_that_draws_all_there_is_invites_no_fellow(
    harness: JobHarness, redis_url: str
) -> None:
    stream = stream_of(HAND_DRIVEN.stream_key, "default", NORMAL)
    harness.redis.xgroup_create(stream, HAND_DRIVEN.stream_group, "0", mkstream=True)
    for number in range(2):
        harness.redis.xgroup_createconsumer(stream, HAND_DRIVEN.stream_group, f"reader {number}")
    await submit(harness, BACKLOG)

    *_, rest_seconds = await drive(harness, redis_url, draws=True, leaves_some=False, ticks=2)

    assert harness.entries() == 0
    assert 0 < rest_seconds <= INVITATION_SECONDS


async def test_a_waiting_request_joins_the_batch(harness: JobHarness) -> None:
    together = asyncio.Barrier(2)
    owners: set[str] = set()

    @harness.fp.job("default", lease=60)
    async def note(job: Job) -> None:
        if job.owner not in owners:
            owners.add(job.owner)
            async with asyncio.timeout(60):
                await together.wait()

    settings = quick(batch=BATCH, concurrency=BATCH * 4, lease_seconds=60)
    async with harness.working(settings), harness.working(settings):
        await submit(harness, BACKLOG)
        await harness.until_all_ended()

    assert len(owners) == 2


async def test_what_is_driven_does_not_wait_for_the_disk_and_a_claim_does(
    harness: JobHarness, redis_url: str
) -> None:
    """A claim that a dying server forgets would be given out again, with the same attempt."""
    harness.execute("""
        create table durable (how text, setting text);
        create function note_durable() returns trigger language plpgsql security definer as $f$
        begin
          insert into public.durable values (tg_table_name, current_setting('synchronous_commit'));
          return null;
        end $f$;
        create trigger note_driven after update on fencepost.job_waiting
          for each statement execute function note_durable();
        create trigger note_claimed after insert on fencepost.job_running
          for each statement execute function note_durable();
    """)
    jobs = await submit(harness, BATCH)

    await drive(harness, redis_url, draws=False)
    await harness.fp.run(kernel_job.claim_many(jobs, "me"))

    assert set(harness.rows("select how, setting from durable")) == {
        ("job_waiting", "off"),
        ("job_running", "on"),
    }
