# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Absurd: durable tasks as PostgreSQL functions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from absurd_sdk import AsyncAbsurd
from handlers import AsyncHandlers
from runner import PeerTask, play, run_until_told

# Its tables have the queue in their names.
QUEUE = "bench"
CONCURRENCY = 100


def _app(order: PeerTask) -> AsyncAbsurd:
    app = AsyncAbsurd(order.postgres_url, queue_name=QUEUE)
    handlers = AsyncHandlers(order)

    @app.register_task(name="empty")
    async def empty(params, ctx) -> None:
        await handlers.empty()

    @app.register_task(name="write")
    async def write(params, ctx) -> None:
        await handlers.write()

    @app.register_task(name="timed")
    async def timed(params, ctx) -> None:
        await handlers.timed(params["at"])

    @app.register_task(name="zombie")
    async def zombie(params, ctx) -> str:
        return await handlers.zombie()

    return app


class AbsurdPeer:
    def prepare(self, order: PeerTask) -> None:
        # The schema comes with its command line tool, in a package of its own.
        command = Path(sys.executable).with_name("absurdctl")
        for arguments in (["init"], ["create-queue", QUEUE]):
            subprocess.run(
                [command, *arguments, "-d", order.postgres_url], check=True, stdout=sys.stderr.fileno()
            )

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        app = _app(order)
        working = app.start_worker(
            worker_id=order.worker,
            claim_timeout=order.lease_seconds,
            concurrency=CONCURRENCY,
            poll_interval=0.01,
        )
        await run_until_told(working, app.stop_worker)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        async with await psycopg.AsyncConnection.connect(order.admin_url, autocommit=True) as admin:
            app = _app(order)
            yield AbsurdClient(app, admin)
            await app.close()


class AbsurdClient:
    def __init__(self, app: AsyncAbsurd, admin) -> None:
        self._app = app
        self._admin = admin

    async def submit_many(self, kind: str, count: int) -> None:
        # One connection, one task after another: the SDK has no batch call.
        for _ in range(count):
            await self._app.spawn(kind, {})

    async def submit(self, kind: str, at: float) -> None:
        await self._app.spawn(kind, {"at": at})

    async def unfinished(self) -> int:
        row = await (
            await self._admin.execute(
                "select count(*) from absurd.t_bench where state not in ('completed', 'failed', 'cancelled')"
            )
        ).fetchone()
        return row[0]

    async def outcome(self):
        row = await (
            await self._admin.execute(
                "select state, completed_payload, attempts from absurd.t_bench order by task_id desc limit 1"
            )
        ).fetchone()
        return {"finished": row[0] == "completed", "by": row[1], "note": f"{row[0]}, {row[2]} attempts"}


if __name__ == "__main__":
    play(AbsurdPeer())
