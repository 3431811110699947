"""Jobs and entries of owners that were lost."""

import asyncio
from typing import Any

import psycopg
import pytest

from fencepost.errors import InvalidInput
from fencepost.jobs.job import Job
from fencepost.testing import Clock, Signals
from tests.integration.jobs.harness import JobHarness, quick

STREAM = "fencepost:{jobs}"
GROUP = "fencepost:workers"


@pytest.fixture
def ran(harness: JobHarness) -> list[int]:
    """The jobs that ran, in order; the handler's lease is a minute."""
    jobs: list[int] = []

    @harness.fp.job("default", lease=60)
    async def note(job: Job) -> None:
        jobs.append(job.id)

    return jobs


async def submit(harness: JobHarness) -> int:
    [handler] = harness.fp.handlers
    async with harness.fp.transaction() as tx:
        return int((await handler.submit(tx)).job_id)


def abandoned(harness: JobHarness, job_id: int, consumer: str = "gone", idle_ms: int = 3_600_000) -> str:
    """An entry for the job that was delivered to a consumer long ago; answers its id."""
    entry_id = str(
        harness.redis.xadd(STREAM, {"job_id": job_id, "enqueue_ts": 1, "payload_ref": "x", "priority": 1})
    )
    if not harness.redis.exists(STREAM) or not harness.redis.xinfo_groups(STREAM):
        harness.redis.xgroup_create(STREAM, GROUP, id="0")
    harness.redis.xreadgroup(GROUP, consumer, {STREAM: ">"})
    harness.redis.xclaim(STREAM, GROUP, consumer, 0, [entry_id], idle=idle_ms)
    return entry_id


def claim(harness: JobHarness, job_id: int, owner: str = "other") -> int:
    with harness.database.connect() as connection:
        row: Any = connection.execute(
            "select attempt from fencepost.job_claim(%s, %s)", (job_id, owner)
        ).fetchone()
        return int(row[0])


def decisions(harness: JobHarness) -> dict[tuple[str, str], float]:
    return {
        (labels["status"], labels["reason"]): harness.metric("fencepost_jobs_reclaims_total", **labels)
        for name, labels in harness.samples()
        if name == "fencepost_jobs_reclaims_total" and harness.metric(name, **labels)
    }


def recorded(harness: JobHarness, job_id: int, entry_id: str) -> None:
    """The database knows that the job was dispatched by this entry, so that it is not dispatched again."""
    harness.redis.set("fencepost:{jobs}:incarnation", "life")
    with harness.database.connect() as connection:
        connection.execute("select fencepost.job_dispatched(%s, %s, 'life')", ([job_id], [entry_id]))


async def test_claimed_an_entry_of_a_worker_that_died_before_its_claim_is_run(
    harness: JobHarness, ran: list[int]
) -> None:
    job_id = await submit(harness)
    recorded(harness, job_id, abandoned(harness, job_id))
    async with harness.working():
        await harness.until_state(job_id, "finished")
        await harness.until_empty()
    assert ran == [job_id]
    assert decisions(harness) == {("claimed", ""): 1}


async def test_done_or_stale_an_entry_of_a_finished_job_is_dropped(
    harness: JobHarness, ran: list[int]
) -> None:
    job_id = await submit(harness)
    attempt = claim(harness, job_id)
    with harness.database.connect() as connection:
        connection.execute("select fencepost.job_finish(%s, %s, 'other')", (job_id, attempt))
    abandoned(harness, job_id)
    async with harness.working():
        await harness.until_empty()
    assert ran == []
    assert decisions(harness) == {("dropped", "done_or_stale"): 1}


async def test_not_found_an_entry_of_no_job_is_dropped(harness: JobHarness, ran: list[int]) -> None:
    abandoned(harness, 12345)
    async with harness.working():
        await harness.until_empty()
    assert decisions(harness) == {("dropped", "not_found"): 1}


async def test_lease_still_valid_an_entry_is_left_to_the_holder(harness: JobHarness, ran: list[int]) -> None:
    job_id = await submit(harness)
    claim(harness, job_id)
    entry_id = abandoned(harness, job_id)
    async with harness.working():
        await harness.until("it was looked at", lambda: ("left", "lease_still_valid") in decisions(harness))
        assert harness.redis.xrange(STREAM, entry_id, entry_id)
        assert harness.redis.xpending_range(STREAM, GROUP, entry_id, entry_id, 1)
    assert ran == []
    assert harness.job(job_id).owner == "other"


async def test_db_error_an_entry_is_kept_and_asked_for_again(harness: JobHarness, ran: list[int]) -> None:
    job_id = await submit(harness)
    recorded(harness, job_id, abandoned(harness, job_id))
    harness.execute("alter function fencepost.job_claim_many rename to job_claim_many_away")
    async with harness.working():
        await harness.until("the claim failed", lambda: ("error", "db_error") in decisions(harness))
        assert harness.redis.xlen(STREAM) == 1
        assert ran == []
        harness.execute("alter function fencepost.job_claim_many_away rename to job_claim_many")
        await harness.until_state(job_id, "finished")
        await harness.until_empty()
    assert ran == [job_id]


async def test_an_expired_job_is_found_in_postgresql_whatever_redis_holds(
    harness: JobHarness, ran: list[int], clock: Clock
) -> None:
    job_id = await submit(harness)
    claim(harness, job_id)
    async with harness.working():
        with Signals() as signals:
            await signals.wait("reclaim.ticked", count=3)
        assert harness.job(job_id).state == "running"
        clock.advance(61)
        seen = await harness.until_state(job_id, "finished")
    assert (ran, seen.attempt, seen.tries) == ([job_id], 2, 2)
    assert harness.events(job_id) == ["lost"]
    assert decisions(harness)["pending", "worker_lost"] == 1


async def test_an_abandoned_entry_behind_many_fresh_ones_is_reached(
    harness: JobHarness, ran: list[int]
) -> None:
    """One call scans ten entries: from 0-0 each time, what lies behind would never be met."""
    for _ in range(15):
        job_id = await submit(harness)
        claim(harness, job_id)
        abandoned(harness, job_id, "alive", idle_ms=0)
    last = await submit(harness)
    recorded(harness, last, abandoned(harness, last, idle_ms=3 * 3_600_000))
    async with harness.working(quick(reclaim_count=1, lease_seconds=3600)):
        await harness.until_state(last, "finished")
    assert ran == [last]


async def test_a_holder_that_stands_still_inside_its_fence_is_ended_past_the_grace(
    harness: JobHarness, ran: list[int], clock: Clock
) -> None:
    job_id = await submit(harness)
    attempt = claim(harness, job_id)
    with psycopg.connect(harness.database.url) as holder:
        holder.execute("select fencepost.job_fence(%s, %s, 'other')", (job_id, attempt))
        # COPY: no timeout of the server ends the holder.
        holder.pgconn.exec_(b"copy effect (note) from stdin")
        clock.advance(61)
        async with harness.working():
            await harness.until_state(job_id, "finished", within=60)
        holder.close()
    assert ran == [job_id]
    assert harness.value("select count(*) from effect") == 0
    assert decisions(harness)["evicted", "worker_lost"] == 1


async def test_a_full_worker_takes_nothing_over(harness: JobHarness) -> None:
    go_on, began = asyncio.Event(), asyncio.Event()

    @harness.fp.job("default", lease=60)
    async def occupy(job: Job) -> None:
        began.set()
        await go_on.wait()

    first = await submit(harness)
    async with harness.working(quick(concurrency=1)):
        await asyncio.wait_for(began.wait(), 60)
        second = await submit(harness)
        recorded(harness, second, abandoned(harness, second))
        with Signals() as signals:
            await signals.wait("reclaim.ticked", count=5)
        assert harness.job(second).state == "dispatched"
        go_on.set()
        await harness.until_all_ended()
    assert harness.job(first).state == "finished"


async def test_a_takeover_that_comes_to_nothing_leaves_the_place_free(
    harness: JobHarness, ran: list[int]
) -> None:
    """The only place is reserved for an idle entry at the moment when the worker looks for one."""
    finished = await submit(harness)
    attempt = claim(harness, finished)
    with harness.database.connect() as connection:
        connection.execute("select fencepost.job_finish(%s, %s, 'other')", (finished, attempt))
    abandoned(harness, finished)
    async with harness.working(quick(concurrency=1)):
        await harness.until_empty()
        # From here on nothing ends that could tell the worker of a free place.
        last = await submit(harness)
        await harness.until_state(last, "finished")
    assert ran == [last]


async def test_a_worker_without_handlers_is_refused(harness: JobHarness) -> None:
    with pytest.raises(InvalidInput, match="needs a handler"):
        harness.fp.jobs.worker(quick())
