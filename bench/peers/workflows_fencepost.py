# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201, ANN202
# Its sibling modules are found by the script's directory, which the checkers do not know.
"""Workflows of Fencepost, without Redis, measured by the same roles as every peer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import psycopg
from handlers import ALLOWED_SECONDS, WRITE
from run_fencepost import UNFINISHED
from runner import STEPS, PeerTask, play, run_until_told

from fencepost import Fencepost, Transaction, Workflow
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.jobs.settings import JobSettings


async def nothing(step: int) -> int:
    return step


def _declare(fp: Fencepost, order: PeerTask):
    results, who = order.results, order.worker

    async def write(tx: Transaction, step: int) -> None:
        await tx.execute(WRITE, (f"step {step}", who))

    async def write_late(tx: Transaction) -> None:
        results.act(who, "started")
        while not results.is_allowed(who):
            # A transaction that is idle for half of its lease is ended: this one is at work.
            await tx.execute("select 1")
            await asyncio.sleep(ALLOWED_SECONDS)
        await tx.execute(WRITE, ("zombie", who))

    @fp.workflow("bench", lease=order.lease_seconds)
    async def rows(wf: Workflow) -> None:
        for step in range(STEPS):
            await wf.options(key=step).transaction(write, step)
        results.count()

    @fp.workflow("bench", lease=order.lease_seconds)
    async def writes(wf: Workflow) -> None:
        for step in range(STEPS):
            await wf.options(key=step).write((WRITE, (f"step {step}", who)))
        results.count()

    @fp.workflow("bench", lease=order.lease_seconds)
    async def trivial(wf: Workflow) -> None:
        for step in range(STEPS):
            await wf.options(key=step).step(nothing, step)
        results.count()

    @fp.workflow("bench", lease=order.lease_seconds)
    async def zombie(wf: Workflow) -> str:
        await wf.transaction(write_late)
        results.act(who, "wrote")
        return who

    return {"rows": rows, "writes": writes, "trivial": trivial, "zombie": zombie}


class Us:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create: the benchmark has migrated the schema."""

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        fp = Fencepost(order.postgres_url)
        _declare(fp, order)
        settings = JobSettings(
            lease_seconds=order.lease_seconds,
            heartbeat_seconds=order.lease_seconds / 3,
            reclaim_interval_seconds=0.5,
            reclaim_grace_seconds=0.5,
            poll_seconds=0.02,
            concurrency=200,
        )
        worker = fp.jobs.worker(settings)
        freeze_collected_objects()
        async with fp:
            await run_until_told(worker.run(), worker.stop)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        async with (
            Fencepost(order.postgres_url) as fp,
            await psycopg.AsyncConnection.connect(order.admin_url, autocommit=True) as admin,
        ):
            yield OurClient(fp, _declare(fp, order), admin)


class OurClient:
    def __init__(self, fp, workflows, admin) -> None:
        self._fp = fp
        self._workflows = workflows
        self._admin = admin

    async def submit_many(self, kind: str, count: int) -> None:
        async with self._fp.transaction() as tx:
            await self._workflows[kind].handler.submit_many(tx, [{}] * count)

    async def submit(self, kind: str, at: float) -> None:
        async with self._fp.transaction() as tx:
            await self._workflows[kind].start(tx)

    async def unfinished(self) -> int:
        return (await (await self._admin.execute(UNFINISHED)).fetchone())[0]

    async def outcome(self):
        row = await (
            await self._admin.execute(
                "select state, result, attempt from fencepost.job_finished order by job_id desc limit 1"
            )
        ).fetchone()
        if row is None:
            return {"finished": False, "by": None, "note": "not finished"}
        return {"finished": True, "by": row[1], "note": f"{row[0]} by {row[1]}, attempt {row[2]}"}


if __name__ == "__main__":
    play(Us())
