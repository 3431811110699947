"""Servers that go away under a flow, workers that come and go: the table is right in the end."""

import asyncio
from typing import LiteralString

from fencepost.flows import Flow
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.postgres import PostgresTable
from tests.integration.flows.harness import FlowHarness

HANG_UP: LiteralString = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""
INSERT: LiteralString = "insert into arrival (amount) select * from generate_series(1, 100) returning id"


def counts(groups: int | None) -> Flow:
    rows = Flow("outages").source(PostgresTable("arrival"))
    keyed = rows.key_by(lambda row: str(row["amount"] % 7), groups=groups)
    return keyed.count().sink(PostgresUpsert("total", ["key"], ["value"]))


def counted(harness: FlowHarness) -> int:
    return int(harness.rows("select coalesce(sum(value), 0) from total")[0][0])


async def test_a_flow_outlives_the_loss_of_every_connection(harness: FlowHarness) -> None:
    async with harness.running(harness.worker(counts(None))):
        for expected in (100, 200, 300):
            harness.rows(INSERT)
            await harness.until(lambda expected=expected: counted(harness) >= expected - 50)  # type: ignore[misc]
            harness.rows(HANG_UP)
        await harness.until(lambda: counted(harness) == 300)


async def test_workers_come_and_go_in_the_middle(harness: FlowHarness) -> None:
    flow = counts(5)
    async with harness.running(harness.worker(flow)):
        harness.rows(INSERT)
        async with harness.running(harness.worker(flow), harness.worker(flow)):
            harness.rows(INSERT)
            await harness.until(lambda: counted(harness) == 200)
            harness.rows(INSERT)
        harness.rows(INSERT)
        await harness.until(lambda: counted(harness) == 400)


async def test_redis_loses_the_exchange_again_and_again(harness: FlowHarness) -> None:
    async with harness.running(harness.worker(counts(3))):
        for _ in range(3):
            harness.rows(INSERT)
            await asyncio.sleep(0)
            harness.wipe_redis()
        await harness.until(lambda: counted(harness) == 300)
