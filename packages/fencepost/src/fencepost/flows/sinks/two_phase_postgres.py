"""Rows in another PostgreSQL, by two-phase commit: prepared there before the checkpoint, committed after it.

COMMIT PREPARED fails in the same way for a transaction that was committed and for one that was rolled back.
So every transaction writes its own row, which distinguishes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import UndefinedObject

from fencepost.flows._errors import FlowError, StartRefused
from fencepost.flows.sinks._pool import CONNECTIONS, SinkPool
from fencepost.flows.sinks._rejecting import STOP, OnReject, Rejections
from fencepost.flows.sinks._sink import CheckpointId, FlowContext, Prepared
from fencepost.flows.sinks._sink_types import TwoPhaseCommitSink
from fencepost.flows.sinks._table import Table
from fencepost.flows.sinks.external_postgres import make_table
from fencepost.flows.sinks.postgres import Append, RowOf, as_row, sift
from fencepost.kernel.call import Json

Connection = psycopg.AsyncConnection[Any]
PREPARED = sql.Identifier("fencepost_prepared")
_MAKE = "create table if not exists fencepost_prepared (gid text primary key, at timestamptz default now())"
_FORGET = sql.SQL("delete from {} where starts_with(gid, %s) and gid <> %s").format(PREPARED)


class TwoPhasePostgres(TwoPhaseCommitSink[Any, dict[str, Any]]):
    """Appends rows with COPY. The login must be allowed to create the table fencepost_prepared, or the
    table must exist. All tasks of a worker share at most `connections` connections."""

    def __init__(
        self,
        url: str,
        table: str,
        columns: Sequence[str],
        *,
        row: RowOf = as_row,
        schema: str = "public",
        connections: int = CONNECTIONS,
        on_reject: OnReject = STOP,
    ) -> None:
        self._table = Table(schema, table, columns)
        self._append = Append(self._table, row)
        self._pool = SinkPool(type(self).__name__, url, connections)
        self._sessions: dict[str, Connection] = {}
        self.on_reject = on_reject

    async def open(self, context: FlowContext) -> None:
        await self._pool.examine()
        async with self._pool.connection() as connection:
            [[allowed]] = await _answers(
                connection, sql.SQL("select current_setting('max_prepared_transactions')::int")
            )
            if allowed < context.tasks:
                raise StartRefused(
                    f"max_prepared_transactions of the sink's PostgreSQL is {allowed}, and the flow has "
                    f"{context.tasks} tasks, each of which prepares one. Set it to at least {context.tasks} "
                    "and restart that server, or use ExternalPostgres, which prepares nothing."
                )
            await make_table(connection, "fencepost_prepared", _MAKE, "select, insert, delete")
            await self._table.examine(connection, type(self).__name__)

    async def close(self) -> None:
        for gid in list(self._sessions):
            await self._part(gid)
        await self._pool.close()

    async def begin_transaction(self, checkpoint: CheckpointId) -> dict[str, Any]:
        return {"gid": f"{_prefix(checkpoint.resource)}{checkpoint.number}.{checkpoint.token}"}

    async def prepare(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Prepared:
        try:
            return await super().prepare(checkpoint, handle, values)
        finally:
            # After any error the connection must be freed for the next waiter.
            await self._part(handle["gid"])

    async def invoke(self, value: Any, txn: dict[str, Any]) -> None:
        await self._append.write(await self._session(txn["gid"]), [value])

    async def invoke_many(self, values: Sequence[Any], txn: dict[str, Any]) -> Rejections:
        session = await self._session(txn["gid"])
        return await sift(session, values, lambda part: self._append.write(session, part), self.on_reject)

    async def pre_commit(self, txn: dict[str, Any]) -> None:
        session = await self._session(txn["gid"])
        await session.execute(sql.SQL("insert into {} (gid) values (%s)").format(PREPARED), (txn["gid"],))
        await session.execute(sql.SQL("prepare transaction {}").format(sql.Literal(txn["gid"])))
        await self._part(txn["gid"])

    async def commit(self, txn: dict[str, Any]) -> None:
        async with self._pool.connection() as connection:
            try:
                await connection.execute(sql.SQL("commit prepared {}").format(sql.Literal(txn["gid"])))
                # The rows of earlier checkpoints are no longer needed: those checkpoints are flagged.
                await connection.execute(_FORGET, (_task_of(txn["gid"]), txn["gid"]))
            except UndefinedObject:
                query = sql.SQL("select 1 from {} where gid = %s").format(PREPARED)
                if not await _answers(connection, query, (txn["gid"],)):
                    raise FlowError(
                        f"The prepared transaction {txn['gid']} is gone and was not committed: it was "
                        "rolled back by hand, or the server was restored to an older state. Its "
                        "rows are lost; "
                        "restore a savepoint."
                    ) from None

    async def abort(self, txn: dict[str, Any]) -> None:
        await self._part(txn["gid"])
        await self._roll_back(txn["gid"])

    async def restored(self, resource: str, number: int) -> None:
        """Transactions that are prepared for this task now belong to a zombie: everything durable is
        committed."""
        async with self._pool.connection() as connection:
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
        async with self._pool.connection() as connection:
            try:
                await connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))
            except UndefinedObject:
                return

    async def _session(self, gid: str) -> Connection:
        if gid not in self._sessions:
            session = await self._pool.take()
            try:
                await session.execute("begin")
            except BaseException:
                await self._pool.give_back(session)
                raise
            self._sessions[gid] = session
        return self._sessions[gid]

    async def _part(self, gid: str) -> None:
        """Give the session back: a prepared one is reused, one still within its transaction is closed."""
        session = self._sessions.pop(gid, None)
        if session is not None:
            await self._pool.give_back(session)


async def _answers(
    connection: Connection, query: sql.SQL | sql.Composed, arguments: Sequence[Any] = ()
) -> list[Any]:
    return await (await connection.execute(query, arguments)).fetchall()


def _task_of(gid: str) -> str:
    """The common prefix of the transactions of one task."""
    return gid.rpartition(":")[0] + ":"


def _prefix(resource: str) -> str:
    """A transaction id has at most 199 bytes, and a resource up to 512."""
    return f"fencepost:{hashlib.sha256(resource.encode()).hexdigest()[:32]}:"
