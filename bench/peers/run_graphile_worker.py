# mypy: ignore-errors
# pyright: basic, reportMissingImports=false, reportOptionalSubscript=false, reportGeneralTypeIssues=false
# ruff: noqa: ANN201
# Its sibling modules are found by the script's directory, which the checkers do not know.
"""Graphile Worker: a queue in PostgreSQL for Node.js. Jobs are submitted by its functions in SQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from runner import PeerTask, by_batches, play

BATCH = 500
MODULES = Path(sys.prefix) / "node_modules"
ADD = "select graphile_worker.add_job(%s, payload => %s)"
ADD_MANY = """
select count(*) from graphile_worker.add_jobs(array(
  select json_populate_record(null::graphile_worker.job_spec, json_build_object('identifier', %s::text))
  from generate_series(1, %s)))
"""
LOCKED = "select array_agg(distinct locked_by) from graphile_worker.jobs where locked_by is not null"


class GraphileWorker:
    def prepare(self, order: PeerTask) -> None:
        command = [MODULES / ".bin" / "graphile-worker", "--schema-only", "-c", order.postgres_url]
        subprocess.run(command, check=True, capture_output=True)

    def work(self, order: PeerTask) -> None:
        told = {
            "postgres_url": order.postgres_url,
            "results": str(order.results.directory),
            "worker": order.worker,
        }
        script = Path(__file__).with_name("graphile_worker.cjs")
        os.environ["NODE_PATH"] = str(MODULES)
        os.execvp("node", ["node", str(script), json.dumps(told)])  # noqa: S606 -- It is this worker.

    @asynccontextmanager
    async def client(self, order: PeerTask):
        async with (
            await psycopg.AsyncConnection.connect(order.postgres_url, autocommit=True) as first,
            await psycopg.AsyncConnection.connect(order.postgres_url, autocommit=True) as second,
        ):
            yield GraphileClient(first, second)


class GraphileClient:
    def __init__(self, first: psycopg.AsyncConnection, second: psycopg.AsyncConnection) -> None:
        self._free = [first, second]
        self._first = first

    async def submit_many(self, kind: str, count: int) -> None:
        async def submit(size: int) -> None:
            connection = self._free.pop()
            try:
                await connection.execute(ADD_MANY, (kind, size))
            finally:
                self._free.append(connection)

        await by_batches(submit, count, BATCH)

    async def submit(self, kind: str, at: float) -> None:
        await self._first.execute(ADD, (kind, json.dumps({"at": at})))

    async def unfinished(self) -> int:
        row = await (await self._first.execute("select count(*) from graphile_worker.jobs")).fetchone()
        return row[0]

    async def recover(self, _lease_seconds: int) -> None:
        """Its documentation has this for workers that are known to be gone; by itself it waits four hours."""
        (lost,) = await (await self._first.execute(LOCKED)).fetchone()
        if lost:
            await self._first.execute("select graphile_worker.force_unlock_workers(%s)", (lost,))

    async def outcome(self):
        return {"finished": await self.unfinished() == 0, "by": None}


if __name__ == "__main__":
    play(GraphileWorker())
