# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201, ANN202
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""taskiq with taskiq-redis, on streams: the one of its two brokers that acknowledges."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from handlers import AsyncHandlers
from redis.asyncio import Redis
from runner import PeerTask, play, run_until_told
from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

CONCURRENCY = 100


def _broker(order: PeerTask):
    broker = RedisStreamBroker(
        order.redis_url,
        idle_timeout=order.lease_seconds * 1000,
        unacknowledged_lock_timeout=5,
        # From the first entry: jobs that were submitted before the first worker started belong to it too.
        consumer_id="0",
    )
    if order.kind == "zombie":
        broker = broker.with_result_backend(RedisAsyncResultBackend(order.redis_url))
    functions = AsyncHandlers(order).functions()
    tasks = {kind: broker.register_task(function, task_name=kind) for kind, function in functions.items()}
    return broker, tasks


class Taskiq:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create."""

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        broker, _ = _broker(order)
        await run_until_told(run_receiver_task(broker, max_async_tasks=CONCURRENCY, run_startup=True))

    @asynccontextmanager
    async def client(self, order: PeerTask):
        broker, tasks = _broker(order)
        await broker.startup()
        redis = Redis.from_url(order.redis_url)
        yield TaskiqClient(tasks, redis, broker.result_backend, order)
        await redis.aclose()
        await broker.shutdown()


class TaskiqClient:
    def __init__(self, tasks, redis: Redis, results, order: PeerTask) -> None:
        self._tasks = tasks
        self._redis = redis
        self._results = results
        self._order = order

    async def submit_many(self, kind: str, count: int) -> None:
        for first in range(0, count, 100):
            await asyncio.gather(*(self._tasks[kind].kiq() for _ in range(min(100, count - first))))

    async def submit(self, kind: str, at: float) -> None:
        task = await self._tasks[kind].kiq(*((at,) if kind == "timed" else ()))
        if kind == "zombie":
            self._order.results.note("job", task.task_id)

    async def recover(self, seconds: float) -> None:
        """Submits a job: its broker looks for unacknowledged entries only after it has read a new one."""
        await self.submit("empty", 0)

    async def unfinished(self) -> int:
        (group,) = await self._redis.xinfo_groups("taskiq")
        return group["pending"] + (group["lag"] or 0)

    async def outcome(self):
        job = self._order.results.noted("job")
        if not await self._results.is_result_ready(job):
            return {"finished": False, "by": None}
        kept = await self._results.get_result(job)
        return {"finished": not kept.is_err, "by": kept.return_value}


if __name__ == "__main__":
    play(Taskiq())
