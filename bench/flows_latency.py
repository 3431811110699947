"""From a record in a Redis stream to its row in PostgreSQL, at a steady rate, with the default settings.

Another process adds the records and reads the table: a record has landed when a transaction that began after
the commit sees its row. A look takes a few milliseconds, which are counted.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.report import Goal, Row
from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.flows import Flow
from fencepost.flows._redis_client import connect_bytes
from fencepost.flows._settings import FlowSettings
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.testing import Child, Signals

STREAM = "latency"
PER_SECOND = 10_000
TICK_SECONDS = 0.01
LOOK_SECONDS = 0.005
SETTLED_SECONDS = 1
SECONDS, QUICK_SECONDS = 10, 4
END_SECONDS = 60
P50_MS_MAX = 100


@dataclass(frozen=True, slots=True)
class Latency:
    records: int
    per_second: float
    p50_ms: float
    p99_ms: float


def landing() -> Flow:
    """A row for each record."""
    records = Flow("latency").source(RedisStreams(STREAM)).json()
    return records.sink(PostgresRows("landed", ["number"], row=lambda record: (record["number"],)))


async def measure(database: Database, redis_url: str, *, quick: bool) -> tuple[list[Row], list[Goal]]:
    with database.connect_admin() as connection:
        connection.execute(
            "create table landed (number bigint primary key); grant all on landed to fencepost_app"
        )
    latency = await _run(database, redis_url, QUICK_SECONDS if quick else SECONDS)
    row: Row = {
        "system": f"fencepost, record to row at {latency.per_second:,.0f}/s, default settings",
        "guarantee": "exactly-once",
        "records": latency.records,
        "p50 ms": round(latency.p50_ms, 1),
        "p99 ms": round(latency.p99_ms, 1),
    }
    name = f"record to row at {PER_SECOND:,}/s, default settings, p50 in ms"
    return [row], [Goal(name, round(latency.p50_ms, 1), P50_MS_MAX, at_most=True)]


async def _run(database: Database, redis_url: str, seconds: int) -> Latency:
    freeze_collected_objects()
    stop = asyncio.Event()
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-") as folder:
        answer = Path(folder) / "latency.json"
        async with Fencepost(database.url, redis_url=redis_url) as fp:
            worker = FlowWorker(fp, landing(), redis_url=redis_url, settings=FlowSettings())
            with Signals() as signals:
                running = asyncio.create_task(worker.run(stop))
                await signals.wait("flows.taken", within=END_SECONDS)
            with Child(produce_and_look, database.url, redis_url, seconds, str(answer)) as child:
                await asyncio.to_thread(lambda: child.succeed(within=seconds + END_SECONDS))
            stop.set()
            await running
        return Latency(**json.loads(answer.read_text()))


async def produce_and_look(database_url: str, redis_url: str, seconds: int, answer: str) -> None:
    """Runs in a process of its own."""
    sent: list[float] = []
    landed: list[tuple[float, int]] = []
    count = seconds * PER_SECOND
    began = time.monotonic()
    await asyncio.gather(_produce(redis_url, count, sent), _look(database_url, count, landed))
    _write(Path(answer), began, sent, landed)


def _write(answer: Path, began: float, sent: list[float], landed: list[tuple[float, int]]) -> None:
    waits: list[float] = []
    number = 0
    for seen, highest in landed:
        while number <= highest:
            if sent[number] - began >= SETTLED_SECONDS:
                waits.append(seen - sent[number])
            number += 1
    waits.sort()
    figures = {
        "records": len(waits),
        "per_second": len(sent) / (landed[-1][0] - began),
        "p50_ms": waits[len(waits) // 2] * 1000,
        "p99_ms": waits[len(waits) * 99 // 100] * 1000,
    }
    answer.write_text(json.dumps(figures))


async def _produce(redis_url: str, count: int, sent: list[float]) -> None:
    client: Any = connect_bytes(redis_url, "the benchmark")
    began = time.monotonic()
    while len(sent) < count:
        due = min(count, int((time.monotonic() - began + TICK_SECONDS) * PER_SECOND))
        pipe = client.pipeline(transaction=False)
        now = time.monotonic()
        for number in range(len(sent), due):
            pipe.xadd(STREAM, {"data": json.dumps({"number": number, "note": "a record of ordinary size"})})
            sent.append(now)
        await pipe.execute()
        await asyncio.sleep(TICK_SECONDS)
    await client.aclose()


async def _look(database_url: str, count: int, landed: list[tuple[float, int]]) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        highest = -1
        while highest < count - 1:
            cursor = await connection.execute("select coalesce(max(number), -1) from landed")
            row = await cursor.fetchone()
            assert row is not None, "an aggregate has one row"
            if row[0] > highest:
                highest = int(row[0])
                landed.append((time.monotonic(), highest))
            await asyncio.sleep(LOOK_SECONDS)
