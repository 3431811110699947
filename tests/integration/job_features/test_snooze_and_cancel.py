"""What a handler raises to put its job back without a charge, or to end it as cancelled."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost import Cancel, Cancelled, Fencepost, Handler, InvalidInput, Job, Snooze
from fencepost.testing import Clock
from tests.integration.job_features import computing
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes

Declare = Callable[[Fencepost], Handler[...]]


def snoozing_in_the_loop(fp: Fencepost) -> Handler[...]:
    @fp.job("compute", tries=1)
    async def snooze_once(job: Job) -> int:
        if job.attempt == 1:
            raise Snooze(timedelta(hours=1))
        return job.tries

    return snooze_once


def snoozing_in_a_thread(fp: Fencepost) -> Handler[...]:
    @fp.job("compute", tries=1, timeout=60)
    def snooze_once(job: Job) -> int:
        if job.attempt == 1:
            raise Snooze(3600)
        return job.tries

    return snooze_once


def snoozing_in_a_process(fp: Fencepost) -> Handler[...]:
    fp.handlers.add(computing.snooze_once)
    return computing.snooze_once


@pytest.mark.parametrize("declare", [snoozing_in_the_loop, snoozing_in_a_thread, snoozing_in_a_process])
async def test_a_snooze_puts_the_job_back_for_that_long_and_charges_no_try(
    anywhere: Fencepost, clock: Clock, probes: Probes, working: Working, declare: Declare
) -> None:
    handler = declare(anywhere)
    async with anywhere.transaction() as tx:
        submitted = await handler.submit(tx)
    put_back = "select run_at, tries, error from fencepost.jobs where state = 'pending' and attempt = 1"
    async with working(anywhere, processes=1):
        await probes.until("it was put back", lambda: bool(probes.rows(put_back)), within=60)
        [(run_at, tries, error)] = probes.rows(put_back)
        assert timedelta(minutes=58) < run_at - clock.now() <= timedelta(hours=1)
        assert (tries, error) == (0, None)
        clock.advance(3601)
        # With one try in all, a charged one would have left it dead.
        assert await anywhere.jobs.result(submitted, within=60) == 1


def cancelling_in_the_loop(fp: Fencepost) -> Handler[...]:
    @fp.job("compute")
    async def cancel(job: Job) -> None:
        async with job.finish() as tx:
            await tx.execute("select 1")
            raise Cancel("the order is gone")

    return cancel


def cancelling_in_a_thread(fp: Fencepost) -> Handler[...]:
    @fp.job("compute")
    def cancel(job: Job) -> None:
        raise Cancel("the order is gone")

    return cancel


def cancelling_in_a_process(fp: Fencepost) -> Handler[...]:
    fp.handlers.add(computing.cancel)
    return computing.cancel


@pytest.mark.parametrize("declare", [cancelling_in_the_loop, cancelling_in_a_thread, cancelling_in_a_process])
async def test_a_cancel_ends_the_job_as_cancelled_and_says_why(
    anywhere: Fencepost, probes: Probes, working: Working, declare: Declare
) -> None:
    handler = declare(anywhere)
    async with anywhere.transaction() as tx:
        submitted = await handler.submit(tx)
    async with working(anywhere, processes=1):
        with pytest.raises(Cancelled, match="the order is gone"):
            await anywhere.jobs.result(submitted, within=60)
    seen = "select state, final_status, error, tries from fencepost.jobs"
    assert probes.rows(seen) == [("cancelled", "cancelled", "the order is gone", 1)]
    events: Any = probes.rows(
        "select event, detail ->> 'to', detail ->> 'error' from fencepost.events"
        " where noun = 'job' and subject = %s",
        str(submitted.job_id),
    )
    assert ("cancelled", "cancelled", "the order is gone") in events


async def test_a_batch_does_not_wait_for_a_job_that_cancelled_itself(fp: Fencepost, working: Working) -> None:
    @fp.job("work")
    async def cancel(job: Job) -> None:
        raise Cancel

    @fp.job("work")
    async def after(job: Job) -> str:
        return "ran"

    async with fp.transaction() as tx:
        then = await after.submit(tx)
        await fp.jobs.batch(tx, [await cancel.submit(tx)], then=then)
    async with working(fp):
        assert await fp.jobs.result(then, within=60) == "ran"


def test_a_snooze_that_cannot_be_kept_is_refused_where_it_is_raised() -> None:
    with pytest.raises(InvalidInput, match="snooze is -1"):
        Snooze(-1)
