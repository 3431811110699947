"""Rows of a PostgreSQL table as a source, in order of a growing id.

A lower id can commit after a higher one was read. So the reader goes no further than a horizon: the
highest id at a moment when no writer was under way, which a SHARE lock on the table makes sure of. The
lock is held for one query; it waits for open writers, and only when the reader has come to the last horizon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from psycopg import sql

from fencepost.client import Fencepost
from fencepost.flows.guarantee import EXACTLY_ONCE, Promise
from fencepost.flows.record import Offset
from fencepost.flows.sinks.sink import Workplace
from fencepost.flows.sources.source import Chunk


class PostgresTable:
    """The rows of an append-only table (or an outbox table of your own), each as a dict."""

    promise = Promise(EXACTLY_ONCE, "rows can be read again from the id in the checkpoint")

    def __init__(
        self, table: str, *, schema: str = "public", id_column: str = "id", name: str | None = None
    ) -> None:
        self.name = name or table
        self._table = sql.Identifier(schema, table)
        self._id = sql.Identifier(id_column)
        self._id_column = id_column

    @property
    def partitions(self) -> Sequence[str]:
        return ["0"]

    async def open(self, place: Workplace, partition: str, after: Offset | None) -> TableReader:
        read = sql.SQL(
            "select {id}, row_to_json(t) from {table} t where {id} > %s and {id} <= %s order by {id} limit %s"
        )
        lock = sql.SQL("lock table {table} in share mode")
        horizon = sql.SQL("select coalesce(max({id}), 0) from {table}")
        names = {"id": self._id, "table": self._table}
        return TableReader(
            place.fp, read.format(**names), lock.format(**names), horizon.format(**names), int(after or 0)
        )


class TableReader:
    def __init__(
        self, fp: Fencepost, read: sql.Composed, lock: sql.Composed, horizon: sql.Composed, after: int
    ) -> None:
        self._fp = fp
        self._read = read
        self._lock = lock
        self._find_horizon = horizon
        self._last = after
        self._horizon = after

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        if self._last >= self._horizon:
            self._horizon = await self._look()
        if self._last >= self._horizon:
            await asyncio.sleep(wait_seconds)
            return Chunk((), ())
        async with self._fp.transaction() as tx:
            cursor = await tx.connection.execute(self._read, (self._last, self._horizon, limit))
            rows: list[tuple[int, Any]] = await cursor.fetchall()
        if len(rows) < limit:
            self._last = self._horizon
        else:
            self._last = rows[-1][0]
        return Chunk([row for _, row in rows], [number for number, _ in rows])

    async def acknowledge(self, offset: Offset) -> None:
        """The rows stay."""

    async def lag(self) -> int | None:
        return max(0, self._horizon - self._last)

    async def close(self) -> None:
        """Connections are the client's."""

    async def _look(self) -> int:
        async with self._fp.transaction() as tx:
            await tx.connection.execute(self._lock)
            cursor = await tx.connection.execute(self._find_horizon)
            [[highest]] = await cursor.fetchall()
            return int(highest)
