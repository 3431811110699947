"""Servers that go away under a flow, workers that come and go: the table is right in the end."""

import asyncio
from typing import LiteralString

from fencepost.flows import Flow
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.postgres import PostgresTable
from tests.integration.flows.scene import Scene

HANG_UP: LiteralString = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""
INSERT: LiteralString = "insert into arrival (amount) select * from generate_series(1, 100) returning id"


def counts(groups: int | None) -> Flow:
    rows = Flow("outages").source(PostgresTable("arrival"))
    keyed = rows.key_by(lambda row: str(row["amount"] % 7), groups=groups)
    return keyed.count().sink(PostgresUpsert("total", ["key"], ["value"]))


def counted(scene: Scene) -> int:
    return int(scene.rows("select coalesce(sum(value), 0) from total")[0][0])


async def test_a_flow_outlives_the_loss_of_every_connection(scene: Scene) -> None:
    async with scene.running(scene.worker(counts(None))):
        for expected in (100, 200, 300):
            scene.rows(INSERT)
            await scene.until(lambda expected=expected: counted(scene) >= expected - 50)  # type: ignore[misc]
            scene.rows(HANG_UP)
        await scene.until(lambda: counted(scene) == 300)


async def test_workers_come_and_go_in_the_middle(scene: Scene) -> None:
    flow = counts(5)
    async with scene.running(scene.worker(flow)):
        scene.rows(INSERT)
        async with scene.running(scene.worker(flow), scene.worker(flow)):
            scene.rows(INSERT)
            await scene.until(lambda: counted(scene) == 200)
            scene.rows(INSERT)
        scene.rows(INSERT)
        await scene.until(lambda: counted(scene) == 400)


async def test_redis_loses_the_exchange_again_and_again(scene: Scene) -> None:
    async with scene.running(scene.worker(counts(3))):
        for _ in range(3):
            scene.rows(INSERT)
            await asyncio.sleep(0)
            scene.wipe_redis()
        await scene.until(lambda: counted(scene) == 300)
