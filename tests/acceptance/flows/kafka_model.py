"""Kafka's transactions, kept by a database: what a sink of Kafka needs of its client library, and no more.

librdkafka's mock broker neither hides the messages of an open transaction nor refuses those of a fenced
producer. Here both hold as Kafka states them: opening a producer under a name ends the open transaction of
the one before it and fences it; a reader of committed messages gets nothing of open transactions, and nothing
behind the first of them. Every call is one statement, so that no process that is killed or frozen holds a
lock.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, LiteralString

import psycopg

SCHEMA: LiteralString = """
    create table kafka_producer (name text primary key, epoch bigint not null);
    create table kafka_message (
      id bigint generated always as identity primary key, topic text, part int, key text, value text,
      name text, epoch bigint, committed boolean not null default false);
    create table kafka_retention (topic text primary key, begins bigint);
"""
_OPEN: LiteralString = """
    with opened as (
      insert into kafka_producer as p values (%(name)s, 1)
      on conflict (name) do update set epoch = p.epoch + 1 returning epoch),
    ended as (delete from kafka_message where name = %(name)s and not committed)
    select epoch from opened
"""
_FENCE: LiteralString = """
    with held as (select 1 from kafka_producer where name = %(name)s and epoch = %(epoch)s for share)
"""
_PRODUCE: LiteralString = (
    _FENCE
    + """
    insert into kafka_message (topic, part, key, value, name, epoch)
    select %(topic)s, %(part)s, %(key)s, %(value)s, %(name)s, %(epoch)s from held returning id
"""
)
_COMMIT: LiteralString = (
    _FENCE
    + """, done as (
      update kafka_message set committed = true
      where name = %(name)s and epoch = %(epoch)s and not committed and exists (select 1 from held))
    select 1 from held
"""
)
_READ: LiteralString = """
    select id, key, value from kafka_message
    where topic = %(topic)s and part = %(part)s and id > %(after)s and committed and id < coalesce(
      (select min(id) from kafka_message where topic = %(topic)s and part = %(part)s and not committed),
      9223372036854775807)
    order by id
"""


_ENDS: LiteralString = """
    select coalesce((select begins from kafka_retention where topic = %(topic)s), 0),
      coalesce((select max(id) + 1 from kafka_message where topic = %(topic)s), 0)
"""
_EXPIRE: LiteralString = """
    with gone as (delete from kafka_message where topic = %(topic)s returning id)
    insert into kafka_retention select %(topic)s, max(id) + 1 from gone
"""


OFFSET_BEGINNING = -2


class KafkaException(Exception):
    """What the client raises."""


@dataclass(frozen=True)
class Message:
    where: int
    its_key: str | None
    its_value: str

    def offset(self) -> int:
        return self.where

    def key(self) -> bytes | None:
        return None if self.its_key is None else self.its_key.encode()

    def value(self) -> bytes:
        return self.its_value.encode()

    def error(self) -> None:
        """There is none."""


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


class Client:
    """bootstrap.servers is the address of the database."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._url = str(config["bootstrap.servers"])
        self._name = config.get("transactional.id")

    def _ask(self, statement: LiteralString, **values: Any) -> list[Any]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            return connection.execute(statement, values).fetchall()

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None})})


class Producer(Client):
    _epoch = 0

    def init_transactions(self, timeout: float) -> None:
        [[self._epoch]] = self._ask(_OPEN, name=self._name)

    def begin_transaction(self) -> None:
        """It begins with its first message."""

    def produce(
        self,
        topic: str,
        value: bytes,
        key: bytes | str | None = None,
        partition: int = 0,
        on_delivery: Callable[[Any, Message], None] | None = None,
    ) -> None:
        [[where]] = self._fenced(_PRODUCE, topic=topic, part=partition, key=_text(key), value=_text(value))
        if on_delivery is not None:
            on_delivery(None, Message(where, _text(key), value.decode()))

    def poll(self, timeout: float) -> None:
        """What is produced is there at once."""

    def flush(self, timeout: float) -> None:
        """The same."""

    def commit_transaction(self, timeout: float) -> None:
        self._fenced(_COMMIT)

    def _fenced(self, statement: LiteralString, **values: Any) -> list[Any]:
        answer = self._ask(statement, name=self._name, epoch=self._epoch, **values)
        if not answer:
            raise KafkaException(f"{self._name} is fenced: a newer producer has its name")
        return answer


class Consumer(Client):
    def assign(self, partitions: Sequence[Any]) -> None:
        [self._at] = partitions
        begins, end = self.get_watermark_offsets(self._at, 0)
        # A reader that asks for an offset that is gone gets what comes from now on, unless told otherwise.
        self._after = end if 0 <= self._at.offset < begins else -1

    def consume(self, count: int, timeout: float) -> list[Message]:
        at = self._at
        found = self._ask(_READ, topic=at.topic, part=at.partition, after=self._after)
        self._after = found[-1][0] if found else self._after
        return [Message(*row) for row in found]

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        [[low, high]] = self._ask(_ENDS, topic=partition.topic)
        return low, high

    def close(self) -> None:
        """Every question has a connection of its own."""


@dataclass(frozen=True)
class TopicPartition:
    topic: str
    partition: int
    offset: int


def install() -> None:
    """Take the client library's place in this process."""
    sys.modules["confluent_kafka"] = sys.modules[__name__]


def committed(url: str, topic: str) -> list[str]:
    """What a reader of committed messages gets, in order."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(_READ, {"topic": topic, "part": 0, "after": -1}).fetchall()
        return [row[2] for row in rows]


def expire(url: str, topic: str) -> None:
    """The topic's retention has removed what was in it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_EXPIRE, {"topic": topic})
