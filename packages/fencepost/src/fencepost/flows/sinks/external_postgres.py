"""Rows in another PostgreSQL, replaced by key: the rows and the frontier are one transaction there.

The values are stored in the checkpoint before they are written, so that a repeat writes the same ones; and
that database stores the number of the last checkpoint that it took from each task, so that neither a repeat
nor a zombie writes older rows over newer ones. Nothing is prepared: max_prepared_transactions may be 0.

A worker that stalls in the middle of its transaction would block its successor on the row's lock for as long
as it stalls. So sessions carry the name of their task, and a worker that takes the task over terminates the
earlier sessions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import psycopg

from fencepost.flows._errors import StartRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows.sinks._pool import CONNECTIONS, SinkPool
from fencepost.flows.sinks._rejecting import STOP, OnReject, Rejection, Rejections
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import StagedSink
from fencepost.flows.sinks._table import Table
from fencepost.flows.sinks.postgres import Merge, RowOf, as_row, sift

Connection = psycopg.AsyncConnection[Any]
_MAKE = "create table if not exists fencepost_frontier (resource text primary key, number bigint not null)"
_MAKE_REJECTED = """
    create table if not exists fencepost_rejected
      (resource text primary key, number bigint not null, rejected jsonb not null)"""
_MAY_MAKE = "select has_schema_privilege(current_schema(), 'CREATE'), current_schema(), current_user"
# A role may terminate its own sessions. Not one that has committed and waits for a synchronous standby: it
# would be visible, and lost by the next failover.
_END_OTHERS = """
    select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity
    where application_name = %s and usename = current_user and pid <> pg_backend_pid()
      and wait_event is distinct from 'SyncRep'"""
_NAME_SESSION = "select set_config('application_name', %s, true)"
_POSITION = "select number from fencepost_frontier where resource = %s"
# The row's lock makes a zombie wait; after that its number is no longer newer.
_ADVANCE = """
    insert into fencepost_frontier as f (resource, number) values (%s, %s)
    on conflict (resource) do update set number = excluded.number where f.number < excluded.number
    returning number"""
# What the last checkpoint rejected, for a repeat: a repeat writes nothing and so cannot find it out again.
_REJECT = """
    insert into fencepost_rejected (resource, number, rejected) values (%s, %s, %s::jsonb)
    on conflict (resource) do update set number = excluded.number, rejected = excluded.rejected"""
_REJECTED = "select rejected::text from fencepost_rejected where resource = %s and number = %s"


class ExternalPostgres(StagedSink):
    """Replaces rows by key in the database at `url`. The login must be allowed to create the table
    fencepost_frontier (and fencepost_rejected, where rejected values are kept), or the table must exist.

    All tasks of a worker share at most `connections` connections.
    """

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
        connections: int = CONNECTIONS,
        on_reject: OnReject = STOP,
    ) -> None:
        self._table = Table(schema, table, columns, key)
        self._merge = Merge(self._table, row)
        self._pool = SinkPool(type(self).__name__, url, connections)
        self.on_reject = on_reject

    async def open(self, context: FlowContext) -> None:
        try:
            await self._pool.examine()
            async with self._pool.connection() as connection:
                await make_table(connection, "fencepost_frontier", _MAKE, "select, insert, update")
                if self.on_reject != STOP:
                    await make_table(
                        connection, "fencepost_rejected", _MAKE_REJECTED, "select, insert, update"
                    )
                await self._table.examine(connection, type(self).__name__)
        except psycopg.Error as error:
            raise StartRefused(
                f"The database of ExternalPostgres cannot take its rows: {error} Check its address and login."
            ) from error

    async def close(self) -> None:
        await self._pool.close()

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        checkpoint_key = (checkpoint.resource, checkpoint.number)
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(_NAME_SESSION, (_session_of(checkpoint.resource),))
            if not await _answers(connection, _ADVANCE, checkpoint_key):
                return await self._rejected_before(connection, checkpoint_key, values)
            if not values:
                return None
            rejected = await sift(
                connection, values, lambda part: self._merge.write(connection, part), self.on_reject
            )
            if self.on_reject != STOP:
                found = _found(values, rejected or ())
                await connection.execute(_REJECT, (*checkpoint_key, json.dumps(found)))
            return rejected

    async def _rejected_before(
        self, connection: Connection, checkpoint_key: tuple[str, int], values: Sequence[Any]
    ) -> Rejections:
        stored = None if self.on_reject == STOP else await _answers(connection, _REJECTED, checkpoint_key)
        if stored is None:
            return None
        return [Rejection(values[at], error) for at, error in json.loads(stored) if at < len(values)]

    async def position(self, resource: str) -> int | None:
        async with self._pool.connection() as connection:
            await _answers(connection, _END_OTHERS, (_session_of(resource),))
            position: int | None = await _answers(connection, _POSITION, (resource,))
            return position

    async def restored(self, resource: str, number: int) -> None:
        """The database has everything up to this checkpoint, also after a rewind, which gives it a new
        number."""
        async with self._pool.connection() as connection:
            await connection.execute(_ADVANCE, (resource, number))


async def make_table(connection: Connection, name: str, statement: Any, rights: str) -> None:
    """Create a table of the sink, unless it exists. Without the privilege, the error names the remedy."""
    # A login that may not create tables may not use "if not exists" either.
    if await _answers(connection, "select to_regclass(%s) is not null", (name,)):
        return
    may, schema, login = await _row(connection, _MAY_MAKE)
    if not may:
        raise StartRefused(
            f"The sink needs its table {name}, and the login {login} may not make it in the schema {schema}. "
            f"Run as its owner: {' '.join(statement.split())}; grant {rights} on {name} to {login};"
        )
    await connection.execute(statement)


def _found(values: Sequence[Any], rejected: Sequence[Rejection]) -> list[tuple[int, str]]:
    """Rejections as the indexes of their values."""
    places = {id(value): at for at, value in enumerate(values)}
    return [(places[id(each.value)], each.error.replace("\0", "\ufffd")) for each in rejected]


def _session_of(resource: str) -> str:
    """The application name of a task's sessions: it has at most 63 bytes, and a resource up to 512."""
    return f"fencepost:{hashlib.sha256(resource.encode()).hexdigest()[:32]}"


async def _row(connection: Connection, query: Any, arguments: Sequence[Any] = ()) -> Any:
    return await (await connection.execute(query, arguments)).fetchone()


async def _answers(connection: Connection, query: Any, arguments: Sequence[Any] = ()) -> Any:
    """The only value of the only row, or None."""
    row = await _row(connection, query, arguments)
    return None if row is None else row[0]
