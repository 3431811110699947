"""Kafka as a source and a sink, on a real broker: what a model of it can only claim."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fencepost.crashpoints import PlannedCrash, crash
from fencepost.flows import CheckpointId, Flow, IterableSource, SourceTrimmed, StartRefused
from fencepost.flows._errors import FlowError
from fencepost.flows.sinks import kafka as kafka_sinks
from fencepost.flows.sinks.kafka import KafkaSink
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.kafka import KafkaTopic, client_library
from fencepost.testing._flow_sinks import check_sink
from fencepost.testing._flow_windows import PHASES
from tests import kafka_broker as kafka
from tests.integration.flows.harness import FlowHarness
from tests.integration.flows.source_matrix import HARDEST, POINTS, check_source
from tests.receivers import committed
from tests.tmp_dirs import server_directory

SECONDS = 60.0
_names = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[kafka.KafkaBroker]:
    if not kafka.is_here():
        pytest.skip(kafka.MISSING)
    with kafka.kafka_broker(server_directory()) as broker:
        yield broker


class Topics:
    """Topics of one test on the broker, and producers for them."""

    def __init__(self, broker: kafka.KafkaBroker) -> None:
        self.config: dict[str, Any] = {"bootstrap.servers": broker.address}
        self._library = client_library()
        self._admin: Any = __import__("confluent_kafka.admin").admin.AdminClient(self.config)

    def make(self, partitions: int = 1, **config: str) -> str:
        """A topic of a new name."""
        name = f"topic-{next(_names)}"
        admin: Any = __import__("confluent_kafka.admin").admin
        topic = admin.NewTopic(
            name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()}
        )
        for done in self._admin.create_topics([topic]).values():
            done.result(SECONDS)
        return name

    def producer(self, name: str | None = None, **config: Any) -> Any:
        producer = self._library.Producer(
            {**self.config, **config, **({} if name is None else {"transactional.id": name})}
        )
        if name is not None:
            producer.init_transactions(SECONDS)
        return producer

    def put(self, topic: str, numbers: Sequence[int], partitions: int = 1) -> None:
        producer = self.producer()
        for n in numbers:
            producer.produce(topic, str(n), partition=n % partitions)
        assert producer.flush(SECONDS) == 0

    def begins(self, topic: str) -> int:
        consumer = self._library.Consumer({**self.config, "group.id": "looker"})
        lowest, _ = consumer.get_watermark_offsets(self._library.TopicPartition(topic, 0), SECONDS)
        consumer.close()
        return int(lowest)

    def remove_until(self, topic: str, offset: int) -> None:
        """As retention does; -1 is the end."""
        place = self._library.TopicPartition(topic, 0, offset)
        for done in self._admin.delete_records([place]).values():
            done.result(SECONDS)

    def read(self, topic: str) -> list[int]:
        """What a reader of committed messages gets."""
        return [int(value) for value in committed(self.config["bootstrap.servers"], topic)]

    def compacted(self) -> str:
        return self.make(cleanup_policy="compact")


@pytest.fixture
def topics(broker: kafka.KafkaBroker) -> Topics:
    return Topics(broker)


def copied(topics: Topics, topic: str, partitions: int = 1, **config: Any) -> Flow:
    source = KafkaTopic(topic, {**topics.config, **config}, partitions=partitions, name="in")
    return Flow("copied").source(source).json().sink(PostgresRows("line", ["value"]))


def values(harness: FlowHarness) -> list[int]:
    return [row[0] for row in harness.rows("select value from line order by ctid")]


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(("flows.commit.after_store", "flows.commit.before_flag"), id="hardest"),
        pytest.param(PHASES, id="all", marks=pytest.mark.full),
    ],
)
async def test_a_sink_writes_once_wherever_a_task_ends(
    harness: FlowHarness, topics: Topics, points: Sequence[str]
) -> None:
    out, frontier = topics.make(), topics.compacted()

    async def effects() -> list[int]:
        return await asyncio.to_thread(topics.read, out)

    await check_sink(
        harness.fp,
        lambda: KafkaSink(out, topics.config, frontier_topic=frontier),
        effects,
        points=points,
    )


class Ending:
    """A producer that ends its process at a step of a transaction, or right behind it."""

    def __init__(self, producer: Any, step: str, act: Callable[[], None]) -> None:
        self._producer = producer
        self._step = step
        self._act = act

    def __getattr__(self, name: str) -> Any:
        true = getattr(self._producer, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if self._step == f"before {name}":
                self._act()
            answer = true(*arguments, **options)
            if self._step == f"after {name}":
                self._act()
            return answer

        return call


STEPS = [
    f"{when} {what}"
    for what in ("begin_transaction", "produce", "commit_transaction")
    for when in ("before", "after")
]


@pytest.mark.parametrize("step", STEPS)
async def test_a_task_that_ends_within_its_transaction_writes_once(
    harness: FlowHarness, topics: Topics, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The producer of the ended task stays, with its transaction open: a zombie, whose epoch is fenced."""
    out, frontier = topics.make(), topics.compacted()
    flow = Flow("ended").source(IterableSource(range(30)))
    left: list[Any] = []
    true_write = KafkaSink._write  # pyright: ignore[reportPrivateUsage]

    def write(self: Any, resource: str, number: int, messages: Any) -> None:
        producers = self._producers
        if number == 2 and not left:
            left.append(producers[resource])
            producers[resource] = Ending(producers[resource], step, crash)
        true_write(self, resource, number, messages)

    monkeypatch.setattr(KafkaSink, "_write", write)
    for _ in range(2):
        sink = KafkaSink(out, topics.config, frontier_topic=frontier)
        with pytest.raises(PlannedCrash) if not left else _nothing():
            await harness.run(flow.sink(sink), batch=10, records_max=10)

    with pytest.raises(client_library().KafkaException):
        _write_on(left[0], out)
    assert await asyncio.to_thread(topics.read, out) == list(range(30))


def _write_on(zombie: Any, topic: str) -> None:
    """Its transaction may be open, or it begins one."""
    with suppress(client_library().KafkaException):
        zombie.begin_transaction()
    zombie.produce(topic, b"99")
    zombie.commit_transaction(SECONDS)


class _nothing:  # noqa: N801 - Reads as a function.
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


async def test_a_zombie_with_an_open_transaction_is_fenced_by_its_epoch(topics: Topics) -> None:
    out, frontier = topics.make(), topics.compacted()
    zombie, successor = (KafkaSink(out, topics.config, frontier_topic=frontier) for _ in range(2))
    await zombie.deliver(CheckpointId("flow:x/all", 1, 1), [1])
    producer = zombie._producers["flow:x/all"]  # pyright: ignore[reportPrivateUsage]
    producer.begin_transaction()
    producer.produce(out, b"2")
    producer.flush(SECONDS)

    assert await successor.position("flow:x/all") == 1
    with pytest.raises(client_library().KafkaException) as fenced:
        producer.commit_transaction(SECONDS)
    await successor.deliver(CheckpointId("flow:x/all", 2, 2), [2])

    assert fenced.value.args[0].code() in (
        client_library().KafkaError._FENCED,
        client_library().KafkaError.INVALID_PRODUCER_EPOCH,
        client_library().KafkaError._STATE,
    )
    assert await asyncio.to_thread(topics.read, out) == [1, 2]


async def test_a_hanging_transaction_of_another_task_is_waited_for_and_ended_by_kafka(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind it the frontier cannot be read: to take what was read for all would write twice."""
    out, frontier = topics.make(), topics.compacted()
    await KafkaSink(out, topics.config, frontier_topic=frontier).deliver(
        CheckpointId("flow:x/all", 1, 3), [3]
    )
    hanging = topics.producer("another", **{"transaction.timeout.ms": 8000})
    hanging.begin_transaction()
    hanging.produce(frontier, b"1", key="flow:y/all", partition=0)
    hanging.flush(SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(kafka_sinks, "ANSWER_SECONDS", 2.0)
        with pytest.raises(FlowError, match="could not be read to its end"):
            await KafkaSink(out, topics.config, frontier_topic=frontier).position("flow:x/all")

    again = KafkaSink(out, topics.config, frontier_topic=frontier)
    assert await again.position("flow:x/all") == 3
    assert await asyncio.to_thread(topics.read, out) == [3]


async def test_a_frontier_that_was_compacted_is_found(topics: Topics, harness: FlowHarness) -> None:
    out = topics.make()
    frontier = topics.make(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="100",
    )
    sink = KafkaSink(out, topics.config, frontier_topic=frontier)
    for number in range(1, 31):
        await sink.deliver(CheckpointId("flow:x/all", 1, number), [number])

    def kept() -> int:
        # Every message begins another segment, and only closed ones are compacted.
        topics.put(frontier, [])
        producer = topics.producer()
        producer.produce(frontier, b"0", key="somebody", partition=0)
        producer.flush(SECONDS)
        return len(committed(topics.config["bootstrap.servers"], frontier))

    await harness.until(lambda: kept() < 20)
    again = KafkaSink(out, topics.config, frontier_topic=frontier)
    assert await again.position("flow:x/all") == 30
    await again.deliver(CheckpointId("flow:x/all", 1, 30), [30])
    assert await asyncio.to_thread(topics.read, out) == list(range(1, 31))


async def test_more_messages_than_the_clients_queue_holds(topics: Topics) -> None:
    out, frontier = topics.make(), topics.compacted()
    config = {**topics.config, "queue.buffering.max.messages": 50}
    sink = KafkaSink(out, config, frontier_topic=frontier)
    await sink.deliver(CheckpointId("flow:x/all", 1, 1), list(range(1000)))

    assert await asyncio.to_thread(topics.read, out) == list(range(1000))


@pytest.mark.parametrize(
    "points", [pytest.param(HARDEST, id="hardest"), pytest.param(POINTS, id="all", marks=pytest.mark.full)]
)
async def test_messages_of_a_topic_come_once_wherever_a_task_ends(
    harness: FlowHarness,
    topics: Topics,
    tmp_path: Path,
    points: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between them lie transactions that were aborted."""
    topic = topics.make()
    producer = topics.producer("feeder")
    fed = 0

    async def feed(given: Sequence[int]) -> None:
        nonlocal fed
        for n in given:
            producer.begin_transaction()
            producer.produce(topic, b"-1")
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
            producer.begin_transaction()
            producer.produce(topic, str(n))
            producer.commit_transaction(SECONDS)
        fed = given[-1] + 1

    class Bounded(KafkaTopic):
        """Ends behind the last message that was fed."""

        resumes = True

        async def open(self, context: Any, partition: str, after: Any) -> Any:
            reader: Any = await super().open(context, partition, after)
            true_read = reader.read

            async def read(limit: int, wait_seconds: float) -> Any:
                chunk = await true_read(limit, wait_seconds)
                reached = bool(chunk.values) and int(chunk.values[-1]) == fed - 1
                done = reached or (not chunk.values and reader._last is not None and await at_end())
                return type(chunk)(chunk.values, chunk.offsets, ended=done)

            async def at_end() -> bool:
                return bool(await reader.lag(0) == 0)

            reader.read = read
            return reader

    def numbers(flow: Flow) -> Any:
        return flow.source(Bounded(topic, topics.config, partitions=1, name="in")).json()

    await check_source(harness, tmp_path / "out", numbers, feed, points)


async def test_an_open_transaction_holds_back_what_lies_behind_it(
    harness: FlowHarness, topics: Topics
) -> None:
    topic = topics.make()
    producer = topics.producer("slow")
    producer.begin_transaction()
    producer.produce(topic, b"1")
    producer.flush(SECONDS)
    topics.put(topic, [2])

    async with harness.running(harness.worker(copied(topics, topic))):
        reader = await KafkaTopic(topic, topics.config, partitions=1).open(harness.context(), "0", None)
        assert list((await reader.read(10, 1.0)).values) == []
        await reader.close()
        producer.commit_transaction(SECONDS)
        await harness.until(lambda: len(values(harness)) == 2)

    assert values(harness) == [1, 2]


async def test_retention_that_overtakes_the_reader_is_noticed(harness: FlowHarness, topics: Topics) -> None:
    topic = topics.make()
    topics.put(topic, range(10))
    async with harness.running(harness.worker(copied(topics, topic))):
        await harness.until(lambda: len(values(harness)) == 10)
    topics.put(topic, range(10, 20))
    topics.remove_until(topic, 15)

    with pytest.raises(SourceTrimmed, match="begins at 15, and this flow has come to 9"):
        await harness.run(copied(topics, topic))
    assert values(harness) == list(range(10))


async def test_retention_that_removes_only_what_was_read_is_no_loss(
    harness: FlowHarness, topics: Topics
) -> None:
    """Behind the last message lies the mark of its transaction, which is no message and is gone too."""
    topic = topics.make()
    producer = topics.producer("writer")
    producer.begin_transaction()
    producer.produce(topic, b"1")
    producer.commit_transaction(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"-1")
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)

    def told() -> bool:
        library = client_library()
        consumer = library.Consumer({**topics.config, "group.id": "fencepost-copied"})
        [stored] = consumer.committed([library.TopicPartition(topic, 0)], SECONDS)
        consumer.close()
        return (stored.offset, stored.metadata) == (4, "0")

    async with harness.running(harness.worker(copied(topics, topic))):
        await harness.until(lambda: values(harness) == [1])
        await harness.until(told)
    topics.remove_until(topic, -1)
    assert topics.begins(topic) == 4
    topics.put(topic, [2])

    async with harness.running(harness.worker(copied(topics, topic))):
        await harness.until(lambda: len(values(harness)) == 2)
    assert values(harness) == [1, 2]

    reader = KafkaTopic(topic, topics.config, partitions=1, name="in")
    context = harness.context()
    with pytest.raises(SourceTrimmed, match="begins at 4"):
        await reader.open(context, "0", 1)


async def test_workers_that_come_and_go_share_the_partitions(harness: FlowHarness, topics: Topics) -> None:
    topic = topics.make(4)
    fed = 0

    def feed() -> None:
        nonlocal fed
        topics.put(topic, range(fed, fed + 40), 4)
        fed += 40

    feed()
    flow = copied(topics, topic, 4)
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: len(values(harness)) >= 40)
        async with harness.running(harness.worker(flow), harness.worker(flow)):
            feed()
            await harness.until(lambda: len(values(harness)) >= 80)
        feed()
        await harness.until(lambda: len(values(harness)) >= 120)

    assert sorted(values(harness)) == list(range(120))


async def test_a_topic_with_more_partitions_than_are_read_is_refused(
    harness: FlowHarness, topics: Topics
) -> None:
    topic = topics.make(3)
    with pytest.raises(StartRefused, match="partitions=3"):
        await harness.run(copied(topics, topic, 2))
