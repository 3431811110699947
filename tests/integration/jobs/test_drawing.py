"""A backlog is claimed where it lies, and Redis calls those who wait."""

import asyncio

import pytest

from fencepost.drive.lanes import NORMAL, stream_of
from fencepost.jobs import intake
from fencepost.jobs.dispatcher import INVITATION_SECONDS, Dispatcher
from fencepost.jobs.drive_link import DriveLink
from fencepost.jobs.job import Job
from fencepost.jobs.metrics import JobMetrics
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.metrics import Metrics
from fencepost.testing import Signals
from tests.integration.jobs.scene import Scene, quick

BATCH = 10
BACKLOG = 400
HAND_DRIVEN = quick(batch=BATCH)
SINGLES_MAX = 100


@pytest.fixture
def draws_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever draws does not stop because this machine is busy with something else for a moment."""
    monkeypatch.setattr(intake, "DRAWING_SECONDS", 60.0)


def declare(scene: Scene) -> list[int]:
    ran: list[int] = []

    @scene.fp.job("default", lease=5)
    async def note(job: Job) -> None:
        ran.append(job.id)

    return ran


async def submit(scene: Scene, count: int) -> list[int]:
    payload: dict[str, Json] = {}
    submitted = await scene.fp.run(kernel_job.submit_many("default", "note", [payload] * count))
    return [job.job_id for job in submitted]


def driven(scene: Scene) -> float:
    return scene.metric("api_outbox_dispatch_total", status="ok", reason="")


@pytest.mark.usefixtures("draws_on")
async def test_a_backlog_is_claimed_where_it_lies(scene: Scene) -> None:
    ran = declare(scene)
    jobs = await submit(scene, BACKLOG)

    async with scene.working(quick(batch=BATCH, concurrency=BATCH * 4)):
        await scene.until_all_ended()
        await scene.until_empty()

    assert sorted(ran) == jobs
    assert 0 < driven(scene) < BACKLOG / 4


async def test_who_has_drawn_all_there_was_is_called_by_redis_again(scene: Scene) -> None:
    declare(scene)
    await submit(scene, BACKLOG)
    with Signals() as signals:
        async with scene.working(quick(batch=BATCH, concurrency=BATCH * 4)):
            await signals.wait("worker.drawn", within=60)
            await scene.until_all_ended()
            before = driven(scene)
            for _ in range(SINGLES_MAX):
                await submit(scene, 1)
                await scene.until_all_ended()
                # The first of them may be drawn: he goes on for a moment.
                if driven(scene) >= before + 3:
                    return
    pytest.fail(f"of {SINGLES_MAX} jobs, one after another, Redis drove {driven(scene) - before}")


async def test_who_has_few_places_does_not_draw(scene: Scene) -> None:
    """He would ask PostgreSQL for every one of them."""
    ran = declare(scene)
    await submit(scene, BACKLOG)

    async with scene.working(quick(batch=BATCH, concurrency=BATCH // 2 - 1, stream_maxlen=100)):
        await scene.until_all_ended()

    assert len(ran) == driven(scene) == BACKLOG


@pytest.mark.usefixtures("draws_on")
async def test_what_lies_in_the_streams_is_not_drawn_past_them(scene: Scene, redis_url: str) -> None:
    declare(scene)
    theirs = await submit(scene, BATCH)
    await drive(scene, redis_url, draws=False)
    [stream] = scene.redis.scan_iter(_type="stream")
    scene.redis.xgroup_create(stream, HAND_DRIVEN.stream_group, "0")
    scene.redis.xreadgroup(HAND_DRIVEN.stream_group, "a fellow", {stream: ">"})
    await submit(scene, BACKLOG)

    async with scene.working(quick(batch=BATCH, concurrency=BATCH * 4, reclaim_grace_seconds=60)):
        await scene.until("only theirs are left", lambda: scene.left() == len(theirs))

    assert driven(scene) < BACKLOG / 2
    assert {scene.job(job_id).state for job_id in theirs} == {"dispatched"}


async def drive(scene: Scene, redis_url: str, *, draws: bool, ticks: int = 1) -> list[float]:
    metrics = JobMetrics.on(Metrics())
    link = DriveLink(redis_url, metrics, HAND_DRIVEN, reply_seconds=5)
    await link.probe()
    dispatcher = Dispatcher("default", scene.fp, link, metrics, HAND_DRIVEN, draws=lambda: draws)
    try:
        return [await dispatcher.tick() for _ in range(ticks)]
    finally:
        await link.close()


@pytest.mark.parametrize(
    ("draws", "readers", "entries"), [(True, 2, BATCH), (True, 1, 0), (False, 2, BATCH * 4)]
)
async def test_while_its_worker_draws_a_dispatcher_only_invites_fellows(
    scene: Scene, redis_url: str, draws: bool, readers: int, entries: int
) -> None:
    stream = stream_of(HAND_DRIVEN.stream_key, "default", NORMAL)
    scene.redis.xgroup_create(stream, HAND_DRIVEN.stream_group, "0", mkstream=True)
    for number in range(readers):
        scene.redis.xgroup_createconsumer(stream, HAND_DRIVEN.stream_group, f"reader {number}")
    await submit(scene, BACKLOG)

    *_, rest_seconds = await drive(scene, redis_url, draws=draws, ticks=2)

    assert scene.entries() == entries
    assert (rest_seconds > 0) == draws
    assert rest_seconds <= INVITATION_SECONDS


async def test_a_fellow_who_waits_is_invited(scene: Scene) -> None:
    together = asyncio.Barrier(2)
    owners: set[str] = set()

    @scene.fp.job("default", lease=60)
    async def note(job: Job) -> None:
        if job.owner not in owners:
            owners.add(job.owner)
            async with asyncio.timeout(60):
                await together.wait()

    settings = quick(batch=BATCH, concurrency=BATCH * 4, lease_seconds=60)
    async with scene.working(settings), scene.working(settings):
        await submit(scene, BACKLOG)
        await scene.until_all_ended()

    assert len(owners) == 2


async def test_what_is_driven_does_not_wait_for_the_disk_and_a_claim_does(
    scene: Scene, redis_url: str
) -> None:
    """A claim that a dying server forgets would be given out again, with the same attempt."""
    scene.execute("""
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
    jobs = await submit(scene, BATCH)

    await drive(scene, redis_url, draws=False)
    await scene.fp.run(kernel_job.claim_many(jobs, "me"))

    assert set(scene.rows("select how, setting from durable")) == {
        ("job_waiting", "off"),
        ("job_running", "on"),
    }
