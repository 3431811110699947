"""Rows of a PostgreSQL table as a source, in order of a growing id.

A lower id can commit after a higher one was read. So the reader goes no further than a horizon: the highest
id that it saw at some moment, once every transaction that was writing to the table at that moment has ended.
The lock table shows these transactions: an insert has its lock before it has its id. Nothing is locked for
this, so neither a slow reader nor a stalled one blocks a writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from psycopg import sql

from fencepost.database import AsyncDatabase
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Offset
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._source import Chunk

POLL_SECONDS = 0.01
_READ = sql.SQL(
    "select {id}, row_to_json(t) from {table} t where {id} > %s and {id} <= %s order by {id} limit %s"
)
_WRITERS = sql.SQL("""
    select l.virtualtransaction from pg_locks l
    where l.locktype = 'relation' and l.granted and l.pid is distinct from pg_backend_pid()
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and (l.relation = {name}::regclass
           or l.relation in (select p.relid from pg_partition_tree({name}::regclass) p))
      and l.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')""")
# One statement: the snapshot that sees the ids is older than the look at the locks. A transaction that writes
# in
# between is either seen writing, or has ended by then.
_LOOK = sql.SQL("select coalesce((select max({id}) from {table}), 0), array({writers})")
_STILL = sql.SQL("select exists (select 1 from ({writers}) w where w.virtualtransaction = any (%s::text[]))")


class PostgresTable:
    """The rows of an append-only table (or an outbox table of your own), each as a dict."""

    promise = Promise(EXACTLY_ONCE, "rows can be read again from the id in the checkpoint")

    def __init__(
        self, table: str, *, schema: str = "public", id_column: str = "id", name: str | None = None
    ) -> None:
        self.name = name or table
        self._table = sql.Identifier(schema, table)
        self._id = sql.Identifier(id_column)

    @property
    def partitions(self) -> Sequence[str]:
        """The names of its partitions."""
        return ["0"]

    def reads(self, partition: str) -> str:
        """What a partition reads, for people."""
        return f"table {self._table.as_string(None)}"

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> TableReader:
        """Read a partition from behind an offset."""
        names = {"id": self._id, "table": self._table}
        writers = _WRITERS.format(name=sql.Literal(self._table.as_string(None)))
        return TableReader(
            context.fp,
            _READ.format(**names),
            _LOOK.format(writers=writers, **names),
            _STILL.format(writers=writers),
            int(after or 0),
        )


class TableReader:
    """Reads one partition, in order."""

    def __init__(
        self, fp: AsyncDatabase, read: sql.Composed, look: sql.Composed, still: sql.Composed, after: int
    ) -> None:
        self._fp = fp
        self._read = read
        self._look_around = look
        self._still = still
        self._last = after
        self._claim_cursor = after
        self._next: int | None = None
        """The next horizon, once `_writers` have ended."""
        self._writers: list[str] = []

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next values."""
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while not await self._sees_more():
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return Chunk((), ())
            # Active writers end soon, so poll often; without any, wait the full time.
            await asyncio.sleep(min(left, POLL_SECONDS if self._next is not None else wait_seconds))
        rows = await self._rows(self._read, (self._last, self._claim_cursor, limit))
        self._last = self._claim_cursor if len(rows) < limit else rows[-1][0]
        return Chunk([row for _, row in rows], [number for number, _ in rows])

    async def acknowledge(self, offset: Offset) -> None:
        """Does nothing: the rows stay."""

    async def lag(self, count: int) -> int | None:
        """How much waits."""
        return max(0, max(self._claim_cursor, self._next or 0) - self._last)

    async def close(self) -> None:
        """Does nothing: the client owns the connections."""

    async def _sees_more(self) -> bool:
        if self._last < self._claim_cursor:
            return True
        if self._next is None:
            [[highest, self._writers]] = await self._rows(self._look_around)
            self._next = int(highest) if highest > self._last else None
        elif self._writers:
            [[still]] = await self._rows(self._still, (self._writers,))
            self._writers = self._writers if still else []
        if self._next is None or self._writers:
            return False
        self._claim_cursor, self._next = self._next, None
        return True

    async def _rows(self, query: sql.Composed, arguments: Sequence[Any] = ()) -> list[Any]:
        async with self._fp.transaction() as tx:
            return await (await tx.connection.execute(query, arguments)).fetchall()
