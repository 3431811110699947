"""From the submission in the user's transaction to the result."""

import asyncio
import threading
from typing import Any

import psycopg
import pytest

from fencepost.errors import InvalidInput
from fencepost.jobs.job import Job
from fencepost.redis_streams.stream_names import stream_of
from tests.integration.jobs.harness import JobHarness, quick


async def test_a_job_runs_and_leaves_its_result(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def double(job: Job, x: int) -> dict[str, int]:
        return {"doubled": 2 * x, "job": job.id, "attempt": job.attempt}

    async with harness.fp.transaction() as tx:
        submitted = await double.submit(tx, x=21)
    async with harness.working():
        seen = await harness.until_state(submitted.job_id, "finished")
    assert seen.result == {"doubled": 42, "job": submitted.job_id, "attempt": 1}
    assert (seen.final_status, seen.attempt, seen.tries) == ("ok", 1, 1)


async def test_a_submission_that_is_rolled_back_never_was(harness: JobHarness) -> None:
    ran: list[int] = []

    @harness.fp.job("default")
    async def note(job: Job, x: int) -> None:
        ran.append(x)

    async def change_ones_mind() -> None:
        async with harness.fp.transaction() as tx:
            await tx.execute("insert into effect (note) values ('beside it')")
            await note.submit(tx, x=1)
            raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        await change_ones_mind()
    async with harness.fp.transaction() as tx:
        kept = await note.submit(tx, x=2)
    async with harness.working():
        await harness.until_state(kept.job_id, "finished")
    assert ran == [2]
    assert harness.value("select count(*) from fencepost.job") == 1
    assert harness.value("select count(*) from effect") == 0


async def test_a_job_is_submitted_over_a_connection_of_ones_own(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with await psycopg.AsyncConnection.connect(harness.database.url) as mine:
        submitted = await nothing.submit(mine)
        assert harness.value("select count(*) from fencepost.job") == 0
        await mine.commit()
    async with harness.working():
        await harness.until_state(submitted.job_id, "finished")


async def test_a_payload_that_does_not_fit_is_refused_where_it_is_submitted(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def typed(job: Job, x: int) -> None: ...

    wrong: Any = {"x": "many"}  # As from code that is not type-checked.
    async with harness.fp.transaction() as tx:
        with pytest.raises(InvalidInput):
            await typed.submit(tx, **wrong)


async def test_the_handlers_own_writes_commit_with_the_finish(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def write(job: Job) -> None:
        async with job.finish({"wrote": True}, final_status="accepted") as tx:
            await tx.execute("insert into effect (job_id, attempt) values (%s, %s)", (job.id, job.attempt))

    async with harness.fp.transaction() as tx:
        submitted = await write.submit(tx)
    async with harness.working():
        seen = await harness.until_state(submitted.job_id, "finished")
        await harness.until("its entry is settled", lambda: harness.metric("fencepost_jobs_held") == 0)
    assert (seen.final_status, seen.result) == ("accepted", {"wrote": True})
    assert harness.rows("select job_id, attempt from effect") == [(submitted.job_id, 1)]
    assert harness.redis.xlen("fencepost:{jobs}") == 0


async def test_a_block_that_fails_takes_its_writes_and_the_finish_with_it(harness: JobHarness) -> None:
    @harness.fp.job("default", tries=1)
    async def fail(job: Job) -> None:
        async with job.finish() as tx:
            await tx.execute("insert into effect (job_id) values (%s)", (job.id,))
            raise ValueError("in the middle")

    async with harness.fp.transaction() as tx:
        submitted = await fail.submit(tx)
    async with harness.working():
        seen = await harness.until_state(submitted.job_id, "dead")
    assert seen.error == "ValueError: in the middle"
    assert harness.value("select count(*) from effect") == 0


async def test_sync_handlers_run_in_threads_beside_each_other(harness: JobHarness) -> None:
    together = threading.Barrier(5, timeout=60)

    @harness.fp.job("default")
    def meet(job: Job, x: int) -> str:
        together.wait()
        with job.finish_sync({"x": x}) as tx:
            tx.execute("insert into effect (job_id, attempt) values (%s, %s)", (job.id, job.attempt))
        return threading.current_thread().name

    async with harness.fp.transaction() as tx:
        for x in range(5):
            await meet.submit(tx, x=x)
    async with harness.working():
        await harness.until_all_ended()
    assert harness.value("select count(*) from effect") == 5
    assert harness.value("select count(*) from fencepost.jobs where state = 'finished'") == 5


async def test_async_handlers_run_beside_each_other_within_the_capacity(harness: JobHarness) -> None:
    running, most = 0, 0
    crowded = asyncio.Event()

    @harness.fp.job("default")
    async def crowd(job: Job) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 7:
            crowded.set()
        await crowded.wait()
        await asyncio.sleep(0.01)  # Work takes time: one too many would begin meanwhile.
        running -= 1

    async with harness.fp.transaction() as tx:
        for _ in range(100):
            await crowd.submit(tx)
    async with harness.working(quick(concurrency=7)):
        await harness.until_all_ended()
    assert most == 7


async def test_progress_is_seen_while_the_job_runs(harness: JobHarness) -> None:
    go_on = asyncio.Event()

    @harness.fp.job("default")
    async def slow(job: Job) -> None:
        await job.progress({"done": 1, "of": 3})
        await go_on.wait()

    async with harness.fp.transaction() as tx:
        submitted = await slow.submit(tx)
    async with harness.working():
        await harness.until(
            "its progress is seen", lambda: harness.job(submitted.job_id).progress is not None
        )
        assert harness.job(submitted.job_id).progress == {"done": 1, "of": 3}
        go_on.set()
        await harness.until_state(submitted.job_id, "finished")


async def test_a_duplicate_in_the_stream_runs_once(harness: JobHarness) -> None:
    ran: list[int] = []

    # A duplicate that is read while the job runs is left to the reclaimer, for as long as the lease.
    @harness.fp.job("default", lease=2)
    async def note(job: Job) -> None:
        ran.append(job.id)

    async with harness.fp.transaction() as tx:
        submitted = await note.submit(tx)
    fields = {"job_id": submitted.job_id, "enqueue_ts": 1, "payload_ref": "x", "priority": 1}
    for priority in range(4):
        for _ in range(5):
            harness.redis.xadd(stream_of("fencepost:{jobs}", "default", priority), fields)
    async with harness.working():
        await harness.until_state(submitted.job_id, "finished")
        await harness.until_empty()
    assert ran == [submitted.job_id]


async def test_many_queues_and_priorities_are_served_by_one_worker(harness: JobHarness) -> None:
    seen: set[tuple[str, int]] = set()

    @harness.fp.job("mail", kind="mail")
    async def mail(job: Job, priority: int) -> None:
        seen.add((job.queue, priority))

    @harness.fp.job("mail:urgent", kind="urgent mail")
    async def urgent(job: Job, priority: int) -> None:
        seen.add((job.queue, priority))

    async with harness.fp.transaction() as tx:
        for priority in range(4):
            await mail.options(priority=priority).submit(tx, priority=priority)
            await urgent.options(priority=priority).submit(tx, priority=priority)
    async with harness.working():
        await harness.until_all_ended()
    assert seen == {(queue, priority) for queue in ("mail", "mail:urgent") for priority in range(4)}
