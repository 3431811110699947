"""A sink in Kafka obeys what a person restores, and gets again what it has lost."""

import asyncio
from collections.abc import AsyncGenerator
from typing import LiteralString

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.embedded import Database
from fencepost.flows import Flow
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._errors import StartRefused
from fencepost.flows.sinks import kafka as kafka_sinks
from fencepost.flows.sinks.kafka import KafkaSink
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.testing import crash_at
from tests.acceptance.flows import kafka_model
from tests.integration.flows.harness import TABLES, FlowHarness

# A topic that came back from an older copy: the last of its transactions are in none of its partitions.
LOSE_THE_LAST: LiteralString = """
    delete from kafka_message where id >= (select max(id) from kafka_message where value = '6') returning id
"""


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return TABLES


@pytest.fixture
async def harness(
    database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[FlowHarness]:
    monkeypatch.setattr(kafka_sinks, "client_library", lambda: kafka_model)
    with database.connect_admin() as connection:
        connection.execute(kafka_model.SCHEMA)
    async with FlowHarness.of(database, redis_url) as harness:
        yield harness


def flow(harness: FlowHarness) -> Flow:
    sink = KafkaSink("out", {"bootstrap.servers": harness.database.admin_url})
    return Flow("log").source(RedisStreams("in")).json().sink(sink)


def written(harness: FlowHarness) -> list[int]:
    return [int(value) for value in kafka_model.committed(harness.database.admin_url, "out")]


async def writing(harness: FlowHarness, *expected: int, send: range) -> None:
    async with harness.running(harness.worker(flow(harness))):
        for n in send:
            harness.redis.xadd("in", {"data": str(n)})
        await harness.until(lambda: len(written(harness)) >= len(expected))
    assert written(harness) == list(expected)


async def ended(harness: FlowHarness) -> None:
    """By what it raises."""
    async with asyncio.timeout(60):
        await harness.worker(flow(harness)).run()


async def saved(harness: FlowHarness) -> None:
    """A savepoint of 6 values, and 9 by the time of the restore."""
    await writing(harness, *range(6), send=range(6))
    await harness.fp.run(flow_store.save("log", "early"))
    await writing(harness, *range(9), send=range(6, 9))


async def test_a_restore_is_obeyed(harness: FlowHarness) -> None:
    await saved(harness)
    await harness.fp.run(flow_store.restore("log", "early"))

    for point in ("flows.commit.before_store", "flows.commit.after_store", "flows.recover.before_finish"):
        with crash_at(point), pytest.raises(PlannedCrash):
            await ended(harness)

    # A log is not taken back: what came behind the savepoint is written once more, and only once.
    await writing(harness, *range(9), 6, 7, 8, send=range(0))


async def test_a_restore_that_ended_before_its_first_commit_doubles_nothing(harness: FlowHarness) -> None:
    """A second start does not take what a person wished for a loss of the sink."""
    await saved(harness)
    await harness.fp.run(flow_store.restore("log", "early"))
    with crash_at("flows.commit.before_begin"), pytest.raises(PlannedCrash):
        await ended(harness)

    await writing(harness, *range(9), 6, 7, 8, 9, send=range(9, 10))


async def test_a_topic_that_lost_its_last_transactions_gets_them_again(harness: FlowHarness) -> None:
    await writing(harness, *range(6), send=range(6))
    await writing(harness, *range(7), send=range(6, 7))
    await writing(harness, *range(8), send=range(7, 8))
    assert harness.rows(LOSE_THE_LAST)
    assert written(harness) == list(range(6))

    await writing(harness, *range(9), send=range(8, 9))


async def test_a_frontier_that_retention_removed_is_not_taken_for_a_new_sink(harness: FlowHarness) -> None:
    """The records are there, and would be written again."""
    await writing(harness, *range(6), send=range(6))
    kafka_model.expire(harness.database.admin_url, "out-frontier")

    with pytest.raises(StartRefused, match="retention has removed"):
        await ended(harness)
    assert written(harness) == list(range(6))
