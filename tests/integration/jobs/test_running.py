"""From the submission in the user's transaction to the result."""

import asyncio
import threading
from typing import Any

import psycopg
import pytest

from fencepost.drive.lanes import stream_of
from fencepost.errors import InvalidInput
from fencepost.jobs.job import Job
from tests.integration.jobs.scene import Scene, quick


async def test_a_job_runs_and_leaves_its_result(scene: Scene) -> None:
    @scene.fp.job("default")
    async def double(job: Job, x: int) -> dict[str, int]:
        return {"doubled": 2 * x, "job": job.id, "attempt": job.attempt}

    async with scene.fp.transaction() as tx:
        submitted = await double.submit(tx, x=21)
    async with scene.working():
        seen = await scene.until_state(submitted.job_id, "finished")
    assert seen.result == {"doubled": 42, "job": submitted.job_id, "attempt": 1}
    assert (seen.final_status, seen.attempt, seen.tries) == ("ok", 1, 1)


async def test_a_submission_that_is_rolled_back_never_was(scene: Scene) -> None:
    ran: list[int] = []

    @scene.fp.job("default")
    async def note(job: Job, x: int) -> None:
        ran.append(x)

    async def change_ones_mind() -> None:
        async with scene.fp.transaction() as tx:
            await tx.execute("insert into effect (note) values ('beside it')")
            await note.submit(tx, x=1)
            raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        await change_ones_mind()
    async with scene.fp.transaction() as tx:
        kept = await note.submit(tx, x=2)
    async with scene.working():
        await scene.until_state(kept.job_id, "finished")
    assert ran == [2]
    assert scene.value("select count(*) from fencepost.job") == 1
    assert scene.value("select count(*) from effect") == 0


async def test_a_job_is_submitted_over_a_connection_of_ones_own(scene: Scene) -> None:
    @scene.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with await psycopg.AsyncConnection.connect(scene.database.url) as mine:
        submitted = await nothing.submit(mine)
        assert scene.value("select count(*) from fencepost.job") == 0
        await mine.commit()
    async with scene.working():
        await scene.until_state(submitted.job_id, "finished")


async def test_a_payload_that_does_not_fit_is_refused_where_it_is_submitted(scene: Scene) -> None:
    @scene.fp.job("default")
    async def typed(job: Job, x: int) -> None: ...

    wrong: Any = {"x": "many"}  # As from code that nobody type-checks.
    async with scene.fp.transaction() as tx:
        with pytest.raises(InvalidInput):
            await typed.submit(tx, **wrong)


async def test_the_handlers_own_writes_commit_with_the_finish(scene: Scene) -> None:
    @scene.fp.job("default")
    async def write(job: Job) -> None:
        async with job.finish({"wrote": True}, final_status="accepted") as tx:
            await tx.execute("insert into effect (job_id, attempt) values (%s, %s)", (job.id, job.attempt))

    async with scene.fp.transaction() as tx:
        submitted = await write.submit(tx)
    async with scene.working():
        seen = await scene.until_state(submitted.job_id, "finished")
        await scene.until("its entry is settled", lambda: scene.metric("worker_active_jobs") == 0)
    assert (seen.final_status, seen.result) == ("accepted", {"wrote": True})
    assert scene.rows("select job_id, attempt from effect") == [(submitted.job_id, 1)]
    assert scene.redis.xlen("deepoj:jobs") == 0


async def test_a_block_that_fails_takes_its_writes_and_the_finish_with_it(scene: Scene) -> None:
    @scene.fp.job("default", attempts=1)
    async def fail(job: Job) -> None:
        async with job.finish() as tx:
            await tx.execute("insert into effect (job_id) values (%s)", (job.id,))
            raise ValueError("in the middle")

    async with scene.fp.transaction() as tx:
        submitted = await fail.submit(tx)
    async with scene.working():
        seen = await scene.until_state(submitted.job_id, "dead")
    assert seen.error == "ValueError: in the middle"
    assert scene.value("select count(*) from effect") == 0


async def test_sync_handlers_run_in_threads_beside_each_other(scene: Scene) -> None:
    together = threading.Barrier(5, timeout=60)

    @scene.fp.job("default")
    def meet(job: Job, x: int) -> str:
        together.wait()
        with job.finish_sync({"x": x}) as tx:
            tx.execute("insert into effect (job_id, attempt) values (%s, %s)", (job.id, job.attempt))
        return threading.current_thread().name

    async with scene.fp.transaction() as tx:
        for x in range(5):
            await meet.submit(tx, x=x)
    async with scene.working():
        await scene.until_all_ended()
    assert scene.value("select count(*) from effect") == 5
    assert scene.value("select count(*) from fencepost.jobs where state = 'finished'") == 5


async def test_async_handlers_run_beside_each_other_within_the_capacity(scene: Scene) -> None:
    running, most = 0, 0
    crowded = asyncio.Event()

    @scene.fp.job("default")
    async def crowd(job: Job) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 7:
            crowded.set()
        await crowded.wait()
        await asyncio.sleep(0.01)
        running -= 1

    async with scene.fp.transaction() as tx:
        for _ in range(100):
            await crowd.submit(tx)
    async with scene.working(quick(concurrency=7)):
        await scene.until_all_ended()
    assert most == 7


async def test_progress_is_seen_while_the_job_runs(scene: Scene) -> None:
    go_on = asyncio.Event()

    @scene.fp.job("default")
    async def slow(job: Job) -> None:
        await job.progress({"done": 1, "of": 3})
        await go_on.wait()

    async with scene.fp.transaction() as tx:
        submitted = await slow.submit(tx)
    async with scene.working():
        await scene.until("its progress is seen", lambda: scene.job(submitted.job_id).progress is not None)
        assert scene.job(submitted.job_id).progress == {"done": 1, "of": 3}
        go_on.set()
        await scene.until_state(submitted.job_id, "finished")


async def test_a_duplicate_in_the_stream_runs_once(scene: Scene) -> None:
    ran: list[int] = []

    # A duplicate that is read while the job runs is left to the reclaimer, for as long as the lease.
    @scene.fp.job("default", lease=2)
    async def note(job: Job) -> None:
        ran.append(job.id)

    async with scene.fp.transaction() as tx:
        submitted = await note.submit(tx)
    fields = {"job_id": submitted.job_id, "enqueue_ts": 1, "payload_ref": "x", "priority": 1}
    for lane in range(4):
        for _ in range(5):
            scene.redis.xadd(stream_of("deepoj:jobs", "default", lane), fields)
    async with scene.working():
        await scene.until_state(submitted.job_id, "finished")
        await scene.until_empty()
    assert ran == [submitted.job_id]


async def test_a_job_of_another_version_goes_back_for_somebody_who_knows_its_kind(scene: Scene) -> None:
    @scene.fp.job("default")
    async def known(job: Job) -> None: ...

    with scene.database.connect() as other:
        row = other.execute("select job_id from fencepost.job_submit('default', 'unknown', '{}')").fetchone()
    assert row is not None
    async with scene.working():
        await scene.until("it was given back", lambda: "released" in scene.events(row[0]))
        seen = scene.job(row[0])
    # Its try is not counted: a deploy in progress must not kill jobs.
    assert (seen.state, seen.tries) == ("pending", 0)


async def test_many_queues_and_lanes_are_served_by_one_worker(scene: Scene) -> None:
    seen: set[tuple[str, int]] = set()

    @scene.fp.job("mail", kind="mail")
    async def mail(job: Job, lane: int) -> None:
        seen.add((job.queue, lane))

    @scene.fp.job("mail:urgent", kind="urgent mail")
    async def urgent(job: Job, lane: int) -> None:
        seen.add((job.queue, lane))

    async with scene.fp.transaction() as tx:
        for lane in range(4):
            await mail.options(lane=lane).submit(tx, lane=lane)
            await urgent.options(lane=lane).submit(tx, lane=lane)
    async with scene.working():
        await scene.until_all_ended()
    assert seen == {(queue, lane) for queue in ("mail", "mail:urgent") for lane in range(4)}
