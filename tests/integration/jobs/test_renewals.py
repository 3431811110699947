"""A renewal that is not answered costs no lease, and a worker that cannot renew claims nothing."""

import asyncio
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.kernel.job import SubmitOptions
from fencepost.testing import Signals
from tests.integration.jobs.harness import JobHarness, open_harness, quick
from tests.integration.jobs.stopped_backends import stopped_backends

LEASE_SECONDS = 6


async def test_a_heartbeat_whose_backend_stands_still_is_replaced_in_time(own_database: Database) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    async with open_harness(own_database, None) as harness:

        @harness.fp.job("default", lease=LEASE_SECONDS)
        async def long(job: Job) -> None:
            began.set()
            await go_on.wait()

        def outlived() -> bool:
            """Whether the lease that was valid at the stop is over by now."""
            return bool(harness.value("select clock_timestamp() > %s", (valid_until,)))

        submitted = await _submit(harness, long)
        async with harness.working(quick(lease_seconds=LEASE_SECONDS)):
            await asyncio.wait_for(began.wait(), 60)
            async with stopped_backends(own_database, "fencepost-heartbeat"):
                valid_until = harness.value("select expires_at from fencepost.job_running")
                await harness.until("the lease of before is over", outlived)
                assert harness.value("select max(expires_at) > clock_timestamp() from fencepost.job_running")
                seen = harness.job(submitted.job_id)
                assert (seen.state, seen.attempt, seen.tries) == ("running", 1, 1)
                assert failed(harness) == 1
            go_on.set()
            seen = await harness.until_state(submitted.job_id, "finished")
        assert (seen.attempt, seen.tries) == (1, 1)
        assert harness.metric("fencepost_jobs_outcomes_total", status="lost") == 0


def failed(harness: JobHarness) -> float:
    return harness.metric("fencepost_jobs_renewals_total", status="error", reason="db_error")


def renewed(harness: JobHarness) -> float:
    return harness.metric("fencepost_jobs_renewals_total", status="ok", reason="")


async def _submit(harness: JobHarness, handler: Any) -> Any:
    async with harness.fp.transaction() as tx:
        return await handler.submit(tx)


async def test_a_worker_that_cannot_renew_claims_nothing(
    lonely_harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other connections work: only the heartbeat cannot connect."""
    harness = lonely_harness
    connect = psycopg.connect

    def refuse(*where: Any, **how: Any) -> Any:
        if how.get("application_name") == "fencepost-heartbeat":
            raise psycopg.OperationalError("sorry, too many clients already")
        return connect(*where, **how)

    go_on = asyncio.Event()

    @harness.fp.job("default", lease=120)
    async def long(job: Job) -> None:
        await go_on.wait()

    with Signals() as signals:
        async with harness.working():
            held = await _submit(harness, long)
            await harness.until_state(held.job_id, "running")
            await signals.wait("heartbeat.beat", count=2)
            with monkeypatch.context() as patch:
                patch.setattr(psycopg, "connect", refuse)
                harness.execute(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                    " where datname = current_database() and application_name = 'fencepost-heartbeat'"
                )
                await harness.until("renewals fail", lambda: failed(harness) > 3)
                for _ in range(5):
                    await _submit(harness, long)
                failed_by_then = failed(harness)
                await harness.until("more fail", lambda: failed(harness) > failed_by_then + 10)
                states = sorted(harness.rows("select state, tries from fencepost.jobs"))
                assert states == [("pending", 0)] * 5 + [("running", 1)]
            await harness.until("it claims again", lambda: harness.metric("fencepost_jobs_held") == 6)
            go_on.set()
            await harness.until_all_ended()
    assert set(harness.rows("select state, tries from fencepost.jobs")) == {("finished", 1)}


async def test_a_server_that_stands_still_longer_than_a_lease_costs_no_try(own_database: Database) -> None:
    """The worker claims nothing meanwhile. A claim that was under way is answered when its lease is over by
    the worker's clock: the job goes back, and the try is not counted."""
    async with open_harness(own_database, None) as harness:

        @harness.fp.job("default", kind="short", lease=2)
        async def short(job: Job) -> None:
            await go_on.wait()

        go_on = asyncio.Event()
        with own_database.connect() as submitter, Signals() as signals:
            submitter.autocommit = True
            async with harness.working(quick(lease_seconds=2)):
                await signals.wait("worker.idle", count=2)
                assert harness.left() == 0, "and the harness has its connection now"
                async with stopped_backends(own_database, "fencepost%", entry=True):
                    run(submitter, kernel_job.submit("default", "short", {}, SubmitOptions(lease_seconds=2)))
                    over = harness.value("select clock_timestamp() + interval '3 s'")
                    await harness.until(
                        "a lease would be over",
                        lambda: bool(harness.value("select clock_timestamp() > %s", (over,))),
                    )
                    assert harness.rows("select state, tries from fencepost.jobs") == [("pending", 0)]
                await harness.until("it is held", lambda: renewed(harness) > 1)
                go_on.set()
                await harness.until_all_ended()
        assert harness.rows("select state, tries from fencepost.jobs") == [("finished", 1)]
        assert harness.metric("fencepost_jobs_outcomes_total", status="lost") == 0
