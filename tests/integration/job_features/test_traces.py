"""A trace from the request over HTTP to the effect in the database."""

import httpx
import pytest
from fastapi import APIRouter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from fencepost.client import Fencepost
from fencepost.jobs.job import Job
from fencepost_server.web._app import make_app
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.integration.job_features.conftest import Working

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    return exporter


def shop(fp: Fencepost) -> httpx.AsyncClient:
    """A service whose one request submits a job, whose handler submits another."""
    router = APIRouter()

    @fp.job("work")
    async def second(job: Job) -> str:
        return str(job.headers["trace_id"])

    @fp.job("work")
    async def first(job: Job) -> int:
        async with fp.transaction() as tx:
            return (await second.submit(tx)).job_id

    @router.post("/buy")
    async def buy() -> dict[str, int]:
        async with fp.transaction() as tx:
            return {"job_id": (await first.submit(tx)).job_id}

    app = make_app([HttpService("shop", router, lambda: fp, ())], WebSettings())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


async def test_a_request_its_job_and_the_job_of_its_job_are_one_trace(
    fp: Fencepost, working: Working, spans: InMemorySpanExporter
) -> None:
    async with shop(fp) as client, working(fp):
        job_id = (await client.post("/buy", headers={"traceparent": PARENT})).json()["job_id"]
        last = await fp.jobs.result(job_id, within=60)
        assert await fp.jobs.result(last, within=60) == TRACE

    # FastAPI may add spans of its own below the request's.
    by_name = {one.name: one for one in spans.get_finished_spans()}
    assert by_name.keys() >= {"HTTP POST", "job first", "job second"}
    places = {name: _place(one) for name, one in by_name.items()}
    assert {f"{place.trace_id:032x}" for place in places.values()} == {TRACE}
    parents = {places[name].span_id: one.parent.span_id for name, one in by_name.items() if one.parent}
    assert _line(parents, places["job second"].span_id)[-2:] == [
        places["HTTP POST"].span_id,
        0xB7AD6B7169203331,
    ]
    assert parents[places["job second"].span_id] == places["job first"].span_id
    about = [dict(by_name[name].attributes or {}) for name in ("HTTP POST", "job first")]
    assert (about[0]["fencepost.status"], about[1]["fencepost.outcome"]) == (200, "finish")


def _place(span: ReadableSpan) -> SpanContext:
    place = span.get_span_context()
    assert place is not None
    return place


def _line(parents: dict[int, int], one: int) -> list[int]:
    """A span's parent, its parent, and so on to the first."""
    line: list[int] = []
    while one in parents:
        one = parents[one]
        line.append(one)
    return line


async def test_without_opentelemetry_the_id_goes_the_same_way(fp: Fencepost, working: Working) -> None:
    async with shop(fp) as client, working(fp):
        job_id = (await client.post("/buy", headers={"traceparent": PARENT})).json()["job_id"]
        assert await fp.jobs.result(await fp.jobs.result(job_id, within=60), within=60) == TRACE
