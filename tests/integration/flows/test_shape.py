"""A flow goes on only as what it was: the same units, the same things behind the names of its senders."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fencepost.errors import Mismatch
from fencepost.flows import Flow, GraphRefused, IterableSource, StartRefused
from fencepost.flows import _flow_store as flow_store
from fencepost.flows import _units as units
from fencepost.flows._plan import FlowPlan
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sources.files import FileLines
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.kernel import lease
from tests.integration.flows.harness import FlowHarness

NUMBERS = list(range(30))


def counted(groups: int | None) -> Flow:
    numbers = Flow("counted").source(IterableSource(NUMBERS))
    keyed = numbers.key_by(lambda n: str(n % 10), groups=groups).stateful(_as_it_is)
    return keyed.sink(PostgresRows("line", ["value"]))


def _as_it_is(state: Any, value: int) -> tuple[Any, list[int]]:
    return None, [value]


def plan(flow: Flow) -> Any:
    program = FlowPlan(flow)
    return {**program.picture(), "shape": units.shape(program)}


def lines(harness: FlowHarness) -> Counter[int]:
    return Counter(value for [value] in harness.rows("select value from line"))


@pytest.mark.parametrize("other", [5, None], ids=["more-groups", "no-groups"])
async def test_another_number_of_groups_is_refused(harness: FlowHarness, other: int | None) -> None:
    await harness.run(counted(3))

    with pytest.raises(StartRefused, match=r"3 key groups.*lost and doubled.*Keep key_by\(groups=3\)"):
        await harness.run(counted(other))
    assert lines(harness) == Counter(NUMBERS)
    await harness.run(counted(3))


async def test_units_of_another_kind_are_refused(harness: FlowHarness) -> None:
    await harness.run(Flow("counted").source(IterableSource(NUMBERS)).sink(PostgresRows("line", ["value"])))

    with pytest.raises(StartRefused, match=r"one unit for each partition.*the graph without key_by"):
        await harness.run(counted(None))


async def test_before_the_first_commit_another_shape_is_welcome(harness: FlowHarness) -> None:
    await harness.fp.run(flow_store.register("counted", plan(counted(3)), "a/boot-1"))

    await harness.run(counted(5))

    assert lines(harness) == Counter(NUMBERS)


async def test_while_another_process_runs_it_no_other_shape_is_registered(harness: FlowHarness) -> None:
    await harness.fp.run(flow_store.register("counted", plan(counted(3)), "a/boot-1"))
    await harness.fp.run(lease.acquire(units.slot("counted", 0), "a/boot-1", 60))

    with pytest.raises(StartRefused, match=r"It is run by a/boot-1 now"):
        await harness.run(counted(5))


@pytest.mark.parametrize("kind", ["transactional", "staged"])
async def test_a_worker_of_the_shape_before_cannot_commit(harness: FlowHarness, kind: str) -> None:
    """Two workers of different code at once: the one that registered first, and stood still, is refused."""
    edition = await harness.fp.run(flow_store.register("counted", plan(counted(3)), "a/boot-1"))
    newer = await harness.fp.run(flow_store.register("counted", plan(counted(5)), "b/boot-1"))
    assert newer > edition
    held = await harness.fp.run(lease.acquire("flow:counted/group/0000", "a/boot-1", 60))

    with pytest.raises(Mismatch) as refused:
        await _commit(harness, held.token, kind, edition)
    assert refused.value.noun == "flow"
    await _commit(harness, held.token, kind, newer)


async def _commit(harness: FlowHarness, token: int, kind: str, edition: int) -> None:
    resource = "flow:counted/group/0000"
    same: Any = {"expected": None, "frontier": {}, "state": None, "whole": True, "edition": edition}
    if kind == "transactional":
        await harness.fp.run(flow_store.commit(resource, token, **same))
        return
    [[number]] = harness.rows(
        "select fencepost.checkpoint_begin('flow:counted/group/0000', token) from fencepost.lease"
    )
    await harness.fp.run(flow_store.store(resource, token, number, handles=[], **same))


async def test_a_worker_whose_shape_was_replaced_says_so_and_ends(harness: FlowHarness) -> None:
    flow = Flow("counted").source(RedisStreams("in")).json()
    worker = harness.worker(flow.sink(PostgresRows("line", ["value"])))
    running = asyncio.create_task(worker.run())
    await harness.until(lambda: worker.holds != [])
    # As if it had stood still past its leases, and another graph had taken its place meanwhile.
    harness.rows("update fencepost.flow set edition = edition + 1 returning name")
    harness.redis.xadd("in", {"data": "1"})

    async with asyncio.timeout(60):
        with pytest.raises(StartRefused, match="Another graph of the flow counted was registered"):
            await running
    assert lines(harness) == Counter()


def copied(*streams: str, name: str | None = None, flow: str = "copied") -> Flow:
    source = RedisStreams(streams, name=name)
    return Flow(flow).source(source).json().sink(PostgresRows("line", ["value"]))


async def take(harness: FlowHarness, flow: Flow, arrived: dict[str, int], total: int) -> None:
    for stream, value in arrived.items():
        harness.redis.xadd(stream, {"data": str(value)})
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: lines(harness).total() >= total)


async def test_streams_in_another_order_go_on_where_each_was(harness: FlowHarness) -> None:
    for n in range(5):
        harness.redis.xadd("b", {"data": str(n)})
    await take(harness, copied("a", "b"), {"a": 10}, 6)
    await take(harness, copied("b", "a"), {"a": 11, "b": 5}, 8)
    await take(harness, copied("c", "b", "a"), {"a": 12, "c": 20}, 10)
    await take(harness, copied("c", "a"), {"a": 13}, 11)

    assert lines(harness) == Counter([0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 20])


async def test_a_source_under_another_name_is_refused(harness: FlowHarness) -> None:
    await take(harness, copied("a"), {"a": 1}, 1)

    with pytest.raises(StartRefused, match=r"has read redis stream a as a:a.*again from its beginning"):
        await harness.worker(copied("a", name="other")).run()
    assert lines(harness) == Counter([1])


async def test_another_table_under_the_same_name_is_refused(harness: FlowHarness) -> None:
    harness.rows("insert into arrival (amount) select 1 from generate_series(1, 3) returning id")

    def rows(table: str) -> Flow:
        source = PostgresTable(table, name="arrivals")
        amounts = Flow("amounts").source(source).map(lambda row: row["amount"])
        return amounts.sink(PostgresRows("line", ["value"]))

    async with harness.running(harness.worker(rows("arrival"))):
        await harness.until(lambda: lines(harness).total() == 3)

    with pytest.raises(StartRefused, match=r'has read table "public"."arrival", and is to go on in'):
        await harness.worker(rows("other")).run()


async def test_files_in_another_order_go_on_where_each_was(harness: FlowHarness, tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one.txt", "two.txt", "three.txt"))
    one.write_text("1\n")
    two.write_text("2\n2\n2\n")
    three.write_text("3\n")

    def read(*paths: Path) -> Flow:
        flow = Flow("read").source(FileLines(paths)).json()
        return flow.sink(PostgresRows("line", ["value"]))

    await harness.run(read(one, two))
    await harness.run(read(three, two, one))

    assert lines(harness) == Counter([1, 2, 2, 2, 3])


def test_files_of_one_name_need_names() -> None:
    with pytest.raises(GraphRefused, match="Give a mapping"):
        FileLines(["eu/log", "us/log"])
    assert list(FileLines({"eu": "eu/log", "us": "us/log"}).partitions) == ["eu", "us"]
    with pytest.raises(GraphRefused, match="each once"):
        RedisStreams(["a", "a"])


async def test_two_sinks_in_one_place_take_their_own_checkpoints(harness: FlowHarness) -> None:
    numbers = Flow("twice").source(IterableSource(NUMBERS))
    flow = numbers.sink(RedisSink("list", "{shop}a")).also(numbers.sink(RedisSink("list", "{shop}b")))
    flow = flow.also(numbers.sink(RedisSink("list", "{shop}a")))
    await harness.run(flow)

    client: Any = harness.redis
    assert sorted(map(int, client.lrange("{shop}b", 0, -1))) == NUMBERS
    assert Counter(map(int, client.lrange("{shop}a", 0, -1))) == Counter(NUMBERS * 2)
