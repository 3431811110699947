"""A Kafka topic as a sink: the records and the frontier in one transaction of Kafka.

A process cannot resume the transaction of another, so nothing is prepared: the values are stored in the
checkpoint, and the transaction that writes them also writes the number of their checkpoint to a separate
frontier topic. Opening a producer under the name of a task fences the previous one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.flows._errors import FlowError, StartRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows.sinks._rejecting import STOP, OnReject, Rejected, Rejections, converted
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import StagedSink
from fencepost.flows.sinks.redis import as_bytes
from fencepost.flows.sources.kafka import ANSWER_SECONDS, client_library

LOOK_SECONDS = 0.2
PRODUCERS = 200
MESSAGE_BYTES_MAX = 1_000_000
"""The client's own default for message.max.bytes."""
HEAD_BYTES = 512
"""The maximum overhead that the client counts in addition to key and value."""


class KafkaSink(StagedSink):
    """Writes each value as a message; `key` gives its key. Consumers must read committed messages only.

    `frontier_topic` has one partition, and should be compacted: only its newest message for a task counts.
    Each task has its own producer, because the producer's name fences the previous one: at most `producers`.
    """

    numbered = True
    promise = Promise(
        EXACTLY_ONCE, "records and frontier are one transaction of Kafka, read by read_committed"
    )

    def __init__(
        self,
        topic: str,
        config: Mapping[str, Any],
        *,
        key: Callable[[Any], bytes | str | None] | None = None,
        encode: Callable[[Any], bytes] = as_bytes,
        frontier_topic: str | None = None,
        producers: int = PRODUCERS,
        on_reject: OnReject = STOP,
    ) -> None:
        self.on_reject = on_reject
        self._producers_max = producers
        self._topic = topic
        self._config = config
        self._key = key
        self._encode = encode
        self._frontier_topic = frontier_topic or f"{topic}-frontier"
        self._producers: dict[str, Any] = {}
        self._positions: dict[str, int] = {}

    async def open(self, context: FlowContext) -> None:
        if context.tasks > self._producers_max:
            raise StartRefused(
                f"The flow has {context.tasks} tasks, and the sink in {self._topic} may have "
                f"{self._producers_max} producers, one for each: a worker that is alone has all of them. Use "
                f"fewer key groups, or give the sink producers={context.tasks} if the brokers allow that "
                "many connections."
            )

    async def close(self) -> None:
        self._producers.clear()

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        # Before the call to Kafka, so that a repeat, which is skipped, returns the same rejections.
        messages, rejected = converted(values, self._message)
        if rejected and self.on_reject == STOP:
            return rejected
        if checkpoint.resource not in self._positions:
            await self.position(checkpoint.resource)
        if checkpoint.number > self._positions[checkpoint.resource]:
            await asyncio.to_thread(self._write, checkpoint.resource, checkpoint.number, messages)
            self._positions[checkpoint.resource] = checkpoint.number
        return rejected

    def _message(self, value: Any) -> tuple[bytes, bytes | str | None]:
        body = self._encode(value)
        key = None if self._key is None else self._key(value)
        size = len(body) + len(key or b"") + HEAD_BYTES
        allowed = int(self._config.get("message.max.bytes", MESSAGE_BYTES_MAX))
        if size > allowed:
            raise Rejected(
                f"A message of {size} bytes is larger than message.max.bytes, {allowed}.", body=body
            )
        return body, key

    async def position(self, resource: str) -> int | None:
        """Fence the previous producer of this task, then read what is committed: nothing can follow it."""
        await asyncio.to_thread(self._open_producer, resource)
        mark = await asyncio.to_thread(self._mark, resource)
        found = await asyncio.to_thread(self._read_frontier, resource, mark)
        self._positions[resource] = found
        return found or None

    async def restored(self, resource: str, number: int) -> None:
        if number > self._positions.get(resource, 0):
            await self.deliver(CheckpointId(resource, 0, number), ())

    def _open_producer(self, resource: str) -> None:
        producer = client_library().Producer({**self._config, "transactional.id": f"fencepost-{resource}"})
        producer.init_transactions(ANSWER_SECONDS)
        self._producers[resource] = producer

    def _write(
        self, resource: str, number: int, messages: Sequence[tuple[bytes, bytes | str | None]]
    ) -> None:
        producer = self._producers[resource]
        producer.begin_transaction()
        try:
            for body, key in messages:
                _produce(producer, self._topic, body, key)
            _produce(producer, self._frontier_topic, str(number).encode(), resource, partition=0)
            producer.commit_transaction(ANSWER_SECONDS)
        except BaseException:
            # The next position() opens another producer, which aborts any open transaction of this one.
            self._producers.pop(resource, None)
            self._positions.pop(resource, None)
            raise

    def _mark(self, resource: str) -> int:
        """Write a message, and return its offset. A reader of committed messages gets nothing after an open
        transaction, of any task: when it gets this message, it has got everything before it."""
        marks: list[int] = []

        def delivered(_: Any, message: Any) -> None:
            marks.append(message.offset())

        producer = self._producers[resource]
        producer.begin_transaction()
        producer.produce(
            self._frontier_topic,
            b"0",
            # Not under the name of the task: a compacted topic keeps only the newest message.
            key=f"{resource}/mark".encode(),
            partition=0,
            on_delivery=delivered,
        )
        producer.flush(ANSWER_SECONDS)
        producer.commit_transaction(ANSWER_SECONDS)
        return marks[0]

    def _read_frontier(self, resource: str, mark: int) -> int:
        kafka = client_library()
        consumer = kafka.Consumer(
            {
                **self._config,
                "group.id": f"fencepost-frontier-{resource}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        try:
            # Not offset 0: if that offset is gone, the client would continue at the end, past the mark.
            partition = kafka.TopicPartition(self._frontier_topic, 0, kafka.OFFSET_BEGINNING)
            consumer.assign([partition])
            newest = 0
            deadline = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < deadline:
                for message in consumer.consume(1000, LOOK_SECONDS):
                    if message.error() is not None:
                        raise FlowError(f"Kafka: {message.error()}")
                    if message.offset() >= mark:
                        return newest or self._never_written(consumer, partition)
                    if message.key() == resource.encode():
                        newest = max(newest, int(message.value()))
            # The part that was not read may hold a newer number: to continue would repeat it.
            raise FlowError(
                f"{self._frontier_topic} could not be read to its end in {ANSWER_SECONDS:g} s: a transaction "
                "of another task is open there. Kafka ends it after its transaction.timeout.ms."
            )
        finally:
            consumer.close()

    def _never_written(self, consumer: Any, partition: Any) -> int:
        """Return 0 if the topic is complete. Messages that retention has removed may have included the
        frontier, while the records still exist: to start from the beginning would duplicate them."""
        begins, _ = consumer.get_watermark_offsets(partition, ANSWER_SECONDS)
        if begins > 0:
            raise StartRefused(
                f"{self._frontier_topic} begins at offset {begins}: its retention has removed messages, and "
                "how far this sink has come may have been among them. Give the topic cleanup.policy=compact; "
                "if the sink is new, or may begin anew, name another frontier_topic."
            )
        return 0


def _produce(producer: Any, topic: str, body: bytes, key: bytes | str | None, **place: int) -> None:
    """Hand a message to the client, which sends it; while its queue is full, wait for it."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            producer.produce(topic, body, key=key, **place)
        except BufferError:
            if time.monotonic() > deadline:
                raise
            producer.poll(LOOK_SECONDS)
        else:
            producer.poll(0)
            return
