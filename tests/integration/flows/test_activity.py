"""What can be seen of a flow while it runs: rates by edge, lag, backpressure, and bars for what ends."""

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError
from rich.console import Console

from fencepost.cli._flow_progress import progress_bars
from fencepost.errors import InvalidInput
from fencepost.flows import Flow, IterableSource
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._plan import FlowPlan
from fencepost.flows._progress import Progress, progress_of
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sources.files import FileLines
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.kernel import lease
from tests.integration.flows.harness import FlowHarness


def totals(groups: int | None = None) -> Flow:
    numbers = Flow("seen").source(RedisStreams("in")).json()
    keyed = numbers.key_by(lambda n: str(n % 3), groups=groups)
    return keyed.count(name="totals").sink(PostgresUpsert("total", ["key"], ["value"]))


def edges(harness: FlowHarness) -> dict[tuple[str, str], Any]:
    """By the names of their nodes: rate, lag, backpressure."""
    names = [node["name"] for node in harness.rows("select plan -> 'nodes' from fencepost.flows")[0][0]]
    rows = harness.rows("select * from fencepost.flow_edges('seen')")
    return {(names[parent], names[child]): tuple(rest) for parent, child, *rest in rows}


@pytest.mark.parametrize("groups", [pytest.param(None, marks=pytest.mark.full), 2])
async def test_each_edge_has_a_rate_while_records_flow(harness: FlowHarness, groups: int | None) -> None:
    sent = 0

    def all_edges_move() -> bool:
        nonlocal sent
        for _ in range(20):
            harness.redis.xadd("in", {"data": str(sent)})
            sent += 1
        found = edges(harness)
        return bool(found) and all(rate is not None and rate > 0 for rate, _, _ in found.values())

    async with harness.running(harness.worker(totals(groups))):
        await harness.until(lambda: bool(harness.rows("select 1 from fencepost.flows")))
        await harness.until(all_edges_move, within=60)
        found = edges(harness)
    assert found.keys() == {
        ("in", "json-1"),
        ("json-1", "key_by-1"),
        ("key_by-1", "totals"),
        ("totals", "sink-1"),
    }
    _, lag, backpressure = found["in", "json-1"]
    assert lag >= 0
    assert 0 <= backpressure <= 1
    assert (found["key_by-1", "totals"][2] is not None) == (groups is not None)


async def test_what_waits_in_a_stream_is_counted_also_when_it_was_trimmed_before(
    harness: FlowHarness,
) -> None:
    for n in range(30):
        harness.redis.xadd("in", {"data": str(n)})
    harness.redis.xtrim("in", maxlen=20, approximate=False)
    source = RedisStreams("in")
    place: Any = harness.context()
    reader = await source.open(place, "in", None)
    chunk = await reader.read(5, 0)

    assert (chunk.skipped, await reader.lag(chunk.skipped + 5)) == (10, 15)
    harness.redis.xadd("in", {"data": "30"})
    assert await reader.lag(chunk.skipped + 5) == 16
    harness.redis.set("in", "no stream")
    with pytest.raises(ResponseError):
        await reader.lag(chunk.skipped + 5)
    await reader.close()


async def test_a_zombie_tells_nothing(harness: FlowHarness) -> None:
    held = await harness.fp.run(lease.acquire("flow:seen/all", "a", 60))
    told: Any = {"edges": {"0-1": 5}, "lag": {}, "busy": 0.5, "blocked": 0, "reads": []}

    assert await harness.fp.run(flow_store.report([(held.resource, held.token + 1, told)])) == 0
    assert await harness.fp.run(flow_store.report([(held.resource, held.token, told)])) == 1
    with pytest.raises(InvalidInput):
        await harness.fp.run(flow_store.report([(held.resource, held.token, {"nul": "\0"})]))

    assert harness.rows("select activity ->> 'busy' from fencepost.flow_activities('seen')") == [("0.5",)]


async def test_progress_is_what_all_tasks_have_committed(harness: FlowHarness, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{n}\n" for n in range(100)))
    lines = Flow("bounded").source(FileLines(tmp_path / "in.txt")).json()
    numbers = Flow("bounded").source(IterableSource(list(range(50)))).map(int)
    sink = PostgresRows("line", ["value"])
    flow = lines.sink(sink).also(numbers.sink(sink))
    program = FlowPlan(flow)

    async def progress() -> list[Progress]:
        frontiers = await harness.fp.run(flow_store.frontiers("bounded"))
        return progress_of(program, frontiers)

    assert await progress() == [Progress("file:in.txt", 0, 290, False), Progress("values:0", 0, 50, False)]
    await harness.run(flow)
    assert await progress() == [Progress("file:in.txt", 290, 290, True), Progress("values:0", 50, 50, True)]


def test_bars_are_drawn_on_a_terminal() -> None:
    screen = io.StringIO()
    with progress_bars(Console(file=screen, force_terminal=True, width=100)) as bars:
        assert bars.are_shown
        bars.show([Progress("file:in.txt", 145, 290, False)])
        bars.show([Progress("file:in.txt", 290, 290, True)])

    assert "file:in.txt" in screen.getvalue()
    assert "290/290" in screen.getvalue()


def test_without_a_terminal_there_are_none() -> None:
    with progress_bars() as bars:
        bars.show([Progress("file:in.txt", 145, 290, False)])
        assert not bars.are_shown


async def test_the_house_offers_a_worker(harness: FlowHarness) -> None:
    for n in range(9):
        harness.redis.xadd("in", {"data": str(n)})
    stop = asyncio.Event()
    running = asyncio.create_task(harness.fp.flows.worker(totals()).run(stop))
    await harness.until(lambda: sum(row[1] for row in harness.rows("select * from total")) == 9)
    stop.set()
    await running

    # A second one shares the metrics: a registry refuses a name that it has.
    assert harness.fp.flows.worker(totals()).program.flow.name == "seen"
