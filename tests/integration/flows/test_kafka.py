"""Kafka as a source and a sink, on the broker that its client library brings for tests."""

from collections.abc import Generator
from typing import Any

import pytest

from fencepost.flows import Flow, SourceTrimmed
from fencepost.flows.sinks.kafka import KafkaSink
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.kafka import KafkaTopic, client_library
from fencepost.testing.flow_sinks import check_sink
from tests.integration.flows.scene import Scene
from tests.receivers import committed, kafka


@pytest.fixture
def broker() -> Generator[dict[str, Any]]:
    """The settings that reach it."""
    with kafka() as brokers:
        yield {"bootstrap.servers": brokers}


async def test_messages_of_a_topic(scene: Scene, broker: dict[str, Any]) -> None:
    producer = client_library().Producer(broker)
    for n in range(100):
        producer.produce("numbers", str(n), partition=n % 2)
    producer.flush()
    source = KafkaTopic("numbers", broker, partitions=2)
    flow = Flow("kafka").source(source).json().sink(PostgresRows("line", ["value"]))

    async with scene.running(scene.worker(flow)):
        await scene.until(lambda: len(scene.rows("select * from line")) == 100)
    producer.produce("numbers", "100", partition=0)
    producer.flush()
    async with scene.running(scene.worker(flow)):
        await scene.until(lambda: len(scene.rows("select * from line")) >= 101)

    assert sorted(row[0] for row in scene.rows("select value from line")) == list(range(101))


async def test_records_and_frontier_in_one_transaction(scene: Scene, broker: dict[str, Any]) -> None:
    async def effects() -> list[int]:
        return [int(value) for value in committed(broker["bootstrap.servers"], "out")]

    await check_sink(
        scene.fp,
        lambda: KafkaSink("out", broker),
        effects,
        points=["flows.commit.after_store", "flows.commit.before_flag"],
    )


async def test_a_topic_that_has_lost_what_comes_next_is_refused(scene: Scene, broker: dict[str, Any]) -> None:
    """A partition of this broker keeps 5 MB, and forgets the oldest."""
    producer = client_library().Producer(broker)
    source = KafkaTopic("short", broker, partitions=1)
    for _ in range(90):
        producer.produce("short", b"x" * 100_000, partition=0)
        producer.flush()

    with pytest.raises(SourceTrimmed, match=r"short/0 begins at \d+, and this flow has come to 3"):
        await source.open(scene.place(), "0", 3)
    reader = await source.open(scene.place(), "0", 88)
    chunk = await reader.read(10, 5)
    await reader.close()

    assert list(chunk.offsets) == [89]
