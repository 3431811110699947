# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""DBOS: durable workflows from a queue in PostgreSQL. A handler's own write is a transaction step."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import psycopg
import sqlalchemy as sa
from dbos import DBOS, DBOSClient, SQLAlchemyDatasource
from handlers import SyncHandlers
from runner import PeerTask, play

QUEUE = "bench"
CONCURRENCY = 100
SUBMITTERS = 8
WRITE = sa.text("insert into public.effect (job, who) values (:job, :who)")
LIVE = "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')"
LAST = "select status, output, recovery_attempts from dbos.workflow_status order by created_at desc limit 1"


def _launch(order: PeerTask) -> None:
    """The version and the executor are named, so that a second process recovers what the first has begun."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": order.postgres_url,
            "application_version": "1",
            "executor_id": "local",
            "log_level": "ERROR",
            "sys_db_pool_size": 20,
        }
    )
    source = SQLAlchemyDatasource.create(order.postgres_url, engine_kwargs={"pool_size": 20})
    handlers = SyncHandlers(order)

    @source.transaction()
    def effect(job: str, who: str) -> None:
        source.sql_session().execute(WRITE, {"job": job, "who": who})

    @DBOS.workflow(name="empty")
    def empty() -> None:
        handlers.empty()

    @DBOS.workflow(name="write")
    def write() -> None:
        effect("load", handlers.who)
        handlers.results.count()

    @DBOS.workflow(name="timed")
    def timed(at: float) -> None:
        handlers.timed(at)

    @DBOS.workflow(name="zombie")
    def zombie() -> str:
        handlers.results.act(handlers.who, "started")
        handlers.wait_until_allowed()
        effect("zombie", handlers.who)
        handlers.results.act(handlers.who, "wrote")
        return handlers.who

    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=0.01)


class DbosPeer:
    def prepare(self, order: PeerTask) -> None:
        _launch(order)
        DBOS.destroy()

    def work(self, order: PeerTask) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        _launch(order)
        signal.sigwait({signal.SIGTERM})
        DBOS.destroy(workflow_completion_timeout_sec=2)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        client = DBOSClient(system_database_url=order.postgres_url, system_database_pool_size=SUBMITTERS)
        async with await psycopg.AsyncConnection.connect(order.admin_url, autocommit=True) as admin:
            with ThreadPoolExecutor(SUBMITTERS) as threads:
                yield DbosClient(client, admin, threads)
        client.destroy()


class DbosClient:
    def __init__(self, client: DBOSClient, admin, threads: ThreadPoolExecutor) -> None:
        self._client = client
        self._admin = admin
        self._threads = threads

    def _enqueue(self, kind: str, *arguments: float) -> None:
        self._client.enqueue({"queue_name": QUEUE, "workflow_name": kind, "app_version": "1"}, *arguments)

    async def submit_many(self, kind: str, count: int) -> None:
        # There is no batch call: some threads, each with a connection.
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(loop.run_in_executor(self._threads, self._enqueue, kind) for _ in range(count))
        )

    async def submit(self, kind: str, at: float) -> None:
        arguments = (at,) if kind == "timed" else ()
        await asyncio.get_running_loop().run_in_executor(self._threads, self._enqueue, kind, *arguments)

    async def unfinished(self) -> int:
        return (await (await self._admin.execute(LIVE)).fetchone())[0]

    async def outcome(self):
        status, output, attempts = await (await self._admin.execute(LAST)).fetchone()
        by = None if output is None else "A" if '"A"' in output else "B" if '"B"' in output else output
        return {
            "finished": status == "SUCCESS",
            "by": by,
            "note": f"{status}, {attempts} recoveries, output {output}",
        }


if __name__ == "__main__":
    play(DbosPeer())
