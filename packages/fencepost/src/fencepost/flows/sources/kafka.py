"""A Kafka topic as a source: its partitions are the source's, and the checkpoint holds the offset that
counts.

No consumer group assigns partitions: a partition belongs to the worker that holds the lease of its unit.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
                # It tells where the reader stands behind the marks of transactions, which are no messages.
                "enable.partition.eof": True,
            }
        )
        begins = 0 if after is None else int(after) + 1
        position = kafka.TopicPartition(self._topic, int(partition), begins)
        try:
            await asyncio.to_thread(self._check_partitions, consumer)
            lowest, _ = await asyncio.to_thread(consumer.get_watermark_offsets, position, ANSWER_SECONDS)
            if after is not None and lowest > begins:
                await asyncio.to_thread(self._check_gap, consumer, position, int(after), lowest)
        except BaseException:
            consumer.close()
            raise
        position.offset = max(begins, lowest)
        consumer.assign([position])
        return KafkaReader(consumer, position, None if after is None else int(after))

    def _check_partitions(self, consumer: Any) -> None:
        found = consumer.list_topics(self._topic, timeout=ANSWER_SECONDS).topics[self._topic]
        if found.error is not None or len(found.partitions) < self._count:
            why = found.error or f"it has {len(found.partitions)} partitions, and {self._count} are given"
            raise FlowError(f"The topic {self._topic} cannot be read: {why}.")
        if len(found.partitions) > self._count:
            raise StartRefused(
                f"The topic {self._topic} has {len(found.partitions)} partitions, and the source reads "
                f"{self._count}: the messages of the others would be left out. Give it "
                f"partitions={len(found.partitions)}."
            )

    def _check_gap(self, consumer: Any, position: Any, after: int, lowest: int) -> None:
        """Raise SourceTrimmed unless no message was in what is gone.

        Retention also removes the marks of transactions behind the last message. A reader that stood behind
        them has said so in the offsets of its group, together with the message that it came to.
        """
        [stored] = consumer.committed([position], ANSWER_SECONDS)
        if stored.offset >= lowest and stored.metadata == str(after):
            return
        raise SourceTrimmed(
            f"{self._topic}/{position.partition} begins at {lowest}, and this flow has come to {after}: "
            "what lay between was removed by the topic's retention. Restore a savepoint that lies behind the "
            "loss, or begin anew."
        )


class KafkaReader:
    """Reads one partition, in order."""

    def __init__(self, consumer: Any, position: Any, after: int | None) -> None:
        self._consumer = consumer
        self._topic, self._partition = position.topic, position.partition
        self._last = after
        """The last message that was read."""
        self._acknowledged = after
        self._stands = 0
        """How far the client has come: behind the last message, or behind marks that follow it."""
        self._told: tuple[int, int] | None = None

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next values."""
        found = await asyncio.to_thread(self._consumer.consume, limit, max(wait_seconds, 0.01))
        messages: list[Any] = []
        for message in found:
            if message.error() is None:
                messages.append(message)
                self._stands = message.offset() + 1
            elif message.error().name() == "_PARTITION_EOF":
                self._stands = message.offset()
            else:
                raise FlowError(f"Kafka: {message.error()}")
        if messages:
            self._last = messages[-1].offset()
        elif found:
            self._tell()
        traces = traces_of(lambda: (_headers(message) for message in messages))
        offsets = [message.offset() for message in messages]
        return Chunk([message.value() for message in messages], offsets, traces=traces)

    async def acknowledge(self, offset: Offset) -> None:
        """The checkpoint holds the offset. The group's offset shows it to Kafka's own tools."""
        self._acknowledged = int(offset)
        self._tell()

    def _tell(self) -> None:
        """Store how far the reader has come, with the message that it came to. Best effort: only a position
        behind the marks of transactions is ever read back."""
        if self._acknowledged is None:
            return
        is_all = self._acknowledged == self._last
        stands = max(self._stands, self._acknowledged + 1) if is_all else self._acknowledged + 1
        if self._told == (stands, self._acknowledged):
            return
        self._told = stands, self._acknowledged
        kafka = client_library()
        place = kafka.TopicPartition(self._topic, self._partition, stands, str(self._acknowledged))
        with suppress(kafka.KafkaException):
            self._consumer.commit(offsets=[place], asynchronous=True)

    async def lag(self, count: int) -> int | None:
        """From the newest offset that the client has received, without a request to the broker."""
        [assigned] = self._consumer.assignment()
        _, end = self._consumer.get_watermark_offsets(assigned, cached=True)
        return max(0, end - self._stands) if self._stands and end >= 0 else None

    async def close(self) -> None:
        """Release what is open."""
        await asyncio.to_thread(self._consumer.close)


def _headers(message: Any) -> dict[str, str]:
    """Kafka headers are pairs of a name and bytes."""
    return {name: value.decode(errors="replace") for name, value in message.headers() or () if value}
