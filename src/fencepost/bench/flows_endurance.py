"""What becomes of a flow in the long run: its memory over many records, and its return with much state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fencepost.bench import flows_arena as stage
from fencepost.embedded import Database
from fencepost.flows import Flow, IterableSource, TableSink
from fencepost.flows.metrics import FlowMetrics
from fencepost.flows.redis_link import connect_bytes
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.flows.worker import FlowWorker
from fencepost.house import Fencepost
from fencepost.metrics import Metrics

LOOK_SECONDS = 0.05
# Buffers, caches and the allocator's own habits have settled after a tenth.
SETTLED = 10


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident megabytes after a tenth of the records, and the most after that."""

    settled_mb: float
    most_mb: float
    figures: stage.Figures

    @property
    def growth(self) -> float:
        return self.most_mb / self.settled_mb


class Running:
    """A worker, and how many records it has committed."""

    def __init__(self, fp: Fencepost, flow: Flow, redis_url: str) -> None:
        self._flow = flow.name
        self._metrics = Metrics()
        metrics = FlowMetrics.on(self._metrics)
        worker = FlowWorker(fp, flow, redis_url=redis_url, settings=stage.SETTINGS, metrics=metrics)
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(worker.run(self._stop))

    @property
    def committed(self) -> float:
        name = "fencepost_flow_committed_records_total"
        return self._metrics.registry.get_sample_value(name, {"flow": self._flow}) or 0

    async def look(self) -> None:
        """Wait a little; raise what ended the worker, if anything has."""
        done, _ = await asyncio.wait([self._task], timeout=LOOK_SECONDS)
        for task in done:
            task.result()

    async def until(self, count: int) -> None:
        while self.committed < count:
            await self.look()

    async def end(self) -> None:
        self._stop.set()
        await self._task


async def memory(database: Database, redis_url: str, count: int) -> Memory:
    """The keyed sum over records that are made as they are read."""

    def records() -> Iterator[bytes]:
        return map(stage.record, range(count))

    parsed = Flow("memory").source(IterableSource(records)).json(stage.Order)
    keyed = parsed.key_by(lambda order: order.user).sum(lambda order: order.amount)
    flow = keyed.sink(PostgresUpsert("total", ["key"], ["value"]))
    async with Fencepost(database.url, redis_url=redis_url) as fp:
        began, cpu = time.perf_counter(), time.process_time()
        running = Running(fp, flow, redis_url)
        await running.until(count // SETTLED)
        settled = most = resident_mb()
        while running.committed < count:
            await running.look()
            most = max(most, resident_mb())
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        await running.end()
    return Memory(settled, most, stage.Figures(count, wall, used, most))


@dataclass(frozen=True, slots=True)
class Recovery:
    wall_seconds: float
    cpu_seconds: float


async def recovery(database: Database, redis_url: str, keys: int) -> Recovery:
    """From the start of a worker to its first commit, behind a state of so many keys."""
    client = connect_bytes(redis_url, "the benchmark")
    stream = "keys"
    numbers = Flow("recovery").source(RedisStreams(stream)).json()
    flow = numbers.key_by(lambda number: f"key-{number}").count().sink(TableSink())
    for start in range(0, keys, stage.LOADED_AT_ONCE):
        pipe = client.pipeline(transaction=False)
        for number in range(start, min(keys, start + stage.LOADED_AT_ONCE)):
            pipe.xadd(stream, {"data": str(number)})
        await pipe.execute()
    async with Fencepost(database.url, redis_url=redis_url) as fp:
        first = Running(fp, flow, redis_url)
        await first.until(keys)
        await first.end()
        await client.xadd(stream, {"data": "0"})
        began, cpu = time.perf_counter(), time.process_time()
        second = Running(fp, flow, redis_url)
        await second.until(1)
        took = Recovery(time.perf_counter() - began, time.process_time() - cpu)
        await second.end()
    await client.delete(stream)
    await client.aclose()
    return took


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20
