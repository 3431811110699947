"""Backpressure: a queue that is full says so, and a caller that can wait waits."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from fencepost import Backpressure, Fencepost, Job
from fencepost.embedded import Database
from fencepost.jobs._handler import Handler
from fencepost.kernel import job as kernel_job
from fencepost.kernel import queue
from fencepost.testing import Clock
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes


def declare(fp: Fencepost) -> Handler[[int]]:
    @fp.job("work")
    async def one(job: Job, n: int) -> None: ...

    return one


async def test_a_full_queue_refuses_with_its_figures_and_writes_nothing(
    fp: Fencepost, probes: Probes
) -> None:
    one = declare(fp)
    await fp.run(queue.bound("work", 3, "test"))
    async with fp.transaction() as tx:
        await one.submit_many(tx, [{"n": n} for n in range(3)])
    with pytest.raises(Backpressure, match="queue work has 3 waiting jobs; at most 3 may wait"):
        await fp.jobs.submit(one.submission(3))
    assert probes.value("select count(*) from fencepost.job") == 3


async def test_many_at_once_have_room_all_or_none(fp: Fencepost, probes: Probes) -> None:
    one = declare(fp)
    await fp.run(queue.bound("work", 3, "test"))
    await fp.jobs.submit(one.submission(0))
    with pytest.raises(
        Backpressure, match="has 1 waiting jobs, and 3 more were submitted at once; at most 3"
    ):
        async with fp.transaction() as tx:
            await one.submit_many(tx, [{"n": n} for n in range(3)])
    assert probes.value("select count(*) from fencepost.job") == 1
    async with fp.transaction() as tx:
        assert len(await one.submit_many(tx, [{"n": n} for n in range(2)])) == 2


async def test_the_bound_holds_although_no_worker_counts(fp: Fencepost) -> None:
    """The backlog grows when workers are gone: that is when a bound is needed."""
    one = declare(fp)
    await fp.run(queue.bound("work", 5, "test"))
    for n in range(5):
        await fp.jobs.submit(one.submission(n))
    with pytest.raises(Backpressure):
        await fp.jobs.submit(one.submission(5))


async def test_between_counts_a_submission_reads_the_count_and_nothing_else(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    one = declare(fp)
    clock.freeze()
    await fp.run(queue.bound("work", 2, "test"))
    await fp.run(queue.count())
    for n in range(4):
        await fp.jobs.submit(one.submission(n))
    clock.advance(31)
    with pytest.raises(Backpressure):
        await fp.jobs.submit(one.submission(4))


async def test_dispatched_jobs_wait_too(fp: Fencepost) -> None:
    one = declare(fp)
    await fp.run(queue.bound("work", 2, "test"))
    first = await fp.jobs.submit(one.submission(1))
    await fp.jobs.submit(one.submission(2))
    await fp.run(kernel_job.dispatched([first.job_id], ["1-0"], "life"))
    with pytest.raises(Backpressure):
        await fp.jobs.submit(one.submission(3))


async def test_a_caller_that_can_wait_is_let_in_when_there_is_room(fp: Fencepost, probes: Probes) -> None:
    one = declare(fp)
    await fp.run(queue.bound("work", 1, "test"))
    first = await fp.jobs.submit(one.submission(1))
    with pytest.raises(Backpressure):
        await fp.jobs.submit(one.submission(2), within=0.1)
    waiting = asyncio.create_task(fp.jobs.submit(one.submission(2), within=60))
    await fp.run(kernel_job.cancel(first.job_id, "test"))
    assert (await waiting).created


async def test_a_worker_makes_room(fp: Fencepost, working: Working) -> None:
    one = declare(fp)
    await fp.run(queue.bound("work", 2, "test"))
    async with working(fp):
        jobs = [await fp.jobs.submit(one.submission(n), within=60) for n in range(12)]
        for job in jobs:
            await fp.jobs.result(job, within=60)


def test_the_sync_form_waits_alike(database: Database) -> None:
    client = Fencepost(database.url)
    one = declare(client)
    with client.sync() as fp, ThreadPoolExecutor(1) as threads:
        fp.run(queue.bound("work", 1, "test"))
        first = fp.jobs.submit(one.submission(1))
        with pytest.raises(Backpressure):
            fp.jobs.submit(one.submission(2))
        waiting = threads.submit(fp.jobs.submit, one.submission(2), within=60)
        fp.run(kernel_job.cancel(first.job_id, "test"))
        assert waiting.result(30).created
