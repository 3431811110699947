"""Kafka as a source and a sink, on the broker that its client library brings for tests."""

from collections.abc import Generator
from typing import Any

import pytest

from fencepost.flows import Flow
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
