"""More key groups in one worker than a client, a pool or a server has connections."""

import asyncio
from typing import Any

import pytest

from fencepost.client import Fencepost
from fencepost.flows import Flow, FlowError, IterableSource, StartRefused
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks._pool import SinkPool
from fencepost.flows.sinks._sink import Sink
from fencepost.flows.sinks.external_postgres import ExternalPostgres
from fencepost.flows.sinks.kafka import KafkaSink
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.settings import Settings
from fencepost.signals import listening
from tests.integration.flows.harness import HURRY, FlowHarness

GROUPS = 110
RECORDS = 300


def counted(*sinks: Sink) -> Flow:
    numbers = Flow("many", "at_least_once").source(IterableSource(list(range(RECORDS))))
    counts = numbers.key_by(str, groups=GROUPS).count(emit="each")
    return counts.sink(sinks[0]).also(*(counts.sink(sink) for sink in sinks[1:]))


async def run(harness: FlowHarness, flow: Flow, connections: int) -> None:
    """With commits that leave others their turns: it is about connections, and not about speed."""
    worker = harness.worker(flow, redis_connections=connections, interval_seconds=0.5)
    async with asyncio.timeout(180):
        await worker.run(until_done=True)


async def test_a_worker_runs_more_than_a_hundred_key_groups_within_its_bound(harness: FlowHarness) -> None:
    """All of them wait at once: a client of Redis with a connection for each has 100 and no more."""
    client: Any = harness.redis
    heard: list[str] = []
    numbers = Flow("waiting").source(RedisStreams("in")).json().key_by(str, groups=GROUPS)
    flow = numbers.count(emit="each").sink(PostgresUpsert("total", ["key"], ["value"]))
    worker = harness.worker(flow, redis_connections=24, interval_seconds=0.5)
    before = client.info("clients")["connected_clients"]
    open_at_once: list[int] = []

    def is_done() -> bool:
        open_at_once.append(client.info("clients")["connected_clients"] - before)
        return harness.rows("select count(*), max(value) from total") == [(RECORDS, 1)]

    with listening(heard.append):
        async with harness.running(worker):
            await harness.until(lambda: heard.count("flows.restored") >= GROUPS, within=180)
            for number in range(RECORDS):
                client.xadd("in", {"data": str(number)})
            await harness.until(is_done, within=180)

    assert "flows.failed" not in heard
    # Those of the exchange, and a few of the source.
    assert 12 <= max(open_at_once) <= 24 + 3


async def test_a_sink_in_redis_and_one_elsewhere_share_their_connections_too(harness: FlowHarness) -> None:
    client: Any = harness.redis
    url = harness.database.admin_url
    flow = counted(
        RedisSink("hash", "out"), ExternalPostgres(url, "total", ["key"], ["value"], connections=3)
    )

    await run(harness, flow, 16)

    assert client.hlen("out") == RECORDS
    assert harness.rows("select count(*) from total") == [(RECORDS,)]


async def test_tasks_wait_for_a_connection_of_the_bound(harness: FlowHarness) -> None:
    pool = SinkPool("A sink", harness.database.admin_url, 2)
    pids: set[int] = set()
    together: list[int] = []
    under_way = 0
    pair = asyncio.Barrier(2)

    async def use() -> None:
        nonlocal under_way
        async with pool.connection() as connection:
            under_way += 1
            together.append(under_way)
            # The second connection may take long to open.
            await pair.wait()
            row: Any = await (await connection.execute("select pg_backend_pid()")).fetchone()
            pids.add(row[0])
            under_way -= 1

    await asyncio.gather(*(use() for _ in range(20)))
    await pool.close()

    assert len(pids) <= 2
    assert max(together) == 2


async def test_connections_that_the_server_ended_are_not_given_out_again(harness: FlowHarness) -> None:
    pool = SinkPool("A sink", harness.database.admin_url, 3)
    held = [await pool.take() for _ in range(3)]
    pids = [connection.info.backend_pid for connection in held]
    for connection in held:
        await pool.give_back(connection)
    with harness.database.connect_admin() as admin:
        admin.execute("select pg_terminate_backend(pid, 5000) from unnest(%s::int[]) pid", (pids,))

    with pytest.raises(Exception, match="terminat"):
        async with pool.connection() as connection:
            await connection.execute("select 1")
    async with pool.connection() as connection:
        assert connection.info.backend_pid not in pids
        await connection.execute("select 1")
    await pool.close()


async def test_more_connections_than_redis_allows_are_refused_at_start(harness: FlowHarness) -> None:
    told = r"FLOW_REDIS_CONNECTIONS is 1000000, and Redis allows \d+ clients\. Lower .* redis-cli config set"
    with pytest.raises(StartRefused, match=told):
        await harness.run(counted(PostgresUpsert("total", ["key"], ["value"])), redis_connections=1_000_000)


async def test_a_pool_that_the_server_would_not_fill_is_refused_at_start(harness: FlowHarness) -> None:
    settings = Settings(pool_min=1, pool_max=900)
    flow = Flow("large").source(IterableSource([1])).sink(PostgresUpsert("total", ["key"], ["value"]))
    async with Fencepost(harness.database.url, settings=settings) as fp:
        with pytest.raises(StartRefused, match=r"DATABASE_POOL_MAX is 900.* may have \d+\. Lower"):
            await FlowWorker(fp, flow, settings=HURRY).run(until_done=True)


@pytest.mark.parametrize("kind", [ExternalPostgres, TwoPhasePostgres])
async def test_a_sink_that_wants_more_than_its_server_allows_is_refused_at_start(
    harness: FlowHarness, kind: Any
) -> None:
    tables: list[Any] = ["line", ["value"]] if kind is TwoPhasePostgres else ["total", ["key"], ["value"]]
    sink = kind(harness.database.admin_url, *tables, connections=5_000)
    with pytest.raises(
        StartRefused, match=rf"{kind.__name__} may open 5000 .* allows \d+\. Give the sink conn"
    ):
        await harness.run(Flow("wide").source(IterableSource([("a", 1)])).sink(sink))


async def test_more_tasks_than_may_prepare_are_refused_at_start(harness: FlowHarness) -> None:
    sink = TwoPhasePostgres(harness.database.admin_url, "total", ["key", "value"])
    with pytest.raises(StartRefused, match=r"is 20, and the flow has 110 tasks.*at least 110"):
        await harness.run(counted(sink))


async def test_more_tasks_than_producers_are_refused_at_start(harness: FlowHarness) -> None:
    sink = KafkaSink("topic", {}, producers=100)
    with pytest.raises(StartRefused, match=r"has 110 tasks, .* 100 producers.*producers=110"):
        await harness.run(counted(sink))


def test_no_connection_at_all_is_refused_when_the_sink_is_made() -> None:
    with pytest.raises(FlowError, match="connections of ExternalPostgres is 0"):
        ExternalPostgres("postgresql:///x", "total", ["key"], ["value"], connections=0)
