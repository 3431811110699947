"""The environment of bench-flows: two servers, a stream full of records, and the flows that run over it."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from bench.bench_server import migrated_database
from fencepost.client import Fencepost
from fencepost.embedded import Database, ValkeyServer
from fencepost.flows import Flow, Tumbling
from fencepost.flows._graph import Stream
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._redis_client import connect_bytes, entries_of
from fencepost.flows._settings import FlowSettings
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.metrics import Metrics

STREAM = "bench"
KEYS = 1000
AMOUNTS = 100
FIRST_MOMENT = 1_700_000_000
PER_SECOND = 1000
LOADED_AT_ONCE = 5000
SETTINGS = FlowSettings(batch=10_000, records_max=200_000, interval_seconds=1, balance_seconds=0.2)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. CPU is of the worker process alone, without the servers."""

    records: int
    wall_seconds: float
    cpu_seconds: float
    memory_mb: float

    @property
    def per_cpu_second(self) -> float:
        return self.records / self.cpu_seconds

    @property
    def per_second(self) -> float:
        return self.records / self.wall_seconds


@contextmanager
def env() -> Generator[tuple[Database, str]]:
    folder = Path(tempfile.mkdtemp(prefix="fencepost-bench-"))
    with migrated_database() as database, ValkeyServer(folder, ephemeral=True) as valkey:
        with database.connect_admin() as connection:
            connection.execute(
                "create table total (key text primary key, value bigint);"
                "create table closed (key text, start float8, value bigint);"
                "create table line (value text);"
                "create table kept (key text primary key, value bigint);"
                "grant all on total, closed, line, kept to fencepost_app"
            )
        yield database, valkey.url


def record(number: int) -> bytes:
    return msgspec.json.encode(
        {
            "user": f"user-{number * 7919 % KEYS}",
            "amount": number % AMOUNTS,
            "time": FIRST_MOMENT + number / PER_SECOND,
            "note": "a record of ordinary size",
        }
    )


async def load(redis_url: str, count: int) -> None:
    client = connect_bytes(redis_url, "the benchmark")
    await client.delete(STREAM)
    for start in range(0, count, LOADED_AT_ONCE):
        pipe = client.pipeline(transaction=False)
        for number in range(start, min(count, start + LOADED_AT_ONCE)):
            pipe.xadd(STREAM, {"data": record(number)})
        await pipe.execute()
    await client.aclose()


class FlowTask(msgspec.Struct):
    user: str
    amount: int
    time: float


def _parsed(name: str) -> Stream[Any]:
    return Flow(name).source(RedisStreams(STREAM)).json(FlowTask)


def keyed_sum(name: str, groups: int | None = None) -> Flow:
    """Parse JSON, sum by key, replace totals by key."""
    keyed = _parsed(name).key_by(lambda order: order.user, groups=groups, value=FlowTask)
    return keyed.sum(lambda order: order.amount).sink(PostgresUpsert("total", ["key"], ["value"]))


def windowed_count(name: str) -> Flow:
    """Parse JSON, count by key in windows of ten seconds of event time, append what closed."""
    timed = _parsed(name).event_time(lambda order: order.time)
    counts = timed.key_by(lambda order: order.user).window(Tumbling(10)).count()
    return counts.sink(
        PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))
    )


async def run_flow_on(
    database: Database, redis_url: str, flow: Flow, count: int, settings: FlowSettings = SETTINGS
) -> Figures:
    """Measure from the first read to the commit of the last record."""
    # As `fencepost flows run` does for its process.
    freeze_collected_objects()
    stop = asyncio.Event()
    metrics = Metrics()

    def committed() -> float:
        name = "fencepost_flow_committed_records_total"
        return metrics.registry.get_sample_value(name, {"flow": flow.name}) or 0

    async with Fencepost(database.url, redis_url=redis_url) as fp:
        worker = FlowWorker(fp, flow, redis_url=redis_url, settings=settings, metrics=FlowMetrics.on(metrics))
        began, cpu = time.perf_counter(), time.process_time()
        running = asyncio.create_task(worker.run(stop))
        while committed() < count and not running.done():
            await asyncio.wait([running], timeout=0.02)
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        stop.set()
        await running
    return Figures(count, wall, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


async def run_limit(database: Database, redis_url: str, count: int) -> Figures:
    """XREADGROUP NOACK plus COPY of every record, and nothing else: an upper bound for every runtime."""
    client = connect_bytes(redis_url, "the benchmark")
    client.response_callbacks.pop("XREADGROUP", None)
    await client.xgroup_create(STREAM, "limit", id="0")
    began, cpu = time.perf_counter(), time.process_time()
    async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as connection:
        left = count
        while left > 0:
            answer = await client.execute_command(
                "XREADGROUP", "GROUP", "limit", "one", "COUNT", 10_000, "NOACK", "STREAMS", STREAM, ">"
            )
            entries = next(iter(entries_of(answer).values()))
            left -= len(entries)
            async with connection.cursor() as cursor, cursor.copy("copy line (value) from stdin") as copy:
                await copy.write(b"".join(flat[1] + b"\n" for _, flat in entries))
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    await client.aclose()
    return Figures(count, wall, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
