"""Rows in another PostgreSQL, replaced by key: the rows and the frontier are one transaction there.

The values lie in the checkpoint before they are written, so that a repeat writes the same ones; and that
database remembers the number of the last checkpoint that it took of each task, so that neither a repeat nor a
zombie writes older rows over newer ones. Nothing is prepared: max_prepared_transactions may be 0.

A worker that stands still in the middle of its transaction would keep its successor waiting for the row's
lock, for as long as it stands. So sessions carry the name of their task, and whoever takes it over ends those
before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

from fencepost.flows.errors import StartRefused
from fencepost.flows.guarantee import EXACTLY_ONCE, Promise
from fencepost.flows.sinks.kinds import StagedSink
from fencepost.flows.sinks.postgres import Merge, RowOf, as_row
from fencepost.flows.sinks.sink import CheckpointId, Workplace

Connection = psycopg.AsyncConnection[Any]
CONNECT_SECONDS = 10
_MAKE = "create table if not exists fencepost_frontier (resource text primary key, number bigint not null)"
# A login may end sessions of its own.
_END_OTHERS = """
    select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity
    where application_name = %s and usename = current_user and pid <> pg_backend_pid()"""
_POSITION = "select number from fencepost_frontier where resource = %s"
# The row's lock makes a zombie wait, and then it is not newer.
_ADVANCE = """
    insert into fencepost_frontier as f (resource, number) values (%s, %s)
    on conflict (resource) do update set number = excluded.number where f.number < excluded.number
    returning number"""


class PostgresElsewhere(StagedSink):
    """Replaces rows by key in the database at `url`. The login must be allowed to make the table
    fencepost_frontier, or it is there."""

    keyed = True
    numbered = True
    promise = Promise(EXACTLY_ONCE, "rows and frontier are one transaction of that database")

    def __init__(
        self,
        url: str,
        table: str,
        key: Sequence[str],
        columns: Sequence[str],
        *,
        row: RowOf = as_row,
        schema: str = "public",
    ) -> None:
        self._url = url
        self._merge = Merge(table, key, columns, row, schema)
        self._columns = sql.SQL("select {columns} from {table} limit 0").format(
            columns=sql.SQL(", ").join(map(sql.Identifier, [*key, *columns])),
            table=sql.Identifier(schema, table),
        )

    async def open(self, place: Workplace) -> None:
        try:
            async with await self._connect() as connection:
                if not await _answers(connection, "select to_regclass('fencepost_frontier') is not null"):
                    await connection.execute(_MAKE)
                await connection.execute(self._columns)
        except psycopg.Error as error:
            raise StartRefused(
                f"The database of PostgresElsewhere cannot take its rows: {error} Make the table, let the "
                "login write it, and make fencepost_frontier (resource text primary key, number bigint)."
            ) from error

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> None:
        name = _session_of(checkpoint.resource)
        async with await self._connect(name) as connection, connection.transaction():
            if await _answers(connection, _ADVANCE, (checkpoint.resource, checkpoint.number)) and values:
                await self._merge.write(connection, values)

    async def position(self, resource: str) -> int | None:
        async with await self._connect() as connection:
            await _answers(connection, _END_OTHERS, (_session_of(resource),))
            position: int | None = await _answers(connection, _POSITION, (resource,))
            return position

    async def restored(self, resource: str, number: int) -> None:
        """Everything up to this checkpoint is here: also after a rewind, which has given it a new number."""
        async with await self._connect() as connection:
            await connection.execute(_ADVANCE, (resource, number))

    async def _connect(self, name: str = "fencepost") -> Connection:
        return await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=CONNECT_SECONDS,
            application_name=name,
        )


def _session_of(resource: str) -> str:
    """The name of an application has at most 63 bytes, and a resource up to 512."""
    return f"fencepost:{hashlib.sha256(resource.encode()).hexdigest()[:32]}"


async def _answers(connection: Connection, query: Any, arguments: Sequence[Any] = ()) -> Any:
    """The only value of the only row, or None."""
    row = await (await connection.execute(query, arguments)).fetchone()
    return None if row is None else row[0]
