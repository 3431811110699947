"""A Kafka topic as a source: its partitions are the source's, and the checkpoint holds the offset that
counts.

No consumer group assigns partitions: a partition belongs to the worker that holds the lease of its unit.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.flows._commit_trace import traces_of
from fencepost.flows._errors import FlowError, SourceTrimmed, StartRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Offset
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._source import Chunk

ANSWER_SECONDS = 30.0


def client_library() -> Any:
    """Import confluent-kafka, which has no type stubs and is an optional extra."""
    try:
        return importlib.import_module("confluent_kafka")
    except ModuleNotFoundError:
        raise StartRefused("Kafka needs confluent-kafka: pip install 'fencepost[kafka]'.") from None


class KafkaTopic:
    """The values of a topic's messages, as bytes. `config` is passed to librdkafka, with
    bootstrap.servers."""

    promise = Promise(EXACTLY_ONCE, "messages can be read again from the offset in the checkpoint")

    def __init__(
        self, topic: str, config: Mapping[str, Any], *, partitions: int, name: str | None = None
    ) -> None:
        self.name = name or topic
        self._topic = topic
        self._config = config
        self._count = partitions

    @property
    def partitions(self) -> Sequence[str]:
        """The names of its partitions."""
        return [str(number) for number in range(self._count)]

    def reads(self, partition: str) -> str:
        """What a partition reads, for people."""
        return f"kafka {self._topic}/{partition}"

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> KafkaReader:
        """Read a partition from behind an offset."""
        kafka = client_library()
        consumer = kafka.Consumer(
            {
                "group.id": f"fencepost-{context.flow}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **self._config,
                # If retention has overtaken the reader, continuing at another offset would skip messages
                # silently.
                "auto.offset.reset": "error",
            }
        )
        position = kafka.TopicPartition(self._topic, int(partition), 0 if after is None else int(after) + 1)
        lowest, _ = await asyncio.to_thread(consumer.get_watermark_offsets, position, ANSWER_SECONDS)
        if after is not None and lowest > int(after) + 1:
            consumer.close()
            raise SourceTrimmed(
                f"{self._topic}/{partition} begins at {lowest}, and this flow has come to {after}: what "
                f"lay between "
                "was removed by the topic's retention. Restore a savepoint that lies behind the loss, "
                "or begin anew."
            )
        position.offset = max(position.offset, lowest)
        consumer.assign([position])
        return KafkaReader(consumer)


class KafkaReader:
    """Reads one partition, in order."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next values."""
        messages = await asyncio.to_thread(self._consumer.consume, limit, max(wait_seconds, 0.01))
        for message in messages:
            if message.error() is not None:
                raise FlowError(f"Kafka: {message.error()}")
        traces = traces_of(lambda: (_headers(message) for message in messages))
        offsets = [message.offset() for message in messages]
        return Chunk([message.value() for message in messages], offsets, traces=traces)

    async def acknowledge(self, offset: Offset) -> None:
        """Does nothing: the checkpoint holds the offset."""

    async def lag(self, count: int) -> int | None:
        """From the newest offset that the client has received, without a request to the broker."""
        [assigned] = self._consumer.assignment()
        _, end = self._consumer.get_watermark_offsets(assigned, cached=True)
        position = self._consumer.position([assigned])[0].offset
        return max(0, end - position) if position >= 0 and end >= 0 else None

    async def close(self) -> None:
        """Release what is open."""
        await asyncio.to_thread(self._consumer.close)


def _headers(message: Any) -> dict[str, str]:
    """Kafka headers are pairs of a name and bytes."""
    return {name: value.decode(errors="replace") for name, value in message.headers() or () if value}
