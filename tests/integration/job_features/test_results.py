"""Waiting for what comes of a job."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fencepost import Cancelled, Fencepost, Job, JobFailed, NotFound, PermanentError
from fencepost.backoff import Backoff
from fencepost.embedded import Database
from fencepost.kernel import job as kernel_job
from fencepost.kernel import job_queries
from fencepost.kernel.call import Call
from tests.integration.job_features.conftest import Working, listening
from tests.integration.job_features.probes import Probes

OWNER = "worker"
SLEEPERS = "select count(*) from fencepost.sleeper where topic like 'result:%%'"


async def running(fp: Fencepost) -> kernel_job.Running:
    submitted = await fp.run(kernel_job.submit("work", "one", {}))
    return await fp.run(kernel_job.claim(submitted.job_id, OWNER))


async def end(fp: Fencepost, job: kernel_job.Running, result: object) -> None:
    await fp.run(kernel_job.finish(kernel_job.Finish(job.job_id, job.attempt, "ok", result), OWNER))


async def test_the_result_of_a_job_that_has_finished_is_there_at_once(fp: Fencepost) -> None:
    job = await running(fp)
    await end(fp, job, {"pages": 3})
    assert await fp.jobs.result(job.job_id, within=0) == {"pages": 3}


async def test_a_caller_that_waits_is_told_when_the_job_ends(
    fp: Fencepost, probes: Probes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With polling far away, only the notification can bring the answer in time."""
    monkeypatch.setattr("fencepost.jobs._job_results.POLLS", Backoff(1000, 1000))
    job = await running(fp)
    waiting = [asyncio.create_task(fp.jobs.result(job.job_id, within=2000)) for _ in range(3)]
    await probes.until("they listen", lambda: probes.value(SLEEPERS) == 1 and bool(probes.rows(LISTENING)))
    await end(fp, job, 7)
    assert await asyncio.wait_for(asyncio.gather(*waiting), 60) == [7, 7, 7]
    assert probes.value(SLEEPERS) == 0, "the job has ended, so no waiter is told again"


async def test_a_job_that_ends_before_any_caller_says_that_it_waits_leaves_no_caller_to_be_told(
    fp: Fencepost, probes: Probes, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await running(fp)
    connections = fp._connections  # pyright: ignore[reportPrivateUsage]
    run = connections.run

    async def run_late(call: Call[Any]) -> Any:
        if "sleep_on" in call.sql:
            await run(kernel_job.finish(kernel_job.Finish(job.job_id, job.attempt, "ok", 7), OWNER))
        return await run(call)

    monkeypatch.setattr(connections, "run", run_late)
    assert await fp.jobs.result(job.job_id, within=60) == 7
    assert probes.value(SLEEPERS) == 0


LISTENING = "select 1 from pg_stat_activity where query ilike 'listen%%'"


async def test_a_notification_that_was_missed_costs_a_poll(fp: Fencepost, probes: Probes) -> None:
    probes.plant(
        "create or replace function fencepost._result_tell(p_ids bigint[]) returns void language sql as ''"
    )
    job = await running(fp)
    waiting = asyncio.create_task(fp.jobs.result(job.job_id, within=60))
    await probes.until("it waits", lambda: probes.value(SLEEPERS) == 1)
    await end(fp, job, 7)
    assert await waiting == 7


async def test_a_job_that_does_not_end_in_time_goes_on(fp: Fencepost, probes: Probes) -> None:
    job = await running(fp)
    with pytest.raises(TimeoutError, match=f"job {job.job_id} had not ended after 0.1 s; it is running"):
        await fp.jobs.result(job.job_id, within=0.1)
    assert probes.value(SLEEPERS) == 0
    assert probes.state(job.job_id) == "running"


async def test_a_dead_job_raises_its_error(fp: Fencepost) -> None:
    job = await running(fp)
    await fp.run(kernel_job.bury(job.job_id, job.attempt, OWNER, "ValueError: no such page"))
    with pytest.raises(JobFailed, match="ValueError: no such page") as failed:
        await fp.jobs.result(job.job_id)
    assert (failed.value.job_id, failed.value.final_status, failed.value.tries) == (job.job_id, "failed", 1)


async def test_a_cancelled_job_and_one_that_never_was(fp: Fencepost) -> None:
    job = await fp.run(kernel_job.submit("work", "one", {}))
    await fp.run(kernel_job.cancel(job.job_id, "alice"))
    with pytest.raises(Cancelled):
        await fp.jobs.result(job)
    with pytest.raises(NotFound):
        await fp.jobs.result(999_999)


async def test_a_worker_brings_results(anywhere: Fencepost, working: Working) -> None:
    fp = anywhere

    @fp.job("work")
    async def double(job: Job, n: int) -> int:
        return 2 * n

    @fp.job("work", tries=1)
    async def fail(job: Job) -> None:
        raise PermanentError("on purpose")

    async with working(fp):
        async with fp.transaction() as tx:
            jobs = await double.submit_many(tx, [{"n": n} for n in range(20)])
            failing = await fail.submit(tx)
        assert await asyncio.gather(*(fp.jobs.result(job, within=60) for job in jobs)) == list(
            range(0, 40, 2)
        )
        with pytest.raises(JobFailed, match="PermanentError: on purpose"):
            await fp.jobs.result(failing, within=60)


def test_the_sync_form_waits_and_raises_alike(
    database: Database, probes: Probes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.jobs._job_results.POLLS", Backoff(1000, 1000))
    client = Fencepost(database.url, settings=listening(database))
    with client.sync() as fp, ThreadPoolExecutor(1) as threads:
        job = fp.run(kernel_job.claim(fp.run(kernel_job.submit("work", "one", {})).job_id, OWNER))
        waiting = threads.submit(fp.jobs.result, job.job_id, within=2000)
        asyncio.run(probes.until("it listens", lambda: probes.value(SLEEPERS) == 1))
        fp.run(kernel_job.finish(kernel_job.Finish(job.job_id, job.attempt, "ok", [1, 2]), OWNER))
        assert waiting.result(20) == [1, 2]
        with pytest.raises(NotFound):
            fp.jobs.result(999_999)
        other = fp.run(kernel_job.submit("work", "one", {}))
        with pytest.raises(TimeoutError, match="it is pending"):
            fp.jobs.result(other, within=0)


async def test_waiters_that_were_killed_are_forgotten(fp: Fencepost, probes: Probes) -> None:
    probes.plant(
        "insert into fencepost.sleeper values ('result:1', now() - interval '2 days'), ('job:x', now())"
    )
    assert await fp.run(job_queries.prune_waiters(86_400)) == 1
    assert probes.column("select topic from fencepost.sleeper") == ["job:x"]
