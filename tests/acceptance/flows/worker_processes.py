"""Workers of flows in processes of their own, by the name of their sink."""

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fencepost.client import Fencepost
from fencepost.flows import CheckpointAwareSink, CheckpointId, Flow, IdempotentRecord
from fencepost.flows._graph import Stream
from fencepost.flows._settings import FlowSettings
from fencepost.flows.sinks._sink import Sink
from fencepost.flows.sinks.dbapi import DbApiTable
from fencepost.flows.sinks.external_postgres import ExternalPostgres
from fencepost.flows.sinks.files import JsonLines, ParquetFiles
from fencepost.flows.sinks.http import HttpSink
from fencepost.flows.sinks.kafka import KafkaSink
from fencepost.flows.sinks.postgres import OutboxSink, PostgresRows, PostgresUpsert
from fencepost.flows.sinks.redis import RedisIdempotentList, RedisSink
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from fencepost.flows.sources.files import FolderFiles
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.acceptance.flows import kafka_model

LEASE_SECONDS = 3.0
SETTINGS = FlowSettings(
    lease_seconds=LEASE_SECONDS,
    heartbeat_seconds=0.5,
    interval_seconds=0.05,
    batch=20,
    records_max=20,
    balance_seconds=0.1,
    drain_seconds=3,
    channel_length=4,
)
GROUPED = RedisStreams("arrivals", group="workers")
Keeps = Literal["order", "last", "each"]


class Place(NamedTuple):
    """What sinks write to, beside the database and the Redis of the flow."""

    admin_url: str
    folder: str
    http: str
    """The address of a service that honours idempotency keys."""


class Diary(CheckpointAwareSink[str]):
    """A user's own: one file a checkpoint, which a repeat writes again as it is."""

    idempotent = True

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = Path(folder)

    async def on_checkpoint_complete(self, checkpoint: CheckpointId, values: Sequence[str]) -> None:
        name = f"{checkpoint.resource.replace('/', '-')}-{checkpoint.number:012}"
        aside = self._folder / f"{name}.{os.getpid()}"
        aside.write_text(json.dumps(list(values)))
        aside.replace(self._folder / f"{name}.diary")


def sqlite_of(folder: str) -> dict[str, Any]:
    """Where the sink in SQLite writes. A frozen worker holds its lock until it is resumed or killed."""
    return {"database": f"{folder}/effects.db", "timeout": 60}


@dataclass(frozen=True)
class Kind:
    """A sink, what it is given for the how-manieth record of a key, and what it keeps of that.

    It keeps the values of a key in their order, or the last one, or each without an order.
    """

    make: Callable[[Place], Sink]
    value: Callable[[str, int], Any] = lambda key, count: f"{key}-{count}"
    keeps: Keeps = "order"
    source: str = "table"


SINKS: Mapping[str, Kind] = {
    "rows": Kind(lambda place: PostgresRows("effect", ["value"])),
    # Entries are pending in the source's group until the commit.
    "rows-deferred": Kind(lambda place: PostgresRows("effect", ["value"]), source="group"),
    "upsert": Kind(
        lambda place: PostgresUpsert("total", ["key"], ["value"]), lambda key, count: (key, count), "last"
    ),
    "outbox": Kind(lambda place: OutboxSink("effects")),
    "prepared": Kind(lambda place: TwoPhasePostgres(place.admin_url, "effect", ["value"])),
    "elsewhere": Kind(
        lambda place: ExternalPostgres(place.admin_url, "total", ["key"], ["value"]),
        lambda key, count: (key, count),
        "last",
    ),
    "redis": Kind(lambda place: RedisSink("list", "effects")),
    "redis-stream": Kind(lambda place: RedisSink("stream", "effects")),
    "redis-hash": Kind(
        lambda place: RedisSink("hash", "effects"), lambda key, count: (key, str(count)), "last"
    ),
    "redis-set": Kind(lambda place: RedisSink("set", "effects"), keeps="each"),
    "redis-acknowledging": Kind(
        lambda place: RedisSink("list", "effects:{arrivals}", acknowledges=GROUPED), source="group"
    ),
    "redis-once": Kind(
        lambda place: RedisIdempotentList("effects", ttl_seconds=600),
        lambda key, count: IdempotentRecord(f"{key}-{count}", f"{key}-{count}"),
    ),
    "files": Kind(lambda place: JsonLines(place.folder)),
    "parquet": Kind(lambda place: ParquetFiles(place.folder), lambda key, count: {"value": f"{key}-{count}"}),
    "sqlite": Kind(lambda place: DbApiTable(sqlite3, sqlite_of(place.folder), "effect", ["value"])),
    "http": Kind(lambda place: HttpSink(place.http, honours_keys=True), keeps="each"),
    "kafka": Kind(
        lambda place: KafkaSink(
            "effects", {"bootstrap.servers": place.admin_url}, key=lambda value: value[:2]
        )
    ),
    "hooks": Kind(lambda place: Diary(place.folder)),
}


def flow_into(
    sinks: Sequence[str], place: Place, source: str, groups: int | None, again: int | None = None
) -> Flow:
    """Each record says the how-manieth of its key it is: a lost or doubled one shows in all that follow. With
    `again`, a stage of that many key groups receives the numbered records of the first, and numbers them
    too."""
    flow = Flow("workers")
    keys = _SOURCES[source](flow, place).key_by(lambda key: key, groups=groups)
    if again is not None:
        numbered = keys.stateful(_running_counts(lambda key, count: (key, count)), name="numbered")
        keyed = numbered.key_by(lambda pair: pair[0][::-1], groups=again)
        flows = [
            keyed.stateful(_same_counts(SINKS[sink].value), name=sink).sink(SINKS[sink].make(place))
            for sink in sinks
        ]
        return flow.also(*flows)
    flows = [
        keys.stateful(_running_counts(SINKS[sink].value), name=sink).sink(SINKS[sink].make(place))
        for sink in sinks
    ]
    return flow.also(*flows)


def _running_counts(value: Callable[[str, int], Any]) -> Callable[[int | None, str], tuple[int, list[Any]]]:
    def counts(state: int | None, key: str) -> tuple[int, list[Any]]:
        count = (state or 0) + 1
        return count, [value(key, count)]

    return counts


def _same_counts(
    value: Callable[[str, int], Any],
) -> Callable[[int | None, tuple[str, int]], tuple[int, list[Any]]]:
    """Numbers again what was numbered: where the two differ, the value is not the one that is expected."""

    def counts(state: int | None, pair: tuple[str, int]) -> tuple[int, list[Any]]:
        count = (state or 0) + 1
        key, first = pair
        return count, [value(key, count if count == first else -first)]

    return counts


def arrivals(folder: str) -> Path:
    """Where files appear for the source that is a folder."""
    return Path(folder, "arrivals")


def _folder(place: Place) -> FolderFiles:
    return FolderFiles(arrivals(place.folder), every=0.05, settled=0, partitions=2)


_SOURCES: Mapping[str, Callable[[Flow, Place], Stream[str]]] = {
    "table": lambda flow, place: flow.source(PostgresTable("arrival")).map(lambda row: str(row["key"])),
    "stream": lambda flow, place: flow.source(RedisStreams("arrivals")).map(bytes.decode),
    "group": lambda flow, place: flow.source(GROUPED).map(bytes.decode),
    "folder": lambda flow, place: flow.source(_folder(place)).map(bytes.decode),
    "three": lambda flow, place: _SOURCES["table"](flow, place).union(
        _SOURCES["stream"](flow, place), flow.source(_folder(place), name="folder").map(bytes.decode)
    ),
}


async def work(
    url: str,
    redis_url: str,
    source: str,
    sinks: Sequence[str],
    groups: int | None,
    place: Sequence[str],
    again: int | None,
) -> None:
    """Run until SIGTERM."""
    kafka_model.install()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Fencepost(url, redis_url=redis_url) as fp:
        await fp.flows.worker(flow_into(sinks, Place(*place), source, groups, again), SETTINGS).run(stop)
