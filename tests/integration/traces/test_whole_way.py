"""One trace from the request through the job's stream, its worker, the outbox and a flow to a sink."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.flows import Flow
from fencepost.flows.sinks.postgres import OutboxSink, PostgresRows, PostgresUpsert
from fencepost.flows.sources.outbox import OutboxChannel
from fencepost.http_client import HttpClient
from fencepost.jobs.job import Job
from fencepost.kernel import outbox
from fencepost.logs import log_context
from fencepost.outbox._delivery import Channel
from fencepost.outbox._webhook import Webhook
from fencepost.outbox.relay import Relay, RelayLimits
from fencepost.tracing import span
from fencepost_server.web._app import make_app
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.integration.flows.harness import FlowHarness
from tests.integration.job_features.conftest import quick
from tests.integration.outbox.receiver import Receiver, receiving
from tests.integration.traces.otlp_collector import CALLER, PARENT, TRACE, OtlpCollector

OTHER = f"00-{'1' * 32}-{'2' * 16}-01"


def shop(fp: Fencepost) -> httpx.AsyncClient:
    """A request submits a job, which puts a message into the channel that a flow reads."""
    router = APIRouter()

    @fp.job("work")
    async def sell(job: Job) -> None:
        async with job.finish() as tx:
            await tx.run(outbox.put("sales", {"n": 7}))

    @router.post("/buy")
    async def buy() -> dict[str, int]:
        async with fp.transaction() as tx:
            return {"job_id": (await sell.submit(tx)).job_id}

    app = make_app([HttpService("shop", router, lambda: fp, ())], WebSettings())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


def copying(name: str = "copy") -> Flow:
    """Rows, and a message for each: what comes of a flow goes on."""
    sales = Flow(name).source(OutboxChannel("sales")).map(lambda sale: sale["n"])
    return sales.sink(OutboxSink("told")).also(sales.sink(PostgresRows("line", ["value"])))


async def test_a_request_reaches_the_sink_and_what_follows_it_under_one_id(
    database: Database, redis_url: str, ear: OtlpCollector
) -> None:
    async with (
        FlowHarness.of(database, redis_url) as harness,
        receiving() as receiver,
        Fencepost(database.url, redis_url=redis_url, job_settings=quick()) as fp,
        shop(fp) as client,
    ):
        worker = fp.jobs.worker(quick())
        working = asyncio.create_task(worker.run())
        await client.post("/buy", headers={"traceparent": PARENT})
        async with harness.running(harness.worker(copying())):
            await harness.until(lambda: harness.rows("select value from line") == [(7,)])
            await relayed(harness, receiver)
        worker.stop()
        await working

    assert ear.way("deliver hooks") == ["deliver hooks", "flow copy", "job sell", "HTTP POST"]
    assert ear.begins_at("deliver hooks") == (TRACE, CALLER)
    assert ear.about("flow copy") == {"task": "flow:copy/part/sales:0", "records": 1}
    assert ear.about("deliver hooks")["outcome"] == "sent"
    assert receiver.traced[0][3:35] == TRACE


async def relayed(harness: FlowHarness, receiver: Receiver) -> None:
    """The flow's message is brought to another system."""
    errors = harness.fp.metrics.counter("relay_errors", "Errors.", labels=("loop",))
    pace = RelayLimits(idle_seconds=0.05, keep_seconds=0.2)
    async with HttpClient() as client:
        relay = Relay(
            "hooks",
            Channel(harness.fp, "told"),
            Webhook(client, receiver.url),
            harness.fp,
            harness.fp.owner,
            errors,
            pace,
            carried=lambda message: message.headers,
        )
        relay.start()
        await harness.until(lambda: bool(receiver.got))
        await relay.stop()


@pytest.mark.parametrize("groups", [None, 2])
async def test_records_of_many_requests_are_told_in_the_trace_of_each(
    database: Database, redis_url: str, ear: OtlpCollector, groups: int | None
) -> None:
    async with FlowHarness.of(database, redis_url) as harness:
        for number, place in enumerate((PARENT, OTHER, None)):
            with span("request", "server", {"traceparent": place} if place else {}):
                await harness.fp.run(outbox.put("sales", {"n": number}))
        flow = copying() if groups is None else counted(groups)
        table = "line" if groups is None else "total"
        async with harness.running(harness.worker(flow)):
            await harness.until(lambda: len(_rows(harness, table)) == 3)

    traces = {f"{one.context.trace_id:032x}" for one in ear.named(f"flow {flow.name}") if one.context}
    assert len(traces) == 3
    assert {TRACE, "1" * 32} <= traces


def counted(groups: int) -> Flow:
    sales = Flow("count").source(OutboxChannel("sales")).key_by(lambda sale: str(sale["n"]), groups=groups)
    return sales.count().sink(PostgresUpsert("total", ["key"], ["value"]))


def _rows(harness: FlowHarness, table: str) -> list[Any]:
    return (
        harness.rows("select value from line") if table == "line" else harness.rows("select value from total")
    )


async def test_where_no_caller_sees_spans_a_message_carries_the_id_and_nothing_is_gathered(
    database: Database, redis_url: str
) -> None:
    async with FlowHarness.of(database, redis_url) as harness:
        with log_context(trace_id=TRACE):
            await harness.fp.run(outbox.put("sales", {"n": 1}))
            await harness.fp.run(outbox.put_many("sales", [{"n": 2}, {"n": 3}]))
        await harness.fp.run(outbox.put_many("sales", [{"n": 4}]))
        headers = [row[0] for row in harness.rows("select headers from fencepost.outbox order by id")]
    assert headers == [{"trace_id": TRACE}] * 3 + [{}]
