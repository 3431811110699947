"""Jobs and entries of owners that were lost."""

import asyncio
from typing import Any

import psycopg
import pytest

from fencepost.errors import InvalidInput
from fencepost.jobs.job import Job
from fencepost.testing import Clock, Signals
from tests.integration.jobs.scene import Scene, quick

STREAM = "deepoj:jobs"
GROUP = "deepoj:workers"


@pytest.fixture
def ran(scene: Scene) -> list[int]:
    """The jobs that ran, in order; the handler's lease is a minute."""
    jobs: list[int] = []

    @scene.fp.job("default", lease=60)
    async def note(job: Job) -> None:
        jobs.append(job.id)

    return jobs


async def submit(scene: Scene) -> int:
    [handler] = scene.fp.handlers
    async with scene.fp.transaction() as tx:
        return int((await handler.submit(tx)).job_id)


def abandoned(scene: Scene, job_id: int, consumer: str = "gone", idle_ms: int = 3_600_000) -> str:
    """An entry for the job that was delivered to somebody long ago; answers its id."""
    entry_id = str(
        scene.redis.xadd(STREAM, {"job_id": job_id, "enqueue_ts": 1, "payload_ref": "x", "priority": 1})
    )
    if not scene.redis.exists(STREAM) or not scene.redis.xinfo_groups(STREAM):
        scene.redis.xgroup_create(STREAM, GROUP, id="0")
    scene.redis.xreadgroup(GROUP, consumer, {STREAM: ">"})
    scene.redis.xclaim(STREAM, GROUP, consumer, 0, [entry_id], idle=idle_ms)
    return entry_id


def claim(scene: Scene, job_id: int, owner: str = "other") -> int:
    with scene.database.connect() as connection:
        row: Any = connection.execute(
            "select attempt from fencepost.job_claim(%s, %s)", (job_id, owner)
        ).fetchone()
        return int(row[0])


def decisions(scene: Scene) -> dict[tuple[str, str], float]:
    return {
        (labels["status"], labels["reason"]): scene.metric("worker_reclaim_total", **labels)
        for name, labels in scene.samples()
        if name == "worker_reclaim_total" and scene.metric(name, **labels)
    }


def recorded(scene: Scene, job_id: int, entry_id: str) -> None:
    """The truth knows that the job was driven by this entry, so that nobody drives it anew."""
    scene.redis.set("{deepoj:jobs}:incarnation", "life")
    with scene.database.connect() as connection:
        connection.execute("select fencepost.job_dispatched(%s, %s, 'life')", ([job_id], [entry_id]))


async def test_claimed_an_entry_of_a_worker_that_died_before_its_claim_is_run(
    scene: Scene, ran: list[int]
) -> None:
    job_id = await submit(scene)
    recorded(scene, job_id, abandoned(scene, job_id))
    async with scene.working():
        await scene.until_state(job_id, "finished")
        await scene.until_empty()
    assert ran == [job_id]
    assert decisions(scene) == {("claimed", ""): 1}


async def test_done_or_stale_an_entry_of_a_finished_job_is_dropped(scene: Scene, ran: list[int]) -> None:
    job_id = await submit(scene)
    attempt = claim(scene, job_id)
    with scene.database.connect() as connection:
        connection.execute("select fencepost.job_finish(%s, %s, 'other')", (job_id, attempt))
    abandoned(scene, job_id)
    async with scene.working():
        await scene.until_empty()
    assert ran == []
    assert decisions(scene) == {("dropped", "done_or_stale"): 1}


async def test_not_found_an_entry_of_no_job_is_dropped(scene: Scene, ran: list[int]) -> None:
    abandoned(scene, 12345)
    async with scene.working():
        await scene.until_empty()
    assert decisions(scene) == {("dropped", "not_found"): 1}


async def test_lease_still_valid_an_entry_is_left_to_the_holder(scene: Scene, ran: list[int]) -> None:
    job_id = await submit(scene)
    claim(scene, job_id)
    entry_id = abandoned(scene, job_id)
    async with scene.working():
        await scene.until("it was looked at", lambda: ("left", "lease_still_valid") in decisions(scene))
        assert scene.redis.xrange(STREAM, entry_id, entry_id)
        assert scene.redis.xpending_range(STREAM, GROUP, entry_id, entry_id, 1)
    assert ran == []
    assert scene.job(job_id).owner == "other"


async def test_db_error_an_entry_is_kept_and_asked_for_again(scene: Scene, ran: list[int]) -> None:
    job_id = await submit(scene)
    recorded(scene, job_id, abandoned(scene, job_id))
    scene.execute("alter function fencepost.job_claim_many rename to job_claim_many_away")
    async with scene.working():
        await scene.until("the claim failed", lambda: ("error", "db_error") in decisions(scene))
        assert scene.redis.xlen(STREAM) == 1
        assert ran == []
        scene.execute("alter function fencepost.job_claim_many_away rename to job_claim_many")
        await scene.until_state(job_id, "finished")
        await scene.until_empty()
    assert ran == [job_id]


async def test_an_expired_job_is_found_in_postgresql_whatever_redis_holds(
    scene: Scene, ran: list[int], clock: Clock
) -> None:
    job_id = await submit(scene)
    claim(scene, job_id)
    async with scene.working():
        with Signals() as signals:
            await signals.wait("reclaim.ticked", count=3)
        assert scene.job(job_id).state == "running"
        clock.advance(61)
        seen = await scene.until_state(job_id, "finished")
    assert (ran, seen.attempt, seen.tries) == ([job_id], 2, 2)
    assert scene.events(job_id) == ["lost"]
    assert decisions(scene)["pending", "worker_lost"] == 1


async def test_an_abandoned_entry_behind_many_fresh_ones_is_reached(scene: Scene, ran: list[int]) -> None:
    """One call scans ten entries: from 0-0 each time, what lies behind would never be met."""
    for _ in range(15):
        job_id = await submit(scene)
        claim(scene, job_id)
        abandoned(scene, job_id, "alive", idle_ms=0)
    last = await submit(scene)
    recorded(scene, last, abandoned(scene, last, idle_ms=3 * 3_600_000))
    async with scene.working(quick(reclaim_count=1, lease_seconds=3600)):
        await scene.until_state(last, "finished")
    assert ran == [last]


async def test_a_holder_that_stands_still_inside_its_fence_is_ended_past_the_grace(
    scene: Scene, ran: list[int], clock: Clock
) -> None:
    job_id = await submit(scene)
    attempt = claim(scene, job_id)
    with psycopg.connect(scene.database.url) as holder:
        holder.execute("select fencepost.job_fence(%s, %s, 'other')", (job_id, attempt))
        # COPY: no timeout of the server ends him.
        holder.pgconn.exec_(b"copy effect (note) from stdin")
        clock.advance(61)
        async with scene.working():
            await scene.until_state(job_id, "finished", within=60)
        holder.close()
    assert ran == [job_id]
    assert scene.value("select count(*) from effect") == 0
    assert decisions(scene)["evicted", "worker_lost"] == 1


async def test_a_full_worker_takes_nothing_over(scene: Scene) -> None:
    go_on, began = asyncio.Event(), asyncio.Event()

    @scene.fp.job("default", lease=60)
    async def occupy(job: Job) -> None:
        began.set()
        await go_on.wait()

    first = await submit(scene)
    async with scene.working(quick(concurrency=1)):
        await asyncio.wait_for(began.wait(), 60)
        second = await submit(scene)
        recorded(scene, second, abandoned(scene, second))
        with Signals() as signals:
            await signals.wait("reclaim.ticked", count=5)
        assert scene.job(second).state == "dispatched"
        go_on.set()
        await scene.until_all_ended()
    assert scene.job(first).state == "finished"


async def test_a_takeover_that_comes_to_nothing_leaves_the_place_free(scene: Scene, ran: list[int]) -> None:
    """The only place is reserved for an idle entry at the moment when the worker looks for one."""
    finished = await submit(scene)
    attempt = claim(scene, finished)
    with scene.database.connect() as connection:
        connection.execute("select fencepost.job_finish(%s, %s, 'other')", (finished, attempt))
    abandoned(scene, finished)
    async with scene.working(quick(concurrency=1)):
        await scene.until_empty()
        # From here on nothing ends that could tell the worker of a free place.
        last = await submit(scene)
        await scene.until_state(last, "finished")
    assert ran == [last]


async def test_a_worker_without_handlers_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidInput, match="needs a handler"):
        scene.fp.worker(quick())
