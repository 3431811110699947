# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN003, ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""SAQ on Redis."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from handlers import AsyncHandlers
from redis.asyncio import Redis
from runner import PeerTask, play, run_until_told
from saq import Job, Worker
from saq.queue.redis import RedisQueue

CONCURRENCY = 100


class Saq:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create."""

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        handlers = AsyncHandlers(order)

        async def empty(ctx) -> None:
            await handlers.empty()

        async def write(ctx) -> None:
            await handlers.write()

        async def timed(ctx, *, at: float) -> None:
            await handlers.timed(at)

        async def zombie(ctx) -> str:
            return await handlers.zombie()

        worker = Worker(
            RedisQueue(Redis.from_url(order.redis_url)),
            functions=[(f.__name__, f) for f in (empty, write, timed, zombie)],
            concurrency=CONCURRENCY,
            # Pending requests of a frozen worker would be given the job again and again: let them time out.
            dequeue_timeout=1.0 if order.kind == "zombie" else 0.0,
            # A sweep every second treated jobs as lost that had just been dequeued.
            timers={"sweep": 10 if order.kind == "zombie" else 60},
        )
        await run_until_told(worker.start(), worker.event.set)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        queue = RedisQueue(Redis.from_url(order.redis_url))
        await queue.connect()
        yield SaqClient(queue, order)
        await queue.disconnect()


class SaqClient:
    def __init__(self, queue: RedisQueue, order: PeerTask) -> None:
        self._queue = queue
        self._order = order

    def _job(self, kind: str, **arguments) -> Job:
        # Kept for the zombie test only: otherwise finished jobs are removed at once.
        if kind == "zombie":
            # A timeout replaces the lease; the second attempt waits for the first, so it is longer.
            return Job(kind, kwargs=arguments, timeout=15, retries=5, ttl=3600)
        return Job(kind, kwargs=arguments, timeout=self._order.lease_seconds, ttl=-1)

    async def submit_many(self, kind: str, count: int) -> None:
        for first in range(0, count, 100):
            await asyncio.gather(
                *(self._queue.enqueue(self._job(kind)) for _ in range(min(100, count - first)))
            )

    async def submit(self, kind: str, at: float) -> None:
        await self._queue.enqueue(self._job(kind, **({"at": at} if kind == "timed" else {})))

    async def unfinished(self) -> int:
        return await self._queue.count("incomplete") + await self._queue.count("active")

    async def outcome(self):
        jobs = [job async for job in self._queue.iter_jobs()]
        job = jobs[0] if jobs else None
        return {
            "finished": job is not None and job.status == "complete",
            "by": job and job.result,
            # The times too: a late retry runs the job once more and leaves the same status.
            "note": job and f"{job.status}, started {job.started}, completed {job.completed}",
        }


if __name__ == "__main__":
    play(Saq())
