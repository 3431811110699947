# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""PgQueuer: a queue in PostgreSQL, over asyncpg."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import uvloop
from handlers import AsyncHandlers
from pgqueuer import AsyncpgPoolDriver, PgQueuer, Queries
from runner import PeerTask, by_batches, play, run_until_told

BATCH = 500


class Pgqueuer:
    def prepare(self, order: PeerTask) -> None:
        asyncio.run(self._prepare(order))

    async def _prepare(self, order: PeerTask) -> None:
        async with asyncpg.create_pool(order.postgres_url, min_size=1) as pool:
            await Queries(AsyncpgPoolDriver(pool)).install()

    def work(self, order: PeerTask) -> None:
        # As its command line does.
        uvloop.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        async with asyncpg.create_pool(order.postgres_url, min_size=2) as pool:
            queue = PgQueuer.from_asyncpg_pool(pool)
            _declare(queue, AsyncHandlers(order))
            working = queue.run(
                batch_size=BATCH,
                heartbeat_timeout=timedelta(seconds=order.lease_seconds),
                dequeue_timeout=timedelta(seconds=min(30, order.lease_seconds)),
            )
            await run_until_told(working, queue.shutdown.set)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        async with asyncpg.create_pool(order.postgres_url, min_size=1) as pool:
            yield PgqueuerClient(pool)


def _declare(queue: PgQueuer, handlers: AsyncHandlers) -> None:
    @queue.entrypoint("empty")
    async def empty(job) -> None:
        await handlers.empty()

    @queue.entrypoint("write")
    async def write(job) -> None:
        await handlers.write()

    @queue.entrypoint("timed")
    async def timed(job) -> None:
        await handlers.timed(json.loads(job.payload)["at"])

    @queue.entrypoint("zombie")
    async def zombie(job) -> None:
        await handlers.zombie()


class PgqueuerClient:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._queries = Queries(AsyncpgPoolDriver(pool))

    async def submit_many(self, kind: str, count: int) -> None:
        async def submit(size: int) -> None:
            await self._queries.enqueue([kind] * size, [b"{}"] * size, [0] * size)

        await by_batches(submit, count, BATCH)

    async def submit(self, kind: str, at: float) -> None:
        await self._queries.enqueue(kind, json.dumps({"at": at}).encode())

    async def unfinished(self) -> int:
        return await self._pool.fetchval("select count(*) from pgqueuer")

    async def outcome(self):
        rows = await self._pool.fetch("select status::text from pgqueuer_log order by id")
        states = [row["status"] for row in rows]
        return {"finished": "successful" in states, "by": None, "note": ", ".join(states)}


if __name__ == "__main__":
    play(Pgqueuer())
