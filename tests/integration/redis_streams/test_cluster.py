"""Clients of a Redis Cluster: each command reaches the node that has its key, also while slots move."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from fencepost.cli.findings import FindingState
from fencepost.cli.probes._redis import probe_redis
from fencepost.redis_streams._slots import slot_of
from fencepost.redis_streams.connection import connect, connect_sync
from fencepost.redis_streams.stream import Streams
from tests.matrix.redis_cluster import RedisCluster, redis_cluster
from tests.waiting_for import until

KEYS = [f"key-{number}" for number in range(20)]
SCRIPT = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1]) return ARGV[1]"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with redis_cluster() as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: RedisCluster) -> AsyncIterator[Any]:
    client: Any = connect(cluster.url, reply_seconds=5)
    yield client
    await client.flushall()
    await client.aclose()


async def test_each_command_reaches_the_node_of_its_key(cluster: RedisCluster, client: Any) -> None:
    for key in KEYS:
        await client.set(key, key)
    assert [await client.get(key) for key in KEYS] == KEYS
    assert {cluster.primary_of(slot_of(key)).port for key in KEYS} == {
        member.port for member in cluster.members[:3]
    }


async def test_a_pipeline_is_answered_in_order_by_all_nodes(client: Any) -> None:
    pipe = client.pipeline(transaction=False)
    for key in KEYS:
        pipe.set(key, key)
        pipe.get(key)
    assert (await pipe.execute())[1::2] == KEYS
    assert len(pipe) == 0


async def test_an_error_in_a_pipeline_is_raised_and_the_rest_is_done(client: Any) -> None:
    pipe = client.pipeline(transaction=False)
    pipe.set("a", "text")
    pipe.lpush("a", "1")
    pipe.set("b", "kept")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await pipe.execute()
    assert await client.get("b") == "kept"


async def test_a_script_is_known_to_every_node(client: Any) -> None:
    script = client.register_script(SCRIPT)
    for key in KEYS:
        assert await script(keys=[f"{{{key}}}:a", f"{{{key}}}:b"], args=[key]) == key
    assert await client.script_exists(script.sha) == [True]
    await client.script_flush()
    assert await client.script_exists(script.sha) == [False]


async def test_keys_of_different_slots_in_one_command_are_refused(client: Any) -> None:
    with pytest.raises(ResponseError, match="same slot"):
        await client.mget(KEYS)


async def test_a_moved_slot_is_followed(cluster: RedisCluster, client: Any) -> None:
    script = client.register_script(SCRIPT)
    for _ in range(2):
        await client.set("jobs", "1")
        target = await asyncio.to_thread(cluster.move, slot_of("jobs"))
        assert await client.get("jobs") == "1"
        pipe = client.pipeline(transaction=False)
        pipe.get("jobs")
        pipe.get("other")
        assert await pipe.execute() == ["1", None]
        assert await script(keys=["{jobs}:a", "{jobs}:b"], args=["x"]) == "x"
        assert target.ask("GET", "{jobs}:b") == "x"


async def test_commands_succeed_while_their_slot_moves(cluster: RedisCluster, client: Any) -> None:
    """Between the two nodes: what has moved is asked for behind ASKING, on one connection."""
    slot = slot_of("{m}")
    source = cluster.primary_of(slot)
    target = next(each for each in cluster.members if each is not source and each.is_primary)
    names = [f"{{m}}:{number}" for number in range(10)]
    for name in names:
        await client.set(name, name)
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.node_id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.node_id)
    source.ask("MIGRATE", *target.address, "", 0, 5000, "KEYS", *names[:5])

    # Many at once, over many connections.
    assert await asyncio.gather(*map(client.get, names * 5)) == names * 5
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.get(name)
    assert await pipe.execute() == names
    # A script that names both a key that has moved and one that has not waits until both are in one place.
    script = client.register_script(SCRIPT)
    waiting = asyncio.create_task(script(keys=[names[0], names[9]], args=["both"]))
    source.ask("MIGRATE", *target.address, "", 0, 5000, "KEYS", *names[5:])
    for member in (target, source):
        member.ask("CLUSTER", "SETSLOT", slot, "NODE", target.node_id)
    assert await waiting == "both"


async def test_a_slot_that_never_arrives_is_an_error_of_the_connection(
    cluster: RedisCluster, client: Any
) -> None:
    slot = slot_of("{n}")
    source = cluster.primary_of(slot)
    target = next(each for each in cluster.members if each is not source and each.is_primary)
    await client.set("{n}:1", "1")
    await client.set("{n}:2", "2")
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.node_id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.node_id)
    source.ask("MIGRATE", *target.address, "", 0, 5000, "KEYS", "{n}:1")
    with pytest.raises(RedisConnectionError, match="still moving"):
        await client.register_script(SCRIPT)(keys=["{n}:1", "{n}:2"], args=["x"])
    source.ask("MIGRATE", *target.address, "", 0, 5000, "KEYS", "{n}:2")
    for member in (target, source):
        member.ask("CLUSTER", "SETSLOT", slot, "NODE", target.node_id)


def test_a_thread_reaches_every_node_too(cluster: RedisCluster) -> None:
    connection: Any = connect_sync(cluster.url, reply_seconds=5)
    with connection as client:
        pipe = client.pipeline(transaction=False)
        for key in KEYS:
            pipe.set(key, key)
        pipe.execute()
        assert [client.get(key) for key in KEYS] == KEYS
        assert set(client.scan_iter("key-*")) == set(KEYS)
        cluster.move(slot_of(KEYS[0]))
        assert client.get(KEYS[0]) == KEYS[0]
        client.flushall()


def test_the_doctor_asks_a_node(cluster: RedisCluster) -> None:
    assert [finding.state for finding in probe_redis(cluster.url)] == [FindingState.OK, FindingState.OK]


async def test_a_cluster_that_is_gone_is_an_error_of_the_connection() -> None:
    client = connect("redis+cluster://127.0.0.1:1,127.0.0.1:2", reply_seconds=1)
    with pytest.raises(RedisConnectionError, match="No node of the cluster"):
        await client.get("a")
    await client.aclose()


async def test_a_client_follows_to_the_replica_of_a_killed_node() -> None:
    with redis_cluster() as cluster:
        client = connect(cluster.url, reply_seconds=5)
        streams = Streams(client, "workers")
        before = await streams.dispatch("jobs", 1, [1], 1000)
        lost = cluster.primary_of(slot_of("jobs"))
        copied = cluster.replica_of(lost)
        # WAIT would wait for the writes of its own connection, which has none.
        written = int(lost.ask("ROLE")[1])
        await until(
            "the replica has what was written",
            lambda: any(int(one[2]) >= written for one in lost.ask("ROLE")[2]),
        )
        await asyncio.to_thread(cluster.kill_primary_of, slot_of("jobs"))
        async with asyncio.timeout(30):
            while True:
                try:
                    after = await streams.dispatch("jobs", 1, [2], 1000)
                except RedisConnectionError:
                    await asyncio.sleep(0.05)  # A caller's own pace.
                else:
                    break
        assert after.incarnation == before.incarnation
        assert copied.ask("XLEN", "jobs") == 2
        await client.aclose()
