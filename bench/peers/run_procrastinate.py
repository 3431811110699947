# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""procrastinate: a queue in PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from handlers import AsyncHandlers
from procrastinate import App, PsycopgConnector
from runner import PeerTask, by_batches, play, run_until_told

BATCH = 500
CONCURRENCY = 100
QUEUE = "bench"


def _app(order: PeerTask) -> App:
    app = App(connector=PsycopgConnector(conninfo=order.postgres_url, min_size=4, max_size=20))
    handlers = AsyncHandlers(order)
    for kind in ("empty", "write", "timed", "zombie"):
        app.task(getattr(handlers, kind), name=kind, queue=QUEUE)
    return app


class Procrastinate:
    def prepare(self, order: PeerTask) -> None:
        asyncio.run(self._prepare(order))

    async def _prepare(self, order: PeerTask) -> None:
        async with _app(order).open_async() as app:
            await app.schema_manager.apply_schema_async()

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        async with _app(order).open_async() as app:
            working = app.run_worker_async(
                queues=[QUEUE],
                concurrency=CONCURRENCY,
                install_signal_handlers=False,
                update_heartbeat_interval=order.lease_seconds / 3,
                stalled_worker_timeout=order.lease_seconds,
            )
            await run_until_told(working)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        async with _app(order).open_async() as app:
            yield ProcrastinateClient(app)


class ProcrastinateClient:
    def __init__(self, app: App) -> None:
        self._app = app

    async def submit_many(self, kind: str, count: int) -> None:
        async def submit(size: int) -> None:
            await self._app.configure_task(kind, queue=QUEUE).batch_defer_async(*[{} for _ in range(size)])

        await by_batches(submit, count, BATCH)

    async def submit(self, kind: str, at: float) -> None:
        arguments = {"at": at} if kind == "timed" else {}
        await self._app.configure_task(kind, queue=QUEUE).defer_async(**arguments)

    async def unfinished(self) -> int:
        row = await self._app.connector.execute_query_one_async(
            "select count(*) as jobs from procrastinate_jobs where status in ('todo', 'doing')"
        )
        return row["jobs"]

    async def outcome(self):
        row = await self._app.connector.execute_query_one_async(
            "select status::text, attempts from procrastinate_jobs order by id desc limit 1"
        )
        return {
            "finished": row["status"] == "succeeded",
            "by": None,
            "note": f"{row['status']}, {row['attempts']} attempts",
        }

    async def recover(self, seconds: float) -> None:
        """The documented recipe: a periodic task that finds the stalled jobs and retries them."""
        manager = self._app.job_manager
        for job in await manager.get_stalled_jobs(seconds_since_heartbeat=seconds):
            await manager.retry_job(job)


if __name__ == "__main__":
    play(Procrastinate())
