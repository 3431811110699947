"""Where a flow runs in a test: a database with tables for its sinks, a Redis, and workers that hurry."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from typing import Any, LiteralString

import redis

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.flows import Flow
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._settings import FlowSettings
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks._sink import FlowContext
from fencepost.kernel import lease
from fencepost.metrics import Metrics
from fencepost.redis_streams.connection import connect_sync
from fencepost.signals import listening
from tests.reused_databases import furnish
from tests.waiting_for import Waiter

TABLES: LiteralString = """
    create table total (key text primary key, value bigint not null);
    create table line (value bigint not null);
    create table closed (key text, start float8, value bigint);
    create table arrival (id bigint generated always as identity primary key, amount int);
    grant all on total, line, closed, arrival to fencepost_app;
"""
LOSE: LiteralString = """
    update fencepost.lease set token = token + 1, owner = null, expires_at = fencepost.clock()
    where position('/slot/' in resource) = 0 returning resource
"""
HURRY = FlowSettings(
    lease_seconds=6,
    heartbeat_seconds=1,
    interval_seconds=0.05,
    batch=100,
    records_max=1_000,
    balance_seconds=0.05,
    drain_seconds=5,
    channel_length=8,
)
LOOK_SECONDS = 0.1

Command = Callable[..., tuple[int, str]]


class FlowHarness:
    def __init__(self, database: Database, redis_url: str, fp: Fencepost, looker: Waiter) -> None:
        self.database = database
        self._looker = looker
        self.redis_url = redis_url
        self.fp = fp
        self.redis: redis.Redis = connect_sync(redis_url, reply_seconds=5)

    @classmethod
    @asynccontextmanager
    async def of(cls, database: Database, redis_url: str) -> AsyncGenerator["FlowHarness"]:
        furnish(database, TABLES)
        async with Fencepost(database.url, redis_url=redis_url) as fp:
            with closing(Waiter(database)) as looker:
                harness = cls(database, redis_url, fp, looker)
                yield harness
                harness.redis.close()

    def worker(self, flow: Flow, **changes: Any) -> FlowWorker:
        return FlowWorker(
            self.fp,
            flow,
            redis_url=self.redis_url,
            settings=HURRY.model_copy(update=changes),
            metrics=FlowMetrics.on(Metrics()),
        )

    def context(self) -> FlowContext:
        """What a source or a sink is opened with."""
        return FlowContext(
            self.fp, "scene", self.redis_url, 11.05, HURRY.interval_seconds, HURRY.drain_seconds
        )

    async def leased_context(self) -> FlowContext:
        """The same, with the lease of a task."""
        held = await self.fp.run(lease.acquire("flow:scene/all", "somebody", 600))
        return replace(self.context(), lease=held)

    async def run(self, flow: Flow, **changes: Any) -> FlowWorker:
        """Run a bounded flow to its end."""
        worker = self.worker(flow, **changes)
        async with asyncio.timeout(60):
            await worker.run(until_done=True)
        return worker

    @asynccontextmanager
    async def running(self, *workers: FlowWorker) -> AsyncGenerator[None]:
        stop = asyncio.Event()
        tasks = [asyncio.create_task(worker.run(stop)) for worker in workers]
        try:
            yield
        finally:
            stop.set()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    def wipe_redis(self) -> None:
        client: Any = self.redis
        client.flushall()

    def lose_units(self) -> None:
        """As if another worker had taken every unit over, and let go of it."""
        assert self.rows(LOSE), "nobody holds a unit"

    def rows(self, query: LiteralString) -> list[Any]:
        return self._looker.rows(query)

    async def until(self, condition: Callable[[], bool], within: float = 60) -> None:
        """Look again whenever this process announces something, and now and then for what nobody
        announces."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + within

        def hear(_: str) -> None:
            loop.call_soon_threadsafe(news.set)

        with listening(hear):
            while not condition():
                assert loop.time() < deadline, "it did not come about in time"
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await news.wait()
                news.clear()
