# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""arq: asyncio jobs on Redis. A job stays in the queue until it has ended."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker
from handlers import AsyncHandlers
from runner import PeerTask, play, run_until_told

CONCURRENCY = 100


def _settings(order: PeerTask) -> RedisSettings:
    return RedisSettings(unix_socket_path=unquote(urlsplit(order.redis_url).path))


class Arq:
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

        async def timed(ctx, at: float) -> None:
            await handlers.timed(at)

        async def zombie(ctx) -> str:
            return await handlers.zombie()

        worker = Worker(
            functions=[
                func(empty, name="empty", keep_result=0),
                func(write, name="write", keep_result=0),
                func(timed, name="timed", keep_result=0),
                func(zombie, name="zombie", keep_result=3600),
            ],
            redis_settings=_settings(order),
            handle_signals=False,
            max_jobs=CONCURRENCY,
            # The longest a job may take is also the lifetime of its in-progress key, plus 10 s. In the zombie
            # test the second attempt waits for the first, so this must be longer than a lease.
            job_timeout=max(15, order.lease_seconds),
            poll_delay=0.01,
        )
        await run_until_told(worker.async_run())

    @asynccontextmanager
    async def client(self, order: PeerTask):
        pool = await create_pool(_settings(order))
        yield ArqClient(pool)
        await pool.aclose()


class ArqClient:
    def __init__(self, pool) -> None:
        self._pool = pool

    async def submit_many(self, kind: str, count: int) -> None:
        # There is no batch call; a hundred at a time are in flight.
        for first in range(0, count, 100):
            await asyncio.gather(*(self._pool.enqueue_job(kind) for _ in range(min(100, count - first))))

    async def submit(self, kind: str, at: float) -> None:
        await self._pool.enqueue_job(kind, *((at,) if kind == "timed" else ()))

    async def unfinished(self) -> int:
        return await self._pool.zcard("arq:queue")

    async def outcome(self):
        results = await self._pool.all_job_results()
        waiting = await self._pool.zcard("arq:queue")
        return {
            "finished": waiting == 0 and bool(results),
            "by": results[0].result if results and results[0].success else None,
            "note": f"{waiting} in the queue, results: {[str(r.result) for r in results]}",
        }


if __name__ == "__main__":
    play(Arq())
