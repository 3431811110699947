"""Forgetting finished jobs by age and by count, and what hangs on them."""

import asyncio

import pytest

from fencepost import Fencepost, InvalidInput, Job
from fencepost.kernel import job as kernel_job
from fencepost.kernel import job_queries
from fencepost.testing import Clock, Signals
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes

OWNER = "worker"


async def ended(fp: Fencepost, clock: Clock, count: int) -> list[int]:
    """So many jobs, finished a second apart."""
    jobs = await fp.run(kernel_job.submit_many("work", "one", [None] * count))
    for job in jobs:
        running = await fp.run(kernel_job.claim(job.job_id, OWNER))
        await fp.run(kernel_job.finish(kernel_job.Finish(running.job_id, running.attempt), OWNER))
        clock.advance(1)
    return [job.job_id for job in jobs]


async def test_the_newest_are_kept_and_dead_ones_stay(fp: Fencepost, clock: Clock, probes: Probes) -> None:
    dead = await fp.run(kernel_job.submit("work", "one", {}))
    running = await fp.run(kernel_job.claim(dead.job_id, OWNER))
    await fp.run(kernel_job.bury(running.job_id, running.attempt, OWNER, "no"))
    jobs = await ended(fp, clock, 6)
    waiting = await fp.run(kernel_job.submit("work", "one", {}))
    assert await fp.run(job_queries.prune_excess(4, 100)) == 2
    assert await fp.run(job_queries.prune_excess(4, 100)) == 0
    kept = probes.column("select job_id from fencepost.jobs order by 1")
    assert kept == [dead.job_id, *jobs[2:], waiting.job_id]
    assert probes.value("select count(*) from fencepost.job") == len(kept)


async def test_a_batch_of_pruning_is_bounded_and_takes_the_oldest(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    jobs = await ended(fp, clock, 5)
    assert await fp.run(job_queries.prune_excess(0, 2)) == 2
    assert probes.column("select job_id from fencepost.jobs order by 1") == jobs[2:]
    with pytest.raises(InvalidInput, match="keep is -1"):
        await fp.run(job_queries.prune_excess(-1, 2))


async def test_of_jobs_that_ended_at_one_moment_as_many_are_kept(fp: Fencepost, probes: Probes) -> None:
    """A batch finishes with one statement, and so with one time."""
    jobs = await fp.run(kernel_job.submit_many("work", "one", [None] * 10))
    answers = await fp.run(kernel_job.claim_many([job.job_id for job in jobs], OWNER))
    finishes = [kernel_job.Finish(a.running.job_id, a.running.attempt) for a in answers if a.running]
    await fp.run(kernel_job.finish_many(finishes, OWNER))
    assert probes.value("select count(distinct finished_at) from fencepost.job_finished") == 1
    assert await fp.run(job_queries.prune_excess(4, 5)) == 5
    assert await fp.run(job_queries.prune_excess(4, 5)) == 1
    assert await fp.run(job_queries.prune_excess(4, 5)) == 0
    assert probes.column("select job_id from fencepost.jobs order by 1") == [job.job_id for job in jobs[6:]]


async def test_a_worker_keeps_so_many(fp: Fencepost, clock: Clock, probes: Probes, working: Working) -> None:
    @fp.job("another")
    async def idle(job: Job) -> None: ...

    jobs = await ended(fp, clock, 10)
    with Signals() as signals:
        async with working(fp, keep_finished_count=3):
            await signals.wait("jobs.pruned", count=2)
    assert probes.column("select job_id from fencepost.jobs order by 1") == jobs[-3:]


async def test_two_pruners_at_once_forget_each_job_once(fp: Fencepost, clock: Clock, probes: Probes) -> None:
    await ended(fp, clock, 10)
    counts = await asyncio.gather(*(fp.run(job_queries.prune_excess(4, 100)) for _ in range(4)))
    assert sum(counts) == 6
