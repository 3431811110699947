"""An outbox channel as a source: each message once, in order for its key, whatever happens meanwhile."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from fencepost.errors import Mismatch, NotOwner
from fencepost.flows import Flow, SourceTrimmed
from fencepost.flows import _flow_store as flow_store
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sources import outbox as outbox_source
from fencepost.flows.sources.outbox import OutboxChannel
from fencepost.kernel import lease, outbox
from fencepost.testing import PlannedCrash, crash_at
from tests.integration.flows.harness import FlowHarness

KEYS = ("a", "b", "c")


def lines(harness: FlowHarness) -> list[int]:
    return [row[0] for row in harness.rows("select value from line")]


async def put(harness: FlowHarness, numbers: range, channel: str = "orders") -> None:
    """In turns for each key, so that most messages wait behind another one of their key."""
    await harness.fp.run(
        outbox.put_many(
            channel, [{"n": n} for n in numbers], keys=[KEYS[n % 3] if n % 4 else None for n in numbers]
        )
    )


def copied(trim: bool = True) -> Flow:
    stream = Flow("orders").source(OutboxChannel("orders", trim=trim)).map(lambda message: message["n"])
    return stream.sink(PostgresRows("line", ["value"]))


async def test_messages_of_a_channel_come_once_and_in_order_for_their_key(harness: FlowHarness) -> None:
    await put(harness, range(60))
    async with harness.running(harness.worker(copied())):
        await harness.until(lambda: len(lines(harness)) == 60)
        await put(harness, range(60, 90))
        await harness.until(lambda: len(lines(harness)) >= 90)

    by_key: dict[Any, list[int]] = defaultdict(list)
    for n in lines(harness):
        by_key[KEYS[n % 3] if n % 4 else None].append(n)
    assert sorted(lines(harness)) == list(range(90))
    assert all(by_key[key] == sorted(by_key[key]) for key in KEYS)
    assert harness.rows("select state, count(*) from fencepost.outbox_settled group by state") == [
        ("sent", 90)
    ]


@pytest.mark.parametrize("point", ["flows.commit.before_commit", "flows.commit.after_commit"])
async def test_a_crash_leaves_each_message_once(harness: FlowHarness, point: str) -> None:
    await put(harness, range(60))
    with pytest.raises(PlannedCrash), crash_at(point, nth=2):
        async with asyncio.timeout(60):
            await harness.worker(copied(), batch=10, records_max=10).run()

    async with harness.running(harness.worker(copied())):
        await harness.until(lambda: len(lines(harness)) >= 60)

    assert sorted(lines(harness)) == list(range(60))


async def test_key_groups_read_a_channel(harness: FlowHarness) -> None:
    await put(harness, range(60))
    keyed = Flow("grouped").source(OutboxChannel("orders")).key_by(lambda m: str(m["n"] % 7), groups=3)
    flow = keyed.count().sink(PostgresUpsert("total", ["key"], ["value"]))

    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: sum(row[1] for row in harness.rows("select * from total")) == 60)


async def test_the_log_is_trimmed_behind_the_commits_and_an_older_savepoint_is_refused(
    harness: FlowHarness,
) -> None:
    def kept() -> int:
        return int(harness.rows("select count(*) from fencepost.flow_inbox_message")[0][0])

    await put(harness, range(10))
    async with harness.running(harness.worker(copied())):
        await harness.until(lambda: len(lines(harness)) == 10)
        await harness.fp.run(flow_store.save("orders", "early"))
        await put(harness, range(10, 20))
        await harness.until(lambda: len(lines(harness)) == 20 and kept() == 0)
    await harness.fp.run(flow_store.restore("orders", "early"))

    with pytest.raises(SourceTrimmed, match="begins behind 10"):
        await harness.worker(copied()).run()


async def test_a_log_that_is_kept_is_read_again_from_a_savepoint(harness: FlowHarness) -> None:
    await put(harness, range(10))
    async with harness.running(harness.worker(copied(trim=False))):
        await harness.until(lambda: len(lines(harness)) == 10)
        await harness.fp.run(flow_store.save("orders", "early"))
        await put(harness, range(10, 20))
        await harness.until(lambda: len(lines(harness)) == 20)
    await harness.fp.run(flow_store.restore("orders", "early"))

    async with harness.running(harness.worker(copied(trim=False))):
        await harness.until(lambda: len(lines(harness)) == 30)

    assert sorted(lines(harness)) == sorted([*range(20), *range(10, 20)])


async def test_a_source_that_is_given_another_channel_is_refused(harness: FlowHarness) -> None:
    await harness.fp.run(outbox_source.gather("orders", "in", "one", 10))

    with pytest.raises(Mismatch):
        await harness.fp.run(outbox_source.gather("orders", "in", "two", 10))


async def test_a_zombie_removes_nothing_of_the_log(harness: FlowHarness) -> None:
    await put(harness, range(3))
    held = await harness.fp.run(lease.acquire("flow:orders/all", "a", 60))
    assert await harness.fp.run(outbox_source.gather("orders", "in", "orders", 10)) == 3
    stale = lease.Lease(held.resource, "b", held.token + 1, *([held.acquired_at] * 3))

    with pytest.raises(NotOwner):
        await harness.fp.run(outbox_source.trim("orders", "in", stale, 3, 10))

    assert await harness.fp.run(outbox_source.trim("orders", "in", held, 2, 10)) == 2
    assert await harness.fp.run(outbox_source.log_range("orders", "in")) == (3, 3)
