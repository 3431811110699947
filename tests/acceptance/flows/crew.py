"""Workers of flows in processes of their own, by the names of their source and their sink."""

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.flows import Flow, IdempotentRecord
from fencepost.flows.settings import FlowSettings
from fencepost.flows.sinks.elsewhere import PostgresElsewhere
from fencepost.flows.sinks.files import JsonLines, ParquetFiles
from fencepost.flows.sinks.postgres import OutboxSink, PostgresRows, PostgresUpsert
from fencepost.flows.sinks.prepared import PreparedRows
from fencepost.flows.sinks.redis import RedisIdempotentList, RedisSink
from fencepost.flows.sinks.sink import Sink
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.house import Fencepost

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


@dataclass(frozen=True)
class Kind:
    """A sink, by where it may write, and what it is given for the how-manieth record of a key."""

    make: Callable[[str, str], Sink]
    value: Callable[[str, int], Any] = lambda key, count: f"{key}-{count}"


SINKS: Mapping[str, Kind] = {
    "rows": Kind(lambda url, folder: PostgresRows("effect", ["value"])),
    "upsert": Kind(
        lambda url, folder: PostgresUpsert("total", ["key"], ["value"]), lambda key, count: (key, count)
    ),
    "outbox": Kind(lambda url, folder: OutboxSink("effects")),
    "prepared": Kind(lambda url, folder: PreparedRows(url, "effect", ["value"])),
    "elsewhere": Kind(
        lambda url, folder: PostgresElsewhere(url, "total", ["key"], ["value"]),
        lambda key, count: (key, count),
    ),
    "redis": Kind(lambda url, folder: RedisSink("list", "effects")),
    "redis-stream": Kind(lambda url, folder: RedisSink("stream", "effects")),
    "redis-once": Kind(
        lambda url, folder: RedisIdempotentList("effects", ttl_seconds=600),
        lambda key, count: IdempotentRecord(f"{key}-{count}", f"{key}-{count}"),
    ),
    "files": Kind(lambda url, folder: JsonLines(Path(folder))),
    "parquet": Kind(
        lambda url, folder: ParquetFiles(Path(folder)), lambda key, count: {"value": f"{key}-{count}"}
    ),
}


def flow_into(kind: Kind, sink: Sink, source: str, groups: int | None) -> Flow:
    """Each record says the how-manieth of its key it is: a lost or doubled one shows in all that follow."""

    def running_counts(state: int | None, key: str) -> tuple[int, list[Any]]:
        count = (state or 0) + 1
        return count, [kind.value(key, count)]

    if source == "stream":
        keys = Flow("crew").source(RedisStreams("arrivals")).map(bytes.decode)
    else:
        keys = Flow("crew").source(PostgresTable("arrival")).map(lambda row: str(row["key"]))
    return keys.key_by(lambda key: key, groups=groups).stateful(running_counts).sink(sink)


async def work(
    url: str, admin_url: str, redis_url: str, source: str, sink: str, folder: str, groups: int | None
) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    kind = SINKS[sink]
    async with Fencepost(url, redis_url=redis_url) as fp:
        flow = flow_into(kind, kind.make(admin_url, folder), source, groups)
        await fp.flow_worker(flow, SETTINGS).run(stop)
