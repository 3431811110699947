# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201, ANN202
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""streaQ: asyncio jobs on Redis streams."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from handlers import AsyncHandlers
from runner import PeerTask, by_batches, play, run_until_told
from streaq import Worker

BATCH = 500
CONCURRENCY = 100


def _worker(order: PeerTask):
    worker = Worker(
        redis_url=order.redis_url,
        concurrency=CONCURRENCY,
        idle_timeout=order.lease_seconds,
        handle_signals=False,
    )
    # Results are kept for the zombie test only.
    tasks = {
        kind: worker.task(name=kind, silent=True, ttl=3600 if kind == "zombie" else 0)(function)
        for kind, function in AsyncHandlers(order).functions().items()
    }
    return worker, tasks


class Streaq:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create."""

    def work(self, order: PeerTask) -> None:
        worker, _ = _worker(order)
        asyncio.run(run_until_told(worker.run_async()))

    @asynccontextmanager
    async def client(self, order: PeerTask):
        worker, tasks = _worker(order)
        async with worker:
            yield StreaqClient(worker, tasks, order)


class StreaqClient:
    def __init__(self, worker: Worker, tasks, order: PeerTask) -> None:
        self._worker = worker
        self._tasks = tasks
        self._order = order

    async def submit_many(self, kind: str, count: int) -> None:
        async def submit(size: int) -> None:
            await self._worker.enqueue_many([self._tasks[kind].enqueue() for _ in range(size)])

        await by_batches(submit, count, BATCH)

    async def submit(self, kind: str, at: float) -> None:
        task = self._tasks[kind].enqueue(*((at,) if kind == "timed" else ()))
        await task
        self._order.results.note("job", task.id)

    async def unfinished(self) -> int:
        return await self._worker.queue_size(include_scheduled=True)

    async def outcome(self):
        try:
            kept = await self._worker.result_by_id(self._order.results.noted("job"), timeout=1)
        except TimeoutError:
            return {"finished": False, "by": None}
        return {"finished": kept.success, "by": kept.result if kept.success else str(kept.exception)}


if __name__ == "__main__":
    play(Streaq())
