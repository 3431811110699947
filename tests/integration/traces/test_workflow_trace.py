"""A workflow in a trace: one span a step, below the span of the attempt that ran it."""

import asyncio

import pytest

from fencepost import Transaction
from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.tracing import span
from fencepost.workflows._sync_workflow import SyncWorkflow
from fencepost.workflows._workflow import Workflow
from tests.integration.job_features.conftest import quick
from tests.integration.traces.otlp_collector import CALLER, PARENT, TRACE, OtlpCollector


def price() -> int:
    return 5


def same(cents: int) -> int:
    return cents


async def reserve(tx: Transaction, cents: int) -> int:
    await tx.execute("select 1")
    return cents


@pytest.mark.parametrize("form", ["async", "sync"])
async def test_every_step_has_a_span_below_its_attempt_in_the_trace_of_the_start(
    database: Database, ear: OtlpCollector, form: str
) -> None:
    async with Fencepost(database.url, job_settings=quick()) as fp:

        async def fulfil(wf: Workflow) -> int:
            cents = await wf.step(price)
            await wf.sleep(0)
            return await wf.transaction(reserve, cents)

        def fulfil_sync(wf: SyncWorkflow) -> int:
            cents = wf.step(price)
            wf.sleep(0)
            return wf.options(name="reserve").step(same, cents)

        declared = (
            fp.workflow("orders", kind="fulfil")(fulfil)
            if form == "async"
            else fp.workflow("orders", kind="fulfil")(fulfil_sync)
        )
        worker = fp.jobs.worker(quick())
        working = asyncio.create_task(worker.run())
        with span("request", "server", {"traceparent": PARENT}):
            async with fp.transaction() as tx:
                started = await declared.start(tx)
        assert await declared.result(started, within=60) == 5
        worker.stop()
        await working

    about = {"workflow": "fulfil@1", "job_id": started.job_id}
    assert ear.about("step price") == {**about, "attempt": 1}
    assert ear.about("step reserve") == {**about, "attempt": 2}
    for name in ("step price", "step reserve"):
        assert ear.way(name) == [name, "job fulfil@1", "request"]
        assert ear.begins_at(name) == (TRACE, CALLER)


async def test_a_step_that_fails_ends_its_span_with_the_error(database: Database, ear: OtlpCollector) -> None:
    async with Fencepost(database.url, job_settings=quick()) as fp:

        async def ship() -> None:
            raise RuntimeError("the van is broken")

        @fp.workflow("orders", tries=1)
        async def fulfil(wf: Workflow) -> None:
            await wf.step(ship)

        worker = fp.jobs.worker(quick())
        working = asyncio.create_task(worker.run())
        async with fp.transaction() as tx:
            started = await fulfil.start(tx)
        with pytest.raises(Exception, match="van is broken"):
            await fulfil.result(started, within=60)
        worker.stop()
        await working

    [recorded] = ear.only("step ship").events
    assert (recorded.attributes or {})["exception.message"] == "the van is broken"
