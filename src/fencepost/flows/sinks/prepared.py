"""Rows in another PostgreSQL, by two-phase commit: prepared there before the checkpoint, committed after it.

COMMIT PREPARED answers the same for a transaction that was committed and for one that was rolled back. So
every transaction writes a marker row of its own, which tells them apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import UndefinedObject

from fencepost.flows.errors import FlowError, StartRefused
from fencepost.flows.sinks.kinds import TwoPhaseCommitSink
from fencepost.flows.sinks.postgres import RowOf, as_row
from fencepost.flows.sinks.sink import CheckpointId, Workplace

Connection = psycopg.AsyncConnection[Any]
MARKERS = sql.Identifier("fencepost_prepared")
_MAKE = sql.SQL("create table if not exists {} (gid text primary key, at timestamptz default now())").format(
    MARKERS
)
_FORGET = sql.SQL("delete from {} where starts_with(gid, %s) and gid <> %s").format(MARKERS)


class PreparedRows(TwoPhaseCommitSink[Any, dict[str, Any]]):
    """Appends rows with COPY. The login must be allowed to make the table fencepost_prepared, or it is
    there."""

    def __init__(
        self, url: str, table: str, columns: Sequence[str], *, row: RowOf = as_row, schema: str = "public"
    ) -> None:
        self._url = url
        self._row = row
        self._copy = sql.SQL("copy {table} ({columns}) from stdin").format(
            table=sql.Identifier(schema, table),
            columns=sql.SQL(", ").join(sql.Identifier(column) for column in columns),
        )
        self._sessions: dict[str, Connection] = {}

    async def open(self, place: Workplace) -> None:
        async with await self._connect() as connection:
            [[allowed]] = await _answers(
                connection, sql.SQL("select current_setting('max_prepared_transactions')::int")
            )
            if allowed == 0:
                raise StartRefused(
                    "max_prepared_transactions of the sink's PostgreSQL is 0, so nothing can be "
                    "prepared there. Set "
                    "it to at least the number of tasks and restart that server, or use "
                    "PostgresElsewhere, which prepares nothing."
                )
            # Whoever may not make tables may not say "if not exists" either.
            [[made]] = await _answers(
                connection, sql.SQL("select to_regclass('fencepost_prepared') is not null")
            )
            if not made:
                await connection.execute(_MAKE)

    async def close(self) -> None:
        while self._sessions:
            await self._sessions.popitem()[1].close()

    async def begin_transaction(self, checkpoint: CheckpointId) -> dict[str, Any]:
        return {"gid": f"{_prefix(checkpoint.resource)}{checkpoint.number}.{checkpoint.token}"}

    async def invoke(self, value: Any, txn: dict[str, Any]) -> None:
        await self.invoke_many([value], txn)

    async def invoke_many(self, values: Sequence[Any], txn: dict[str, Any]) -> None:
        session = await self._session(txn["gid"])
        async with session.cursor() as cursor, cursor.copy(self._copy) as copy:
            for value in values:
                await copy.write_row(self._row(value))

    async def pre_commit(self, txn: dict[str, Any]) -> None:
        session = await self._session(txn["gid"])
        await session.execute(sql.SQL("insert into {} (gid) values (%s)").format(MARKERS), (txn["gid"],))
        await session.execute(sql.SQL("prepare transaction {}").format(sql.Literal(txn["gid"])))
        await self._sessions.pop(txn["gid"]).close()

    async def commit(self, txn: dict[str, Any]) -> None:
        async with await self._connect() as connection:
            try:
                await connection.execute(sql.SQL("commit prepared {}").format(sql.Literal(txn["gid"])))
                # Of the checkpoints before this one nobody will ask any more: they are flagged.
                await connection.execute(_FORGET, (_task_of(txn["gid"]), txn["gid"]))
            except UndefinedObject:
                query = sql.SQL("select 1 from {} where gid = %s").format(MARKERS)
                if not await _answers(connection, query, (txn["gid"],)):
                    raise FlowError(
                        f"The prepared transaction {txn['gid']} is gone and was not committed: somebody "
                        f"rolled it "
                        "back, or the server was put back to an older state. Its rows are lost; restore "
                        "a savepoint."
                    ) from None

    async def abort(self, txn: dict[str, Any]) -> None:
        session = self._sessions.pop(txn["gid"], None)
        if session is not None:
            await session.close()
        await self._roll_back(txn["gid"])

    async def restored(self, resource: str, number: int) -> None:
        """What is prepared for this task now is of a zombie: everything durable has been committed."""
        async with await self._connect() as connection:
            left = await _answers(
                connection,
                sql.SQL(
                    "select gid from pg_prepared_xacts where starts_with(gid, %s) and database = "
                    "current_database()"
                ),
                (_prefix(resource),),
            )
        for [gid] in left:
            await self._roll_back(gid)

    async def _roll_back(self, gid: str) -> None:
        async with await self._connect() as connection:
            try:
                await connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))
            except UndefinedObject:
                return

    async def _session(self, gid: str) -> Connection:
        if gid not in self._sessions:
            session = await self._connect()
            await session.execute("begin")
            self._sessions[gid] = session
        return self._sessions[gid]

    async def _connect(self) -> Connection:
        return await psycopg.AsyncConnection.connect(self._url, autocommit=True, prepare_threshold=None)


async def _answers(
    connection: Connection, query: sql.SQL | sql.Composed, arguments: Sequence[Any] = ()
) -> list[Any]:
    return await (await connection.execute(query, arguments)).fetchall()


def _task_of(gid: str) -> str:
    """What the transactions of one task have in common."""
    return gid.rpartition(":")[0] + ":"


def _prefix(resource: str) -> str:
    """A transaction's id has at most 199 bytes, and a resource up to 512."""
    return f"fencepost:{hashlib.sha256(resource.encode()).hexdigest()[:32]}:"
