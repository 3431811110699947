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


@pytest.fixture
def broker() -> Generator[dict[str, Any]]:
    """The settings that reach it. It lives as long as the client that made it."""
    keeper = client_library().Producer({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 0})
    brokers = keeper.list_topics(timeout=10).brokers.values()
    yield {"bootstrap.servers": ",".join(f"{each.host}:{each.port}" for each in brokers)}
    keeper.flush()


def committed(broker: dict[str, Any], topic: str) -> list[int]:
    """Every message that a reader of committed ones gets, up to the end of every partition."""
    kafka = client_library()
    config = {**broker, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = kafka.Consumer({**config, "enable.auto.commit": False, "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([kafka.TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[int] = []
    ends = 0
    while ends < len(partitions):
        for message in consumer.consume(1000, 0.3):
            if message.error() is None:
                found.append(int(message.value()))
            else:
                assert message.error().name() == "_PARTITION_EOF"
                ends += 1
    consumer.close()
    return found


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
        return committed(broker, "out")

    await check_sink(
        scene.fp,
        lambda: KafkaSink("out", broker),
        effects,
        points=["flows.commit.after_store", "flows.commit.before_flag"],
    )
