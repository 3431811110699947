"""A flow in the long run: its memory over many records, and its recovery time with a large state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import flows_env
from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.flows import Flow, IterableSource
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._redis_client import connect_bytes
from fencepost.flows._settings import FlowSettings
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.metrics import Metrics
from fencepost.testing import Child, Signals

LOOK_SECONDS = 0.05
STANDBY_SECONDS = 60
FILL_SECONDS = 600
KEYS_STREAM = "keys"
# Buffers, caches and the allocator have settled after a tenth.
SETTLED = 10


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """Resident megabytes after a tenth of the records, and the most after that."""

    settled_mb: float
    most_mb: float
    figures: flows_env.Figures

    @property
    def growth(self) -> float:
        return self.most_mb / self.settled_mb


class RunningFlow:
    """A worker, and how many records it has committed."""

    def __init__(
        self, fp: Fencepost, flow: Flow, redis_url: str, settings: FlowSettings = flows_env.SETTINGS
    ) -> None:
        self._flow = flow.name
        self._metrics = Metrics()
        metrics = FlowMetrics.on(self._metrics)
        worker = FlowWorker(fp, flow, redis_url=redis_url, settings=settings, metrics=metrics)
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(worker.run(self._stop))

    @property
    def committed(self) -> float:
        name = "fencepost_flow_committed_records_total"
        return self._metrics.registry.get_sample_value(name, {"flow": self._flow}) or 0

    async def look(self) -> None:
        """Wait a little; raise the error that ended the worker, if there is one."""
        done, _ = await asyncio.wait([self._task], timeout=LOOK_SECONDS)
        for task in done:
            task.result()

    async def until(self, count: int) -> None:
        while self.committed < count:
            await self.look()

    async def end(self) -> None:
        self._stop.set()
        await self._task


async def memory(database: Database, redis_url: str, count: int) -> MemoryGrowth:
    """The keyed sum over records that are generated as they are read."""

    def records() -> Iterator[bytes]:
        return map(flows_env.record, range(count))

    parsed = Flow("memory").source(IterableSource(records)).json(flows_env.FlowTask)
    keyed = parsed.key_by(lambda order: order.user).sum(lambda order: order.amount)
    flow = keyed.sink(PostgresUpsert("total", ["key"], ["value"]))
    async with Fencepost(database.url, redis_url=redis_url) as fp:
        began, cpu = time.perf_counter(), time.process_time()
        running = RunningFlow(fp, flow, redis_url)
        await running.until(count // SETTLED)
        settled = most = resident_mb()
        while running.committed < count:
            await running.look()
            most = max(most, resident_mb())
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        await running.end()
    return MemoryGrowth(settled, most, flows_env.Figures(count, wall, used, most))


@dataclass(frozen=True, slots=True)
class RecoveryTime:
    """Time from the SIGKILL, and from the successor's lease, to the successor's first commit."""

    since_kill_seconds: float
    since_takeover_seconds: float
    cpu_seconds: float


def counts() -> Flow:
    """A flow with state and a row for every key."""
    numbers = Flow("recovery").source(RedisStreams(KEYS_STREAM)).json()
    return numbers.key_by(lambda n: f"key-{n}").count().sink(PostgresUpsert("kept", ["key"], ["value"]))


async def work_until_killed(database_url: str, redis_url: str) -> None:
    """Runs in a process of its own."""
    async with Fencepost(database_url, redis_url=redis_url) as fp:
        await FlowWorker(fp, counts(), redis_url=redis_url, settings=flows_env.SETTINGS).run()


async def recovery(database: Database, redis_url: str, keys: int) -> RecoveryTime:
    """A worker with a state of `keys` keys is killed while it works; another one stands by."""
    client = connect_bytes(redis_url, "the benchmark")
    await _fill(client, keys)
    with Child(work_until_killed, database.url, redis_url) as first:
        Deadline(FILL_SECONDS, "every key is committed").wait(lambda: _kept(database) >= keys)
        more = keys // 10
        await _fill(client, more)
        async with Fencepost(database.url, redis_url=redis_url) as fp:
            with Signals() as signals:
                second = RunningFlow(fp, counts(), redis_url)
                await signals.wait("flows.started", within=STANDBY_SECONDS)
                cpu = time.process_time()
                first.kill()
                killed = time.perf_counter()
                await signals.wait("flows.taken", within=STANDBY_SECONDS)
                taken = time.perf_counter()
                await second.until(1)
                done, used = time.perf_counter(), time.process_time() - cpu
                assert signals.heard("flows.taken") == 1, "the successor lost its lease while it restored"
            while _kept(database) < keys + more:
                await second.look()
            await second.end()
    assert _kept(database) == keys + more, "a record was lost or counted twice"
    await client.delete(KEYS_STREAM)
    await client.aclose()
    return RecoveryTime(done - killed, done - taken, used)


async def _fill(client: Any, keys: int) -> None:
    for start in range(0, keys, flows_env.LOADED_AT_ONCE):
        pipe = client.pipeline(transaction=False)
        for number in range(start, min(keys, start + flows_env.LOADED_AT_ONCE)):
            pipe.xadd(KEYS_STREAM, {"data": str(number)})
        await pipe.execute()


def _kept(database: Database) -> int:
    """How many records are counted in committed rows."""
    with database.connect_admin() as connection:
        [[total]] = connection.execute("select coalesce(sum(value), 0) from kept").fetchall()
        return int(total)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20
