"""Sinks in the database that holds the frontier: their rows commit with it. The default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from fencepost.flows.sinks.kinds import TransactionalSink
from fencepost.flows.sinks.sink import CheckpointId
from fencepost.kernel import outbox
from fencepost.transaction import Transaction

RowOf = Callable[[Any], Sequence[Any]]


def as_row(value: Any) -> Sequence[Any]:
    """A tuple or a list is a row; anything else is a row of one."""
    return value if isinstance(value, tuple | list) else (value,)  # pyright: ignore[reportUnknownVariableType]


class PostgresRows(TransactionalSink):
    """Appends rows with COPY."""

    def __init__(
        self, table: str, columns: Sequence[str], *, row: RowOf = as_row, schema: str = "public"
    ) -> None:
        self._row = row
        self._copy = sql.SQL("copy {table} ({columns}) from stdin").format(
            table=sql.Identifier(schema, table), columns=_names(columns)
        )

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> None:
        async with tx.connection.cursor() as cursor, cursor.copy(self._copy) as copy:
            for value in values:
                await copy.write_row([_stored(cell) for cell in self._row(value)])


class Merge:
    """Rows that replace rows by key: copied into a temporary table and merged with one statement.

    That is many times faster than row by row. Of several values of one key only the last is written.
    """

    def __init__(
        self, table: str, key: Sequence[str], columns: Sequence[str], row: RowOf, schema: str
    ) -> None:
        self._row = row
        self._width = len(key)
        target = sql.Identifier(schema, table)
        everything = [*key, *columns]
        self._stage = sql.SQL(
            "create temporary table fencepost_staged on commit drop as select {columns} from {table} limit 0"
        ).format(columns=_names(everything), table=target)
        self._copy = sql.SQL("copy pg_temp.fencepost_staged ({columns}) from stdin").format(
            columns=_names(everything)
        )
        self._merge = sql.SQL(
            "insert into {table} ({columns}) select {columns} from pg_temp.fencepost_staged"
            " on conflict ({key}) do update set {changes}"
        ).format(
            table=target,
            columns=_names(everything),
            key=_names(key),
            changes=sql.SQL(", ").join(
                sql.SQL("{c} = excluded.{c}").format(c=sql.Identifier(column)) for column in columns
            ),
        )

    async def write(self, connection: psycopg.AsyncConnection[Any], values: Sequence[Any]) -> None:
        """Within a transaction of the connection."""
        rows = {tuple(row[: self._width]): row for row in map(self._row, values)}
        async with connection.cursor() as cursor:
            await cursor.execute(self._stage)
            async with cursor.copy(self._copy) as copy:
                for row in rows.values():
                    await copy.write_row([_stored(cell) for cell in row])
            await cursor.execute(self._merge)
            # A second sink of the flow stages under the same name.
            await cursor.execute("drop table pg_temp.fencepost_staged")


class PostgresUpsert(TransactionalSink):
    """Replaces rows by key. Of several values of one key in a commit only the last is written."""

    keyed = True

    def __init__(
        self,
        table: str,
        key: Sequence[str],
        columns: Sequence[str],
        *,
        row: RowOf = as_row,
        schema: str = "public",
    ) -> None:
        self._merge = Merge(table, key, columns, row, schema)

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> None:
        await self._merge.write(tx.connection, values)


class OutboxSink(TransactionalSink):
    """Puts messages into an outbox channel, in the commit. The relay delivers them, in order for one key."""

    def __init__(
        self,
        channel: str,
        *,
        key: Callable[[Any], str | None] | None = None,
        payload: Callable[[Any], Any] | None = None,
    ) -> None:
        self._channel = channel
        self._key = key
        self._payload = payload

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> None:
        keys = [self._key(value) if self._key else None for value in values]
        payloads = [self._payload(value) if self._payload else value for value in values]
        await tx.run(outbox.put_many(self._channel, payloads, keys=keys))


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column) for column in columns)


def _stored(cell: Any) -> Any:
    """Documents become jsonb; what COPY knows stays as it is."""
    return Jsonb(cell) if isinstance(cell, dict | list) else cell
