"""Rows of a table: none is passed by, though lower ids may commit later, and no writer waits for a reader."""

from typing import LiteralString

import psycopg

from fencepost.flows.sources.postgres import PostgresTable, TableReader
from tests.integration.flows.harness import FlowHarness

INSERT: LiteralString = "insert into arrival (amount) values (%s)"


async def read_all(reader: TableReader, wait_seconds: float = 0) -> list[int]:
    chunk = await reader.read(100, wait_seconds)
    return [row["amount"] for row in chunk.values]


async def opened(harness: FlowHarness) -> TableReader:
    return await PostgresTable("arrival").open(harness.context(), "0", None)


async def test_a_lower_id_that_commits_later_is_waited_for(harness: FlowHarness) -> None:
    reader = await opened(harness)
    with psycopg.connect(harness.database.url) as slow, psycopg.connect(harness.database.url) as fast:
        slow.execute(INSERT, (1,))
        fast.execute(INSERT, (2,))
        fast.commit()
        assert await read_all(reader, 0.05) == []
        # What comes now has a higher id than what is waited for: it does not prolong the wait.
        fast.execute(INSERT, (3,))
        slow.commit()

        assert await read_all(reader, 60) == [1, 2]
        fast.commit()
        assert await read_all(reader, 60) == [3]


async def test_a_writer_that_gives_up_holds_no_caller_up(harness: FlowHarness) -> None:
    reader = await opened(harness)
    with psycopg.connect(harness.database.url) as slow, psycopg.connect(harness.database.url) as fast:
        slow.execute(INSERT, (1,))
        fast.execute(INSERT, (2,))
        fast.commit()
        assert await read_all(reader) == []
        slow.rollback()

        assert await read_all(reader, 60) == [2]


async def test_a_partition_that_is_written_directly_is_waited_for_too(harness: FlowHarness) -> None:
    with harness.database.connect_admin() as admin:
        admin.execute(
            "drop table arrival; create sequence ids;"
            "create table arrival (id bigint not null default nextval('ids'), amount int)"
            " partition by range (id);"
            "create table first_arrivals partition of arrival for values from (0) to (1000);"
            "grant all on arrival, first_arrivals, ids to fencepost_app"
        )
    reader = await opened(harness)
    with psycopg.connect(harness.database.url) as slow, psycopg.connect(harness.database.url) as fast:
        slow.execute("insert into first_arrivals (amount) values (1)")
        fast.execute(INSERT, (2,))
        fast.commit()
        assert await read_all(reader, 0.05) == []
        slow.commit()

        assert await read_all(reader, 60) == [1, 2]


async def test_no_writer_waits_for_a_reader(harness: FlowHarness) -> None:
    reader = await opened(harness)
    with psycopg.connect(harness.database.url) as slow, psycopg.connect(harness.database.url) as fast:
        slow.execute(INSERT, (1,))
        fast.execute(INSERT, (2,))
        fast.commit()
        assert await read_all(reader) == []
        # A lock that the reader waited for would stand before this one in the queue.
        fast.execute("set lock_timeout = '5s'")
        fast.execute(INSERT, (3,))
        fast.commit()
