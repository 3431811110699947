"""Kafka as a source and a sink, on the broker that its client library brings for tests."""

from collections.abc import Generator
from typing import Any

import pytest

from fencepost.flows import CheckpointId, Flow, SourceTrimmed, StartRefused
from fencepost.flows._errors import FlowError
from fencepost.flows.sinks.kafka import KafkaSink
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.kafka import KafkaTopic, client_library
from fencepost.testing._flow_sinks import check_sink
from tests.integration.flows.harness import FlowHarness
from tests.receivers import committed, kafka


@pytest.fixture
def broker() -> Generator[dict[str, Any]]:
    """The settings that reach it."""
    with kafka() as brokers:
        yield {"bootstrap.servers": brokers}


async def test_messages_of_a_topic(harness: FlowHarness, broker: dict[str, Any]) -> None:
    producer = client_library().Producer(broker)
    for n in range(100):
        producer.produce("numbers", str(n), partition=n % 2)
    producer.flush()
    source = KafkaTopic("numbers", broker, partitions=4)
    flow = Flow("kafka").source(source).json().sink(PostgresRows("line", ["value"]))

    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: len(harness.rows("select * from line")) == 100)
    producer.produce("numbers", "100", partition=0)
    producer.flush()
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: len(harness.rows("select * from line")) >= 101)

    assert sorted(row[0] for row in harness.rows("select value from line")) == list(range(101))


async def test_records_and_frontier_in_one_transaction(harness: FlowHarness, broker: dict[str, Any]) -> None:
    async def effects() -> list[int]:
        return [int(value) for value in committed(broker["bootstrap.servers"], "out")]

    await check_sink(
        harness.fp,
        lambda: KafkaSink("out", broker),
        effects,
        points=["flows.commit.after_store", "flows.commit.before_flag"],
    )


def overflow(broker: dict[str, Any], topic: str, messages: int = 90) -> None:
    """A partition of this broker keeps 5 MB, and forgets the oldest."""
    producer = client_library().Producer(broker)
    for _ in range(messages):
        producer.produce(topic, b"x" * 100_000, partition=0)
        producer.flush()


async def test_a_frontier_that_retention_may_have_removed_is_refused_and_one_that_it_left_is_found(
    broker: dict[str, Any],
) -> None:
    await KafkaSink("out", broker).deliver(CheckpointId("flow:x/one", 1, 1), [b"1"])
    overflow(broker, "out-frontier")
    other = "flow:x/other"
    client = client_library().Producer(broker)
    client.produce("out-frontier", b"7", key=other, partition=0)
    client.flush()

    with pytest.raises(StartRefused, match=r"begins at offset \d+: its retention has removed messages"):
        await KafkaSink("out", broker).position("flow:x/one")
    assert await KafkaSink("out", broker).position(other) == 7


async def test_a_topic_that_has_lost_what_comes_next_is_refused(
    harness: FlowHarness, broker: dict[str, Any]
) -> None:
    source = KafkaTopic("short", broker, partitions=4)
    overflow(broker, "short")

    with pytest.raises(SourceTrimmed, match=r"short/0 begins at \d+, and this flow has come to 3"):
        await source.open(harness.context(), "0", 3)
    reader = await source.open(harness.context(), "0", 88)
    chunk = await reader.read(10, 5)
    await reader.close()

    assert list(chunk.offsets) == [89]


async def test_a_reader_that_retention_overtakes_passes_nothing_by(
    harness: FlowHarness, broker: dict[str, Any]
) -> None:
    overflow(broker, "short", messages=3)
    read_ahead = {"queued.max.messages.kbytes": 1, "fetch.message.max.bytes": 1000}
    reader = await KafkaTopic("short", {**broker, **read_ahead}, partitions=4).open(
        harness.context(), "0", None
    )
    offsets = list((await reader.read(1, 60)).offsets)
    overflow(broker, "short")

    async def to_the_end() -> None:
        while offsets[-1] != 92:
            offsets.extend((await reader.read(1, 60)).offsets)

    with pytest.raises(FlowError, match="out of range"):
        await to_the_end()
    await reader.close()

    assert offsets == list(range(len(offsets)))
