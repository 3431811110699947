"""Sinks in the database that holds the frontier: their rows commit with it. The default."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from fencepost.errors import InvalidInput
from fencepost.flows.sinks._rejecting import (
    STOP,
    UNFIT,
    OnReject,
    Rejected,
    Rejection,
    Rejections,
    halves,
    rejection,
)
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import TransactionalSink
from fencepost.flows.sinks._table import Table
from fencepost.kernel import outbox
from fencepost.transaction import Transaction

RowOf = Callable[[Any], Sequence[Any]]


def as_row(value: Any) -> Sequence[Any]:
    """A tuple or a list is a row; any other value is a row of one column."""
    return value if isinstance(value, tuple | list) else (value,)  # pyright: ignore[reportUnknownVariableType]


def is_rejection(error: Exception) -> bool:
    """Whether an error concerns one value: its row cannot be made, or the database will never take it."""
    if isinstance(error, psycopg.ProgrammingError):
        # Raised by the driver: it knows no database type for the value.
        return error.sqlstate is None
    refused = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException)
    return isinstance(error, (*refused, Rejected, InvalidInput, *UNFIT))


async def sift(
    connection: psycopg.AsyncConnection[Any],
    values: Sequence[Any],
    take: Callable[[Sequence[Any]], Awaitable[Any]],
    on_reject: OnReject,
) -> Rejections:
    """Write the values within the transaction of the connection; return those that it will never take.

    Each try has its own savepoint, and values that fail are halved until one is left: a rejection costs about
    log2(number of values) tries. None of this is done where a rejection stops the task. Deferred constraints
    are checked at the commit, and stop the task.
    """
    if on_reject == STOP:
        await take(values)
        return None
    rejected: list[Rejection] = []
    waiting: list[Sequence[Any]] = [values]
    while waiting:
        part = waiting.pop()
        try:
            async with connection.transaction():
                await take(part)
        except Exception as error:
            if not is_rejection(error):
                raise
            if len(part) == 1:
                rejected.append(rejection(part[0], error))
            else:
                first, second = halves(part)
                waiting += [second, first]
    return rejected


class Append:
    """Appends rows with COPY."""

    def __init__(self, table: Table, row: RowOf) -> None:
        self._row = row
        self._copy = sql.SQL("copy {table} ({columns}) from stdin").format(
            table=table.identifier, columns=_names(table.columns)
        )

    async def write(self, connection: psycopg.AsyncConnection[Any], values: Sequence[Any]) -> None:
        """Append the values to the table, by COPY."""
        async with connection.cursor() as cursor, cursor.copy(self._copy) as copy:
            for value in values:
                await copy.write_row([_stored(cell) for cell in self._row(value)])


class PostgresRows(TransactionalSink):
    """Appends rows with COPY."""

    def __init__(
        self,
        table: str,
        columns: Sequence[str],
        *,
        row: RowOf = as_row,
        schema: str = "public",
        on_reject: OnReject = STOP,
    ) -> None:
        self._table = Table(schema, table, columns)
        self._append = Append(self._table, row)
        self.on_reject = on_reject

    async def open(self, context: FlowContext) -> None:
        async with context.fp.transaction() as tx:
            await self._table.examine(tx.connection, type(self).__name__)

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        connection = tx.connection
        return await sift(
            connection, values, lambda part: self._append.write(connection, part), self.on_reject
        )


class Merge:
    """Replaces rows by key: rows are copied into a temporary table and merged with one statement.

    That is many times faster than row by row. Of several values of one key only the last is written.
    """

    def __init__(self, table: Table, row: RowOf) -> None:
        self._row = row
        self._width = len(table.key)
        target, everything = table.identifier, table.everything
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
            key=_names(table.key),
            changes=sql.SQL(", ").join(
                sql.SQL("{c} = excluded.{c}").format(c=sql.Identifier(column)) for column in table.columns
            ),
        )

    async def write(self, connection: psycopg.AsyncConnection[Any], values: Sequence[Any]) -> None:
        """Write the values within a transaction of the connection."""
        rows = {tuple(row[: self._width]): row for row in map(self._row, values)}
        async with connection.cursor() as cursor:
            await cursor.execute(self._stage)
            async with cursor.copy(self._copy) as copy:
                for row in rows.values():
                    await copy.write_row([_stored(cell) for cell in row])
            await cursor.execute(self._merge)
            # A second sink of the flow uses the same name for its staging table.
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
        on_reject: OnReject = STOP,
    ) -> None:
        self._table = Table(schema, table, columns, key)
        self._merge = Merge(self._table, row)
        self.on_reject = on_reject

    async def open(self, context: FlowContext) -> None:
        async with context.fp.transaction() as tx:
            await self._table.examine(tx.connection, type(self).__name__)

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        connection = tx.connection
        return await sift(
            connection, values, lambda part: self._merge.write(connection, part), self.on_reject
        )


class OutboxSink(TransactionalSink):
    """Puts messages into an outbox channel, in the commit. The relay delivers them, in order for one key."""

    def __init__(
        self,
        channel: str,
        *,
        key: Callable[[Any], str | None] | None = None,
        payload: Callable[[Any], Any] | None = None,
        on_reject: OnReject = STOP,
    ) -> None:
        self._channel = channel
        self._key = key
        self._payload = payload
        self.on_reject = on_reject

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        return await sift(tx.connection, values, lambda part: self._put(tx, part), self.on_reject)

    async def _put(self, tx: Transaction, values: Sequence[Any]) -> None:
        keys = [self._key(value) if self._key else None for value in values]
        payloads = [self._payload(value) if self._payload else value for value in values]
        await tx.run(outbox.put_many(self._channel, payloads, keys=keys))


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column) for column in columns)


def _stored(cell: Any) -> Any:
    """Convert documents to jsonb; leave types that COPY knows unchanged."""
    return Jsonb(cell) if isinstance(cell, dict | list) else cell
