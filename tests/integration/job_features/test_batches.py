"""Batches: one callback when the last job has ended, in the transaction that ended it."""

import asyncio
from typing import Any

import psycopg
import pytest

from fencepost import Duplicate, Fencepost, InvalidInput, Job, Mismatch, NotFound, PermanentError, run
from fencepost.embedded import Database
from fencepost.kernel import _batch as kernel_batch
from fencepost.kernel import job as kernel_job
from fencepost.kernel.job import Submitted
from fencepost.testing import Clock
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes

OWNER = "worker"


async def submitted(fp: Fencepost, count: int, *, made: bool = True) -> tuple[list[int], int]:
    """Jobs and their callback, made into a batch."""
    async with fp.transaction() as tx:
        jobs = await tx.run(kernel_job.submit_many("work", "one", [{"n": n} for n in range(count)]))
        callback = await tx.run(kernel_job.submit("work", "all", {}))
        if made:
            await fp.jobs.batch(tx, jobs, then=callback, name="photos")
    return [job.job_id for job in jobs], callback.job_id


async def claim(fp: Fencepost, job_ids: list[int]) -> list[kernel_job.Running]:
    answers = await fp.run(kernel_job.claim_many(job_ids, OWNER))
    return [answer.running for answer in answers if answer.running]


async def finish(fp: Fencepost, job_ids: list[int]) -> None:
    running = await claim(fp, job_ids)
    done = [kernel_job.Finish(one.job_id, one.attempt) for one in running]
    assert all(answer.refusal is None for answer in await fp.run(kernel_job.finish_many(done, OWNER)))


async def is_due(fp: Fencepost, job_id: int) -> bool:
    answers = await fp.run(kernel_job.claim_next("work", 1, OWNER, 1000))
    return job_id in [answer.job_id for answer in answers]


async def test_the_callback_is_due_when_the_last_job_has_finished(fp: Fencepost, probes: Probes) -> None:
    jobs, callback = await submitted(fp, 3)
    await finish(fp, jobs[:2])
    assert not await is_due(fp, callback), "one job is still to come"
    running = probes.value("select attempt from fencepost.job_running where job_id = %s", jobs[2])
    await fp.run(kernel_job.finish(kernel_job.Finish(jobs[2], running), OWNER))
    assert await is_due(fp, callback)
    [(batch,)] = probes.rows("select headers -> 'batch' from fencepost.jobs where job_id = %s", callback)
    assert (batch["finished"], batch["dead"], batch["cancelled"]) == (3, 0, 0)
    assert probes.rows("select name, size, remaining, finished from fencepost.batches") == [
        ("photos", 3, 0, 3)
    ]


async def test_dead_cancelled_and_lost_jobs_end_too(fp: Fencepost, probes: Probes, clock: Clock) -> None:
    jobs, callback = await submitted(fp, 4)
    [first, second, third, fourth] = jobs
    await fp.run(kernel_job.cancel(first, "alice"))
    dead, lost = (await claim(fp, [second, third]))[:2]
    await fp.run(kernel_job.bury(dead.job_id, dead.attempt, OWNER, "ValueError: no"))
    await fp.run(kernel_job.cancel(third, "alice"))
    clock.advance(lost.lease_seconds + 1)
    assert [job.state for job in await fp.run(kernel_job.reclaim(10))] == ["cancelled"]
    assert not await is_due(fp, callback)
    running = probes.value("select attempt from fencepost.job_running where job_id = %s", fourth)
    await fp.run(kernel_job.finish(kernel_job.Finish(fourth, running), OWNER))
    assert await is_due(fp, callback)
    counts = "select finished, dead, cancelled from fencepost.batches"
    assert probes.rows(counts) == [(1, 1, 2)]


async def test_a_replayed_job_is_not_counted_again(fp: Fencepost, probes: Probes) -> None:
    jobs, callback = await submitted(fp, 2)
    [running] = await claim(fp, jobs[:1])
    await fp.run(kernel_job.bury(running.job_id, running.attempt, OWNER, "no"))
    await fp.run(kernel_job.replay(running.job_id, "alice"))
    await finish(fp, jobs[:1])
    assert probes.rows("select remaining, finished, dead from fencepost.batches") == [(1, 0, 1)]
    assert not await is_due(fp, callback)


async def test_finishing_twice_calls_back_once(fp: Fencepost, probes: Probes) -> None:
    jobs, callback = await submitted(fp, 1)
    [running] = await claim(fp, jobs)
    done = kernel_job.Finish(running.job_id, running.attempt)
    for _ in range(2):
        await fp.run(kernel_job.finish_many([done], OWNER))
    assert probes.rows("select remaining, finished from fencepost.batches") == [(0, 1)]
    assert probes.value("select dispatches from fencepost.job_waiting where job_id = %s", callback) == 0


async def test_a_rolled_back_finish_does_not_call(fp: Fencepost, probes: Probes) -> None:
    jobs, callback = await submitted(fp, 1)
    [running] = await claim(fp, jobs)
    async with await psycopg.AsyncConnection.connect(fp.database_url) as connection:
        await run(connection, kernel_job.finish(kernel_job.Finish(running.job_id, running.attempt), OWNER))
        await connection.rollback()
    assert not await is_due(fp, callback)
    assert probes.value("select remaining from fencepost.batches") == 1


async def test_many_workers_that_finish_at_once_call_back_once(
    database: Database, fp: Fencepost, probes: Probes
) -> None:
    """Every last job of every part commits at the same time: the callback must be due, and once."""
    for _ in range(10):
        jobs, callback = await submitted(fp, 200)
        running = await claim(fp, jobs)
        done = [kernel_job.Finish(one.job_id, one.attempt) for one in running]
        shares = [done[place::8] for place in range(8)]
        await asyncio.gather(*(fp.run(kernel_job.finish_many(share, OWNER)) for share in shares))
        assert await is_due(fp, callback)
    assert probes.column("select remaining from fencepost.batches") == [0] * 10
    assert set(probes.column("select finished from fencepost.batches")) == {200}


async def test_two_open_transactions_that_empty_two_parts_call_back_once(
    database: Database, fp: Fencepost, probes: Probes
) -> None:
    """The race at zero: each of them sees the other's part as not yet empty, unless one waits."""
    jobs, callback = await submitted(fp, 65)
    running = {one.job_id: one for one in await claim(fp, jobs)}
    first, last = jobs[:64], jobs[64:]

    def finishing(job_ids: list[int]) -> Any:
        return kernel_job.finish_many([kernel_job.Finish(i, running[i].attempt) for i in job_ids], OWNER)

    with psycopg.connect(database.url) as slow:
        run(slow, finishing(first))
        other = asyncio.create_task(fp.run(finishing(last)))
        await probes.until("the other waits for the batch", lambda: bool(probes.rows(WAITING)))
        slow.commit()
    await other
    assert await is_due(fp, callback)


WAITING = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%%job_finish%%'"


async def test_a_batch_without_jobs_is_complete_at_once(fp: Fencepost, probes: Probes) -> None:
    _, callback = await submitted(fp, 0)
    assert await is_due(fp, callback)


async def test_a_job_that_was_there_already_is_not_waited_for(fp: Fencepost, probes: Probes) -> None:
    @fp.job("work", unique="{n}")
    async def one(job: Job, n: int) -> None: ...

    async with fp.transaction() as tx:
        await one.submit(tx, n=1)
    async with fp.transaction() as tx:
        jobs = await one.submit_many(tx, [{"n": 1}, {"n": 2}])
        await fp.jobs.batch(tx, jobs)
    assert probes.value("select size from fencepost.batches") == 1


async def test_the_callback_must_be_a_new_job(fp: Fencepost) -> None:
    async with fp.transaction() as tx:
        with pytest.raises(InvalidInput, match="must be a new one"):
            fp.jobs.batch(tx, [], then=Submitted(7, created=False))


async def test_only_waiting_jobs_make_a_batch(fp: Fencepost) -> None:
    [job], callback = await submitted(fp, 1, made=False)
    await claim(fp, [job])
    with pytest.raises(Mismatch) as refused:
        await fp.run(kernel_batch.make([job], callback_id=callback))
    assert refused.value.seen["state"] == "running"
    with pytest.raises(NotFound):
        await fp.run(kernel_batch.make([999_999]))
    with pytest.raises(InvalidInput, match="wait for itself"):
        await fp.run(kernel_batch.make([callback], callback_id=callback))


async def test_a_job_is_in_one_batch_only(fp: Fencepost) -> None:
    jobs, _ = await submitted(fp, 2)
    with pytest.raises(Duplicate) as refused:
        await fp.run(kernel_batch.make(jobs))
    assert refused.value.seen["batch_id"] == 1


async def test_a_claim_waits_for_the_transaction_that_makes_the_batch(
    database: Database, fp: Fencepost, probes: Probes
) -> None:
    """The jobs are committed already: without the lock one could end before the batch is seen."""
    jobs, callback = await submitted(fp, 1, made=False)
    with psycopg.connect(database.url) as maker:
        run(maker, kernel_batch.make(jobs, callback_id=callback))
        finishing = asyncio.create_task(finish(fp, jobs))
        await probes.until(
            "the claim waits",
            lambda: bool(probes.rows("select 1 from pg_stat_activity where wait_event_type = 'Lock'")),
        )
        maker.commit()
    await finishing
    assert await is_due(fp, callback)


async def test_a_replayed_callback_waits_for_its_batch_again(fp: Fencepost, probes: Probes) -> None:
    jobs, callback = await submitted(fp, 2)
    await fp.run(kernel_job.cancel(callback, "alice"))
    await fp.run(kernel_job.replay(callback, "alice", expected="cancelled"))
    await finish(fp, jobs[:1])
    assert not await is_due(fp, callback), "one job is still to come"
    running = probes.value("select attempt from fencepost.job_running where job_id = %s", jobs[1])
    await fp.run(kernel_job.finish(kernel_job.Finish(jobs[1], running), OWNER))
    assert await is_due(fp, callback)


async def test_a_callback_that_is_replayed_after_its_batch_knows_how_it_ended(
    fp: Fencepost, probes: Probes
) -> None:
    jobs, callback = await submitted(fp, 2)
    await fp.run(kernel_job.cancel(callback, "alice"))
    await finish(fp, jobs)
    await fp.run(kernel_job.replay(callback, "alice", expected="cancelled"))
    assert await is_due(fp, callback)
    [(batch,)] = probes.rows("select headers -> 'batch' from fencepost.jobs where job_id = %s", callback)
    assert (batch["finished"], batch["dead"], batch["cancelled"]) == (2, 0, 0)


async def test_a_replay_of_the_callback_and_the_last_finish_at_once_leave_it_due(
    fp: Fencepost, database: Database, probes: Probes
) -> None:
    """The replay is open while the last job ends: that one waits, and then finds the callback."""
    jobs, callback = await submitted(fp, 1)
    await fp.run(kernel_job.cancel(callback, "alice"))
    async with fp.transaction() as tx:
        await tx.run(kernel_job.replay(callback, "alice", expected="cancelled"))
        finishing = asyncio.create_task(finish(fp, jobs))
        blocked = "select count(*) from pg_stat_activity where datname = %s and wait_event_type = 'Lock'"
        await probes.until("the finish waits", lambda: probes.value(blocked, database.name) == 1)
    await finishing
    assert await is_due(fp, callback)


async def test_a_cancelled_callback_is_not_called(fp: Fencepost, probes: Probes) -> None:
    jobs, callback = await submitted(fp, 1)
    await fp.run(kernel_job.cancel(callback, "alice"))
    await finish(fp, jobs)
    assert probes.state(callback) == "cancelled"
    assert probes.value("select completed_at is not null from fencepost.batches")


async def test_complete_batches_are_forgotten_after_a_while_and_open_ones_never(
    fp: Fencepost, probes: Probes, clock: Clock
) -> None:
    jobs, callback = await submitted(fp, 2)
    await submitted(fp, 1)
    await finish(fp, jobs)
    clock.advance(60)
    assert await fp.run(kernel_batch.prune(30, 10)) == 0, "its callback has not read the results yet"
    await finish(fp, [callback])
    assert await fp.run(kernel_batch.prune(120, 10)) == 0
    assert await fp.run(kernel_batch.prune(30, 10)) == 1
    assert probes.column("select batch_id from fencepost.batches") == [2]
    assert probes.value("select count(*) from fencepost.job_batch_member") == 1


async def test_a_worker_runs_the_jobs_and_then_the_callback(anywhere: Fencepost, working: Working) -> None:
    fp = anywhere
    order: list[Any] = []

    @fp.job("work")
    async def one(job: Job, n: int) -> None:
        order.append(n)
        if n == 2:
            raise PermanentError("no")

    @fp.job("work")
    async def everything(job: Job, album: int) -> Any:
        order.append(album)
        return job.headers["batch"]

    async with working(fp):
        async with fp.transaction() as tx:
            jobs = await one.submit_many(tx, [{"n": n} for n in range(5)])
            after = await everything.submit(tx, album=77)
            batch_id = await fp.jobs.batch(tx, jobs, then=after)
        told = await fp.jobs.result(after, within=60)
    assert sorted(order[:5]) == [0, 1, 2, 3, 4]
    assert order[5:] == [77]
    assert told == {"batch_id": batch_id, "finished": 4, "dead": 1, "cancelled": 0}


def test_a_batch_on_a_sync_connection(database: Database, probes: Probes) -> None:
    fp = Fencepost(database.url)

    @fp.job("work")
    def one(job: Job, n: int) -> None: ...

    with psycopg.connect(database.url) as connection:
        jobs = one.submit_many(connection, [{"n": 1}, {"n": 2}])
        after = one.submit(connection, n=3)
        batch_id = fp.jobs.batch(connection, jobs, then=after)
    assert probes.rows("select batch_id, size, callback_job_id from fencepost.batches") == [
        (batch_id, 2, after.job_id)
    ]


RACE = """
do $$ begin execute replace(pg_get_functiondef('fencepost._batch_count(bigint[], timestamptz)'::regprocedure),
  'and b.completed_at is null for no key update', 'and b.completed_at is null'); end $$
"""


async def test_a_planted_bug_forgets_the_callback(database: Database, fp: Fencepost, probes: Probes) -> None:
    """Without the lock on the batch no transaction waits at zero, and the test of the race above fails."""
    probes.plant(RACE)
    jobs, callback = await submitted(fp, 65)
    running = {one.job_id: one for one in await claim(fp, jobs)}
    with psycopg.connect(database.url) as slow:
        done = [kernel_job.Finish(i, running[i].attempt) for i in jobs[:64]]
        run(slow, kernel_job.finish_many(done, OWNER))
        last = kernel_job.Finish(jobs[64], running[jobs[64]].attempt)
        await fp.run(kernel_job.finish_many([last], OWNER))
        slow.commit()
    assert not await is_due(fp, callback)
