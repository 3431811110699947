"""Flows on a Redis Cluster: source, channels, sinks and frontiers, while slots move and a node is killed."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any, LiteralString

import pytest

from fencepost.embedded import Database
from fencepost.flows import Flow
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sinks.redis import RedisIdempotentList, RedisSink
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.redis_streams import _keys as redis_keys
from fencepost.redis_streams._slots import slot_of
from tests.integration.flows.harness import FlowHarness
from tests.matrix.redis_cluster import RedisCluster, redis_cluster

GROUPS = 6
INSERT: LiteralString = "insert into arrival (amount) select * from generate_series(1, 100) returning id"
STREAMS = ("in-a", "in-b", "in-c")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with redis_cluster() as cluster:
        # What follows would prove little otherwise. The tests move them.
        assert len({cluster.primary_of(slot).port for slot in channel_slots("moving")}) == 3
        yield cluster


@pytest.fixture
async def on_cluster(database: Database, cluster: RedisCluster) -> AsyncGenerator[FlowHarness]:
    async with FlowHarness.of(database, cluster.url) as harness:
        yield harness
        harness.wipe_redis()


def counts(name: str, source: Any) -> Flow:
    keyed = Flow(name).source(source).key_by(lambda row: str(row["amount"] % 7), groups=GROUPS)
    return keyed.count().sink(PostgresUpsert("total", ["key"], ["value"]))


def counted(harness: FlowHarness) -> int:
    return int(harness.rows("select coalesce(sum(value), 0) from total")[0][0])


def channel_slots(flow: str) -> list[int]:
    return [slot_of(redis_keys.channel(flow, group, "channel", "s")) for group in range(GROUPS)]


@pytest.mark.parametrize("connections", [64, 4], ids=["a reader for each group", "shared readers"])
async def test_slots_of_channels_move_while_a_flow_runs(
    on_cluster: FlowHarness, cluster: RedisCluster, connections: int
) -> None:
    flow = counts("moving", PostgresTable("arrival"))
    async with on_cluster.running(on_cluster.worker(flow, redis_connections=connections)):
        for number, slot in enumerate(channel_slots("moving"), 1):
            on_cluster.rows(INSERT)
            await asyncio.to_thread(cluster.move, slot)
            await on_cluster.until(lambda number=number: counted(on_cluster) == 100 * number)  # type: ignore[misc]


async def test_slots_of_sources_and_sinks_move_while_a_flow_runs(
    on_cluster: FlowHarness, cluster: RedisCluster
) -> None:
    client: Any = on_cluster.redis
    read = Flow("through").source(RedisStreams(STREAMS, group="readers", name="ins"))
    once = read.sink(RedisIdempotentList("out-once", ttl_seconds=3600))
    flow = read.sink(RedisSink("list", "out")).also(once)
    written: list[str] = []
    async with on_cluster.running(on_cluster.worker(flow)):
        for key in (*STREAMS, "out", "out-once"):
            for stream in STREAMS:
                for number in range(20):
                    written.append(f"{key} {stream} {number}")
                    client.xadd(stream, {"data": written[-1]})
            await asyncio.to_thread(cluster.move, slot_of(key))
        await on_cluster.until(lambda: client.llen("out") >= len(written) <= client.llen("out-once"))
    for key in ("out", "out-once"):
        assert sorted(client.lrange(key, 0, -1)) == sorted(written)


async def test_a_killed_node_loses_no_effect_of_a_flow(database: Database) -> None:
    """What its replica had not heard of is sent again: entries of channels, and values of a sink."""
    with redis_cluster() as cluster:
        async with FlowHarness.of(database, cluster.url) as harness:
            rows = Flow("killed").source(PostgresTable("arrival"))
            keyed = rows.key_by(lambda row: str(row["amount"] % 7), groups=GROUPS).count()
            ids = rows.map(lambda row: str(row["id"])).sink(RedisSink("set", "out"))
            flow = keyed.sink(PostgresUpsert("total", ["key"], ["value"])).also(ids)
            async with harness.running(harness.worker(flow)):
                harness.rows(INSERT)
                await harness.until(lambda: counted(harness) >= 50)
                harness.rows(INSERT)
                await asyncio.to_thread(cluster.kill_primary_of, slot_of("out"))
                harness.rows(INSERT)
                await harness.until(lambda: counted(harness) == 300, within=120)
                await harness.until(lambda: _size(harness) == 300, within=120)


def _size(harness: FlowHarness) -> int:
    client: Any = harness.redis
    try:
        return int(client.scard("out"))
    except OSError:
        return -1
