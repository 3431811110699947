"""An idle worker claims a job when it is notified of it, and leaves to the streams what it has no use for."""

import asyncio

import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.jobs._dispatcher import Dispatcher
from fencepost.jobs._fetcher import Fetcher
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import RedisHealth
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Json
from fencepost.metrics import Metrics
from fencepost.testing import at_crash_point
from tests.integration.jobs.harness import JobHarness, quick

MOST = 4
# Without a notification these jobs would wait for longer than a test does.
NOTIFIED = quick(notice_claims=MOST, poll_seconds=600, sweep_interval_seconds=600)


def declare(harness: JobHarness) -> list[int]:
    ran: list[int] = []

    @harness.fp.job("default", kind="note", lease=5)
    async def note(job: Job) -> None:
        ran.append(job.id)

    return ran


async def submit(harness: JobHarness, count: int = 1) -> list[int]:
    payload: dict[str, Json] = {}
    submitted = await harness.fp.run(kernel_job.submit_many("default", "note", [payload] * count))
    return [job.job_id for job in submitted]


def driven(harness: JobHarness) -> float:
    return harness.metric("fencepost_jobs_dispatches_total", status="ok", reason="")


async def test_an_idle_worker_claims_a_job_without_a_stream(harness: JobHarness) -> None:
    ran = declare(harness)
    async with harness.working(NOTIFIED):
        # The first may be committed while the worker starts, after its claim and before it asks what is due.
        [job_id] = await submit(harness)
        await harness.until_state(job_id, "finished")
        before = driven(harness)
        for _ in range(3):
            [job_id] = await submit(harness)
            await harness.until_state(job_id, "finished")

    assert len(ran) == 4
    assert driven(harness) == before


async def test_a_job_that_is_committed_between_claim_and_look_is_claimed_and_not_dispatched(
    harness: JobHarness, redis_url: str
) -> None:
    claims = 0

    async def on_notice(_queue: str) -> tuple[int, int]:
        nonlocal claims
        claims += 1
        if claims == 1:
            await submit(harness)
            return 0, MOST
        answers = await harness.fp.run(kernel_job.claim_by_priority("default", "me", MOST, dispatched=False))
        return len(answers), MOST

    metrics = JobMetrics.on(Metrics())
    redis = RedisHealth(redis_url, metrics, NOTIFIED, reply_seconds=5)
    await redis.probe()
    try:
        dispatcher = Dispatcher("default", harness.fp, redis, metrics, NOTIFIED, on_notice=on_notice)
        await dispatcher.tick()
    finally:
        await redis.close()

    assert claims == 2
    assert harness.entries() == 0
    assert harness.rows("select count(*) from fencepost.job_running") == [(1,)]


async def test_what_it_does_not_claim_goes_into_the_streams(harness: JobHarness) -> None:
    ran = declare(harness)
    jobs = await submit(harness, MOST * 5)
    async with harness.working(NOTIFIED):
        await harness.until_all_ended()
        await harness.until_empty()

    assert sorted(ran) == jobs
    assert driven(harness) > 0


async def test_a_busy_worker_leaves_jobs_to_the_streams(harness: JobHarness) -> None:
    """Others may be idle, and the streams give each job to one that asks."""
    began, go_on = asyncio.Queue[int](), asyncio.Event()

    @harness.fp.job("default", kind="note", lease=5)
    async def note(job: Job) -> None:
        began.put_nowait(job.id)
        await go_on.wait()

    async with harness.working(NOTIFIED.model_copy(update={"concurrency": 4})):
        for _ in range(3):
            await submit(harness)
            await asyncio.wait_for(began.get(), 60)
        before = driven(harness)
        await submit(harness)
        await asyncio.wait_for(began.get(), 60)
        assert driven(harness) == before + 1
        go_on.set()
        await harness.until_all_ended()


async def test_of_two_idle_workers_one_claims_a_job(
    harness: JobHarness, database: Database, redis_url: str
) -> None:
    ran = declare(harness)
    async with Fencepost(database.url, redis_url=redis_url) as other:

        @other.job("default", kind="note", lease=5)
        async def note(job: Job) -> None:
            ran.append(job.id)

        worker = other.jobs.worker(NOTIFIED)
        working = asyncio.create_task(worker.run())
        async with harness.working(NOTIFIED):
            jobs = [job_id for _ in range(20) for job_id in await submit(harness)]
            await harness.until_all_ended()
        worker.stop()
        await asyncio.wait_for(working, 60)

    assert sorted(ran) == jobs
    assert {harness.job(job_id).attempt for job_id in jobs} == {1}


async def test_a_stop_does_not_lose_a_claim_on_a_notification(harness: JobHarness) -> None:
    declare(harness)
    [job_id] = await submit(harness)
    worker = harness.fp.jobs.worker(NOTIFIED)
    with at_crash_point("jobs.notice.after_claim", worker.stop):
        await asyncio.wait_for(worker.run(), 60)

    assert harness.job(job_id).state == "finished"


async def test_a_planted_bug_keeps_what_was_not_claimed_from_the_streams(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the second test sees when a worker says that it has claimed everything."""
    claim = Fetcher.claim_on_notice
    asked = asyncio.Event()

    async def boast(self: Fetcher, queue: str) -> tuple[int, int]:
        claimed, _ = await claim(self, queue)
        asked.set()
        return claimed, claimed + 1

    monkeypatch.setattr(Fetcher, "claim_on_notice", boast)
    declare(harness)
    await submit(harness, MOST * 5)
    async with harness.working(NOTIFIED):
        await asyncio.wait_for(asked.wait(), 60)
        await harness.until("some have ended", lambda: harness.left() < MOST * 5)
        assert driven(harness) == 0
