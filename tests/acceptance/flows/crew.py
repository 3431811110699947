"""Workers of flows in processes of their own, by the name of the sink that they write to."""

import asyncio
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fencepost.flows import Flow
from fencepost.flows.settings import FlowSettings
from fencepost.flows.sinks.files import JsonLines
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sinks.prepared import PreparedRows
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sinks.sink import Sink
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.flows.worker import FlowWorker
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
SINKS: Mapping[str, Callable[[str, str], Sink]] = {
    "rows": lambda url, folder: PostgresRows("effect", ["value"]),
    "prepared": lambda url, folder: PreparedRows(url, "effect", ["value"]),
    "redis": lambda url, folder: RedisSink("list", "effects"),
    "files": lambda url, folder: JsonLines(Path(folder)),
}


def running_counts(state: int | None, row: Any) -> tuple[int, list[str]]:
    """Each record says the how-manieth of its key it is: a lost or doubled one shows in all that follow."""
    count = (state or 0) + 1
    return count, [f"{row['key']}-{count}"]


def flow_into(sink: Sink, groups: int | None) -> Flow:
    keyed = Flow("crew").source(PostgresTable("arrival")).key_by(lambda row: row["key"], groups=groups)
    return keyed.stateful(running_counts).sink(sink)


async def work(url: str, admin_url: str, redis_url: str, sink: str, folder: str, groups: int | None) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Fencepost(url, redis_url=redis_url) as fp:
        worker = FlowWorker(
            fp, flow_into(SINKS[sink](admin_url, folder), groups), redis_url=redis_url, settings=SETTINGS
        )
        await worker.run(stop)
