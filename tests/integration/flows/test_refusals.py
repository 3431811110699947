"""What is refused when a flow starts, because going on would break its promise; each with the remedy."""

import asyncio
from typing import Any

import pytest

from fencepost.flows import Flow, IterableSource, SourceTrimmed, StartRefused, StateMismatch
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import FlowHarness

FRONTIER = "fencepost:frontier:{out}"


def copied(trim: bool) -> Flow:
    return Flow("copy").source(RedisStreams("in", trim=trim)).json().sink(RedisSink("list", "out"))


async def take(harness: FlowHarness, numbers: range, *, trim: bool, **changes: Any) -> None:
    client: Any = harness.redis
    async with harness.running(harness.worker(copied(trim), **changes)):
        for n in numbers:
            client.xadd("in", {"data": str(n)})
            await harness.until(lambda n=n: client.lrange("out", -1, -1) == [str(n)])  # type: ignore[misc]


async def test_a_redis_frontier_behind_a_source_that_was_trimmed(harness: FlowHarness) -> None:
    client: Any = harness.redis
    await take(harness, range(3), trim=True)
    older, kept = client.hgetall(FRONTIER), client.lrange("out", 0, -1)
    await take(harness, range(3, 6), trim=True)
    # As after a restart of a Redis that had not written its newest seconds, while the source lives elsewhere.
    client.ltrim("out", 0, len(kept) - 1)
    client.hset(FRONTIER, mapping=older)

    with pytest.raises(SourceTrimmed, match="begins behind"):
        await harness.worker(copied(True)).run()


async def test_a_redis_frontier_behind_every_checkpoint_that_is_kept(harness: FlowHarness) -> None:
    client: Any = harness.redis
    await take(harness, range(2), trim=False, keep_checkpoints=1)
    older = client.hgetall(FRONTIER)
    await take(harness, range(2, 8), trim=False, keep_checkpoints=1)
    client.hset(FRONTIER, mapping=older)

    with pytest.raises(StartRefused, match="is no longer kept"):
        await harness.worker(copied(False)).run()


async def test_a_redis_frontier_before_what_postgresql_knows(harness: FlowHarness) -> None:
    client: Any = harness.redis
    await take(harness, range(3), trim=False)
    [(resource, number)] = client.hgetall(FRONTIER).items()
    client.hset(FRONTIER, resource, int(number) + 10)

    with pytest.raises(StartRefused, match="put back to an older state"):
        await harness.worker(copied(False)).run()


def summed(version: int, **more: Any) -> Flow:
    keyed = Flow("versions", **more).source(IterableSource([1, 2, 3])).key_by(str)
    totals = keyed.fold(0, lambda total, n: total + n, name="total", version=version)
    return totals.sink(PostgresUpsert("total", ["key"], ["value"]))


async def test_state_of_another_version(harness: FlowHarness) -> None:
    await harness.run(summed(1))

    with pytest.raises(StateMismatch, match=r"stored by version 1 and the graph has version 2.*migrations"):
        await harness.run(summed(2))


async def test_state_of_another_version_that_is_migrated(harness: FlowHarness) -> None:
    await harness.run(summed(1))
    seen: list[Any] = []

    def migrate(version: int, pairs: Any) -> Any:
        seen.append((version, len(pairs)))
        return pairs

    await harness.run(summed(2, migrations={"total": migrate}))

    assert seen == [(1, 3)]


async def test_state_of_a_step_that_is_gone(harness: FlowHarness) -> None:
    await harness.run(summed(1))
    renamed = Flow("versions").source(IterableSource([1, 2, 3])).key_by(str)
    flow = renamed.count(name="other").sink(PostgresUpsert("total", ["key"], ["value"]))

    with pytest.raises(StateMismatch, match=r"total \(fold\) is not in the graph.*rename={'total': 'other'}"):
        await harness.run(flow)


async def test_a_worker_too_many(harness: FlowHarness) -> None:
    flow = copied(trim=False)
    first = harness.worker(flow)
    async with harness.running(first):
        await harness.until(lambda: first.holds != [])
        with pytest.raises(
            StartRefused, match=r"All 1 worker slots of copy are taken\. Raise FLOW_WORKERS_MAX"
        ):
            async with asyncio.timeout(60):
                await harness.worker(flow, workers_max=1).run()
