"""The changes of PostgreSQL tables as a source (change data capture), by logical decoding.

No replication protocol is spoken: a slot is peeked with plain SQL, which changes nothing, and is advanced
when the checkpoint that has the changes is committed. So a change can be read again until it has taken
effect, and the server keeps what is needed for that. An offset is where the transaction committed in the log
of the server, and how many of its changes were read.

The rows that are there at the beginning are copied into a log of the flow first, in the snapshot in which the
slot begins, and read from there: neither a change nor a row is missed or comes twice, wherever the copy ends.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg import pq, sql
from psycopg.adapt import Transformer

from fencepost.flows._errors import FlowError, GraphRefused, SourceTrimmed, StartRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Offset, order
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._log import Entry, SourceLog
from fencepost.flows.sources._pgoutput import Change, Decoder, Load, Placed, copied
from fencepost.flows.sources._source import Chunk
from fencepost.logs import get_logger

__all__ = ["Change", "ChangeReader", "PostgresChanges"]

_log = get_logger(__name__)
Connection = psycopg.AsyncConnection[Any]
PEEK_ROWS = 10_000
"""How many messages a peek returns, and the rest of the transaction."""
FETCH_ROWS = 1000
COPY_ROWS = 200
"""How many rows of the first copy lie in one entry of the log."""
PLACES = 100_000
POLL_SECONDS = 0.05
IDLE_SECONDS = 10.0
"""How often a slot whose tables do not change is advanced, so that the server may remove its log."""
CONNECT_SECONDS = 10
# Texts of values are the same in the first copy and later, whatever the login's defaults are.
_SESSION = """
    set idle_in_transaction_session_timeout = 0; set statement_timeout = 0; set datestyle = iso;
    set intervalstyle = postgres; set timezone = 'UTC'; set bytea_output = hex; set extra_float_digits = 1"""
_SERVER = """
    select current_setting('wal_level'), current_setting('server_version_num')::int,
      (select system_identifier::text from pg_control_system()),
      (select r.rolreplication or r.rolsuper from pg_roles r where r.rolname = current_user),
      current_user, pg_is_in_recovery()"""
_SLOT = """
    select plugin, (confirmed_flush_lsn - '0/0')::bigint, coalesce(wal_status, 'reserved')
    from pg_replication_slots where slot_name = %s and database = current_database()"""
_LEFT = """
    select slot_name from pg_replication_slots where database = current_database() and plugin = 'pgoutput'
      and slot_name ~ %s and slot_name <> %s and not active
      and substring(slot_name from '_([0-9]+)$')::bigint <= %s"""
_TABLES = """
    select n.nspname, c.relname, c.relkind = 'p', has_table_privilege(c.oid, 'SELECT')
    from pg_get_publication_tables(%s) p join pg_class c on c.oid = p.relid
      join pg_namespace n on n.oid = c.relnamespace
    order by 1, 2"""
# A publication may have the partitions of a table in its place.
_MISSING = """
    select t.name from unnest(%s::text[]) t (name) where not exists (
      select 1 from pg_get_publication_tables(%s) p where p.relid in (
          select to_regclass(t.name)
          union all select r.relid from pg_partition_tree(to_regclass(t.name)) r))"""
_IDENTITIES = """
    select t.name, c.oid is not null,
      c.relreplident = 'n' or c.relreplident = 'd' and not exists (
        select 1 from pg_index i where i.indrelid = c.oid and i.indisprimary)
    from unnest(%s::text[]) t (name) left join pg_class c on c.oid = to_regclass(t.name)"""
_NOW = "select (pg_current_wal_flush_lsn() - '0/0')::bigint"
_PEEK = """
    select data from pg_logical_slot_peek_binary_changes(
      %s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)"""
_ADVANCE = "select pg_replication_slot_advance(%s, %s::pg_lsn)"


class _Cursor(NamedTuple):
    """What the log knows of the slot."""

    slot: str
    key: str
    """Part of the names of its slots: another flow, or the same one of another system, has another."""
    system: str
    streams: bool
    """Whether the first copy is whole."""
    advanced: int
    """How far the slot was moved without a change that had to be committed."""
    since: str
    """The offset from which on there was none: for a flow that has come less far, the slot was moved by its
    own commits, and has no more what lies between."""
    first: int
    """The number of the first entry of the first copy."""


@dataclass(frozen=True, slots=True)
class _Server:
    version: int
    system: str


class PostgresChanges:
    """Inserts, updates, deletes and truncates of tables in the database at `url`, as `Change`s in the order
    of commits; before them, with `snapshot`, the rows that were there.

    The login needs the attribute REPLICATION and the right to read the tables, and the server wal_level =
    logical. A publication and a slot named after `slot` are made at the first start, the publication only if
    it does not exist (then the login must own the tables). The slot is a failover slot where the server knows
    them (17 and later), unless `failover` is False. A flow that is given up leaves its slot, which keeps the
    server's log from being removed: drop it.
    """

    promise = Promise(EXACTLY_ONCE, "a slot is advanced when its changes are committed")
    resumes = True

    def __init__(
        self,
        url: str,
        tables: Sequence[str],
        *,
        slot: str = "fencepost_changes",
        publication: str | None = None,
        snapshot: bool = True,
        failover: bool = True,
        name: str = "changes",
    ) -> None:
        if not tables or isinstance(tables, str):
            raise GraphRefused("PostgresChanges needs tables, as a list of names.")
        if not re.fullmatch("[a-z0-9_]{1,30}", slot):
            raise GraphRefused(f"{slot!r} is no name for a slot: 1 to 30 lower-case letters, digits and _.")
        self.name = name
        self.tables = [table if "." in table else f"public.{table}" for table in tables]
        self.slot = slot
        self.publication = publication or slot
        self.url = url
        self.snapshot = snapshot
        self.failover = failover

    @property
    def partitions(self) -> Sequence[str]:
        """One: a slot has one order."""
        return ["0"]

    def reads(self, partition: str) -> str:
        """What it reads, for people."""
        return f"changes by the slot {self.slot}"

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> ChangeReader:
        """Read from behind an offset; at the first start make the slot and copy the rows."""
        log = SourceLog(context, f"{self.name}:{partition}")
        assert context.lease is not None, "a log needs a lease"
        control = await self._connected()
        try:
            cursor = await self._prepared(control, log, after, context.lease.token)
            stream = await self._connected()
        except BaseException:
            await control.close()
            raise
        return ChangeReader(self, control, stream, log, cursor, after, bounded=context.bounded)

    async def _connected(self, **options: Any) -> Connection:
        try:
            connection: Connection = await psycopg.AsyncConnection.connect(
                self.url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=CONNECT_SECONDS,
                application_name="fencepost",
                **options,
            )
        except psycopg.OperationalError as error:
            raise FlowError(f"The database of {self.name} cannot be reached: {_said(error)}") from None
        if not options:
            await connection.execute(_SESSION)
        return connection

    async def _prepared(
        self, control: Connection, log: SourceLog, after: Offset | None, token: int
    ) -> _Cursor:
        server = await self._server(control)
        state = await log.state()
        cursor = None if state.cursor is None else _Cursor(**state.cursor)
        if cursor is not None and cursor.system != server.system:
            raise StartRefused(
                f"{self.name} has read another PostgreSQL cluster than this one, whose log has other places. "
                "Give the source another name (name=), under which it begins anew, or its old address."
            )
        if cursor is None or not cursor.streams:
            if after is not None:
                raise SourceTrimmed(
                    f"The flow has come to {after} of {self.name}, and its database knows of no slot: it was "
                    "put back to an older state. Restore a savepoint of that time, or begin anew."
                )
            return await self._begin(control, log, server, cursor, token)
        await self._drop_left(control, cursor.key, cursor.slot, token)
        await self._check_slot(control, cursor, after)
        at = order(after or "0-0")
        needed = max(cursor.first, at[1] // PLACES)
        if at[0] == 0 and state.last >= needed and (state.lowest is None or state.lowest > needed):
            raise SourceTrimmed(
                f"The first copy of {self.name} is removed as far as a later commit needed no more, and this "
                f"flow has come to {after}. Restore a later savepoint, or begin anew under another name "
                "(name=)."
            )
        return cursor

    async def _server(self, control: Connection) -> _Server:
        wal_level, version, system, may, login, is_standby = await _row(control, _SERVER)
        if wal_level != "logical":
            raise StartRefused(
                f"wal_level of the database of {self.name} is {wal_level}. Run: alter system set wal_level = "
                "logical; and restart that server."
            )
        if is_standby:
            raise StartRefused(f"The server of {self.name} is a standby. Give the address of the primary.")
        if not may:
            name = sql.Identifier(login).as_string(None)
            raise StartRefused(f"The login {login} may not read changes. Run: alter role {name} replication;")
        await self._check_publication(control, sql.Identifier(login))
        return _Server(version, system)

    async def _check_publication(self, control: Connection, login: sql.Identifier) -> None:
        name = sql.Identifier(self.publication)
        found = await _row(control, "select 1 from pg_publication where pubname = %s", (self.publication,))
        if found is None:
            await self._make_publication(control, name)
        wanted = [_quoted(table) for table in self.tables]
        missing = await _rows(control, _MISSING, (wanted, self.publication))
        if missing:
            lacks = [table for table in self.tables if (_quoted(table),) in missing]
            add = sql.SQL("alter publication {} add table {}").format(name, _tables(lacks)).as_string(None)
            raise StartRefused(
                f"The publication {self.publication} has not all tables of {self.name}. Run: {add}; Rows "
                "that are in a table by then are not copied."
            )
        published = await _rows(control, _TABLES, (self.publication,))
        unread = [f"{schema}.{table}" for schema, table, _, may_read in published if not may_read]
        if unread:
            grant = sql.SQL("grant select on {} to {}").format(_tables(unread), login).as_string(None)
            raise StartRefused(f"The login of {self.name} may not read all tables. Run as owner: {grant};")

    async def _make_publication(self, control: Connection, name: sql.Identifier) -> None:
        """Without a replica identity a published table refuses its own updates: that is no side effect of
        a flow."""
        wanted = [_quoted(table) for table in self.tables]
        for table, exists, lacks_identity in await _rows(control, _IDENTITIES, (wanted,)):
            if not exists:
                raise StartRefused(f"{self.name} is to read {table}, and there is no such table.")
            if lacks_identity:
                alter = f"alter table {table} replica identity full;"
                raise StartRefused(
                    f"{table} has no primary key: once it is published, PostgreSQL refuses its updates and "
                    f"deletes. Give it one, or run: {alter}"
                )
        make = sql.SQL("create publication {} for table {} with (publish_via_partition_root = true)").format(
            name, _tables(self.tables)
        )
        try:
            await control.execute(make)
        except psycopg.errors.InsufficientPrivilege:
            raise StartRefused(
                f"There is no publication {self.publication}, and this login may not make it. Run as the "
                f"owner of the tables: {make.as_string(None)};"
            ) from None

    async def _check_slot(self, control: Connection, cursor: _Cursor, after: Offset | None) -> None:
        """Raise SourceTrimmed unless the slot still has everything behind the offset."""
        found = await _row(control, _SLOT, (cursor.slot,))
        lost = "Restore a savepoint that lies behind the loss, or begin anew under another name (name=)."
        if found is None:
            raise SourceTrimmed(
                f"The slot {cursor.slot} of {self.name} is gone: it was dropped, or a failover went to a "
                f"standby that has no copy of it. {lost}"
            )
        _, confirmed, status = found
        if status == "lost":
            raise SourceTrimmed(
                f"The server has removed what the slot {cursor.slot} of {self.name} had to read: it fell "
                f"behind max_slot_wal_keep_size. {lost}"
            )
        at = order(after or "0-0")
        reached = max(cursor.advanced, at[0]) if at >= order(cursor.since) else at[0]
        if confirmed > reached:
            raise SourceTrimmed(
                f"The slot {cursor.slot} of {self.name} stands at {_lsn(confirmed)}, and this flow has come "
                f"to {_lsn(reached)}: somebody else has advanced it, or made it anew. {lost}"
            )
        now = (await _row(control, _NOW))[0]
        if reached > now + 1:
            raise SourceTrimmed(
                f"The server of {self.name} stands at {_lsn(now)}, and this flow has come to {_lsn(reached)}"
                ": the server has lost commits that the flow has processed. Restore a savepoint from before "
                "them, or begin anew under another name (name=)."
            )

    async def _begin(
        self, control: Connection, log: SourceLog, server: _Server, before: _Cursor | None, token: int
    ) -> _Cursor:
        """Make the slot and copy the rows. What an earlier try has left is removed: no record of it was read.

        The slot carries the token of the lease: a worker that was frozen in here, and goes on when another
        has the task, touches only its own.
        """
        while await log.trim(log.last):
            pass
        key = secrets.token_hex(4) if before is None else before.key
        slot = f"{self.slot}_{key}_{token}"
        cursor = _Cursor(slot, key, server.system, False, 0, "0-0", log.last + 1)
        await log.append([], cursor._asdict())
        await self._drop_left(control, key, None, token)
        begins = await self._copied(control, log, server, cursor) if self.snapshot else None
        if begins is None:
            begins = await self._made(control, server, cursor.slot)
        cursor = cursor._replace(streams=True, advanced=begins)
        await log.append([], cursor._asdict())
        _log.info("flow_slot_made", source=self.name, slot=cursor.slot, rows=log.last, begins=_lsn(begins))
        return cursor

    async def _drop_left(self, control: Connection, key: str, kept: str | None, token: int) -> None:
        """Drop the slots that tries of earlier leases have left."""
        pattern = f"^{self.slot}_{key}_[0-9]+$"
        for (name,) in await _rows(control, _LEFT, (pattern, kept or "", token)):
            with suppress(psycopg.errors.UndefinedObject, psycopg.errors.ObjectInUse):
                await control.execute("select pg_drop_replication_slot(%s)", (name,))

    async def _made(self, control: Connection, server: _Server, slot: str) -> int:
        failover = sql.SQL(", failover => {}").format(sql.Literal(self.failover))
        make = sql.SQL(
            "select (lsn - '0/0')::bigint from pg_create_logical_replication_slot({}, 'pgoutput'{})"
        )
        extra = failover if server.version >= 170000 else sql.SQL("")
        try:
            row = await _row(control, make.format(sql.Literal(slot), extra))
        except psycopg.errors.ConfigurationLimitExceeded as error:
            raise StartRefused(f"The slot of {self.name} cannot be made: {_said(error)}") from None
        return int(row[0])

    async def _copied(self, control: Connection, log: SourceLog, server: _Server, cursor: _Cursor) -> int:
        """Make the slot and copy the rows in its snapshot; returns where the slot begins.

        Only the replication protocol's command exports the snapshot, on a connection in that mode: it is an
        ordinary query otherwise. The snapshot is there as long as that connection does nothing else.
        """
        options = "SNAPSHOT 'export'" if server.version >= 150000 else "EXPORT_SNAPSHOT"
        if server.version >= 170000 and self.failover:
            options += ", FAILOVER"
        if server.version >= 150000:
            options = f"({options})"
        replication = await self._connected(replication="database")
        try:
            command: Any = f'CREATE_REPLICATION_SLOT "{cursor.slot}" LOGICAL pgoutput {options}'
            try:
                _, point, snapshot, _ = await _row(replication, command)
            except psycopg.errors.ConfigurationLimitExceeded as error:
                raise StartRefused(f"The slot of {self.name} cannot be made: {_said(error)}") from None
            async with self._in_snapshot(str(snapshot)) as reader:
                for schema, table, is_partitioned, *_ in await _rows(control, _TABLES, (self.publication,)):
                    await self._copy_table(reader, log, cursor, schema, table, only=not is_partitioned)
        finally:
            await replication.close()
        high, low = str(point).split("/")
        return (int(high, 16) << 32) + int(low, 16)

    @asynccontextmanager
    async def _in_snapshot(self, snapshot: str) -> AsyncGenerator[Connection]:
        connection = await self._connected()
        try:
            await connection.execute("begin isolation level repeatable read read only")
            await connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
            yield connection
        finally:
            await connection.close()

    async def _copy_table(
        self, reader: Connection, log: SourceLog, cursor: _Cursor, schema: str, table: str, *, only: bool
    ) -> None:
        columns, where = await self._published(reader, schema, table)
        query = sql.SQL("declare fencepost_copy no scroll cursor for select {} from {}{}{}").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL("only " if only else ""),
            sql.Identifier(schema, table),
            sql.SQL(" where " + where if where else ""),  # pyright: ignore[reportArgumentType]
        )
        await reader.execute(query)
        while True:
            result = (await _sent(reader, f"fetch {FETCH_ROWS} from fencepost_copy")).pgresult
            if result is None or result.ntuples == 0:
                break
            # A list, and no mapping: jsonb keeps no order of keys.
            types = [[name, result.ftype(place)] for place, name in enumerate(columns)]
            rows = [
                [_text(result.get_value(row, place)) for place in range(len(columns))]
                for row in range(result.ntuples)
            ]
            entries = [
                {"table": f"{schema}.{table}", "columns": types, "rows": rows[first : first + COPY_ROWS]}
                for first in range(0, len(rows), COPY_ROWS)
            ]
            await log.append([(None, entry) for entry in entries], cursor._asdict())
        await reader.execute("close fencepost_copy")

    async def _published(self, reader: Connection, schema: str, table: str) -> tuple[list[str], str]:
        """The columns and the row filter of a table in the publication; a server before 15 has neither."""
        generated = "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not "
        every = f"{generated} attisdropped and attgenerated = '' order by attnum"
        name = sql.Identifier(schema, table).as_string(None)
        if reader.info.server_version < 150000:
            return [row[0] for row in await _rows(reader, every, (name,))], ""
        found = await _row(
            reader,
            "select attnames::text[], rowfilter from pg_publication_tables"
            " where pubname = %s and schemaname = %s and tablename = %s",
            (self.publication, schema, table),
        )
        return list(found[0]), found[1] or ""


class ChangeReader:
    """Reads the first copy from the log, and then what the slot has."""

    def __init__(
        self,
        source: PostgresChanges,
        control: Connection,
        stream: Connection,
        log: SourceLog,
        cursor: _Cursor,
        after: Offset | None,
        *,
        bounded: bool,
    ) -> None:
        self._source = source
        self._control = control
        self._stream = stream
        self._log = log
        self._cursor = cursor
        self._bounded = bounded
        self._last: str = "0-0" if after is None else str(after)
        self._load = _loader(control)
        self._copying = order(self._last)[0] == 0
        self._keeps_copy = log.last > 0
        """Whether the log may still have rows of the first copy."""
        self._ready: deque[Placed] = deque()
        self._decoder: Decoder | None = None
        """Of the peek that is open."""
        self._transactions: deque[tuple[int, int]] = deque()
        """Whole transactions that were read and the slot still has: where each committed, its messages."""
        self._peeked_to = 0
        """How far an empty peek has looked."""
        self._looks_to = 0
        """How far the peek that is open looks."""
        self._wanted = 0
        """How many messages it may return before it ends with a transaction."""
        self._returned = 0
        self._idle_at = time.monotonic()
        self._advanced = 0

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next changes; an empty chunk when none arrived in time."""
        if self._copying:
            placed = await self._read_copy(limit)
            if placed:
                return self._chunk(placed)
            self._copying = False
        deadline = time.monotonic() + wait_seconds
        while True:
            while not self._ready and await self._fetch():
                pass
            if self._ready:
                count = min(limit, len(self._ready))
                return self._chunk([self._ready.popleft() for _ in range(count)])
            if self._bounded and self._peeked_to:
                return Chunk((), (), ended=True)
            left = deadline - time.monotonic()
            if left <= 0:
                return Chunk((), ())
            await asyncio.sleep(min(left, POLL_SECONDS))

    async def acknowledge(self, offset: Offset) -> None:
        """Advance the slot behind what is committed, and remove what is committed of the first copy."""
        lsn, place = order(offset)
        if lsn == 0:
            await self._log.trim(place // PLACES - 1)
            return
        while self._keeps_copy:
            self._keeps_copy = bool(await self._log.trim(self._log.last))
        await self._advance(lsn)

    async def lag(self, count: int) -> int | None:
        """Not known: a log has bytes, and not records."""
        return None

    async def close(self) -> None:
        """Close both connections."""
        await self._stream.close()
        await self._control.close()

    def _chunk(self, placed: Sequence[Placed]) -> Chunk:
        self._last = placed[-1].offset
        return Chunk([each.change for each in placed], [each.offset for each in placed])

    async def _read_copy(self, limit: int) -> list[Placed]:
        """Rows of the first copy: an offset has the number of the entry, and of the row in it."""
        number, row = divmod(order(self._last)[1], PLACES)
        placed: list[Placed] = []
        entries = await self._log.read(max(number - 1, 0), 1 + limit // COPY_ROWS)
        for entry in entries:
            done = row if entry.number == number else 0
            placed += _copied(entry, done, self._load)
        if not placed and entries:
            # The last entry that was read is done, and others may follow it.
            for entry in await self._log.read(entries[-1].number, 1):
                placed += _copied(entry, 0, self._load)
        return placed[:limit]

    async def _fetch(self) -> bool:
        """Get more messages of the slot; False when it has no more right now."""
        if self._decoder is None and not await self._peek():
            return False
        assert self._decoder is not None
        rows = await _rows(self._stream, f"fetch {FETCH_ROWS} from fencepost_peek")
        after = order(self._last)
        for (message,) in rows:
            self._ready += [each for each in self._decoder.feed(message) if order(each.offset) > after]
            if self._decoder.committed is not None:
                lsn, count = self._decoder.committed
                self._decoder.committed = None
                if not self._transactions or lsn > self._transactions[-1][0]:
                    self._transactions.append((lsn, count))
        self._returned += len(rows)
        if rows:
            return True
        await self._stream.execute("commit")
        self._decoder = None
        if self._returned >= self._wanted:
            return True  # There may be more behind them, also if all of these were read before.
        if not self._ready:
            await self._found_nothing()
        return bool(self._ready)

    async def _peek(self) -> bool:
        """Begin to read what the slot has; False if nothing was written since the last look."""
        now = int((await _row(self._control, _NOW))[0])
        if now <= self._peeked_to:
            await self._found_nothing()
            return False
        self._looks_to = now
        self._wanted = PEEK_ROWS + sum(count for _, count in self._transactions)
        self._returned = 0
        await self._stream.execute("begin")
        try:
            # The first FETCH runs the function to its end: the slot is free again while the rest is read.
            declare = sql.SQL("declare fencepost_peek no scroll cursor for " + _PEEK)
            values = (self._cursor.slot, _lsn(now), self._wanted, self._source.publication)
            await psycopg.AsyncClientCursor(self._stream).execute(declare, values)
        except BaseException:
            await self._stream.execute("rollback")
            raise
        self._decoder = Decoder(self._load)
        return True

    async def _found_nothing(self) -> None:
        """Nothing behind what was read: from time to time the slot is moved all the same, so that the server
        may remove its log. That it was moved is recorded before: otherwise it would look like a loss."""
        self._peeked_to = max(self._peeked_to, self._looks_to)
        is_due = time.monotonic() - self._idle_at >= IDLE_SECONDS
        if not is_due or self._transactions or self._peeked_to <= self._advanced:
            return
        self._idle_at = time.monotonic()
        self._cursor = self._cursor._replace(advanced=self._peeked_to, since=self._last)
        await self._log.append([], self._cursor._asdict())
        await self._advance(self._peeked_to)

    async def _advance(self, lsn: int) -> None:
        while self._transactions and self._transactions[0][0] < lsn:
            self._transactions.popleft()
        if lsn <= self._advanced:
            return
        try:
            await self._control.execute(_ADVANCE, (self._cursor.slot, _lsn(lsn)))
        except psycopg.errors.ObjectInUse:
            return  # A peek of a zombie, or of our own: the next commit advances it.
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            # It stands further already: a successor of this worker has advanced it.
            _log.info("flow_slot_not_advanced", source=self._source.name, error=_said(error))
        self._advanced = lsn


def _copied(entry: Entry, done: int, load: Load) -> list[Placed]:
    content = entry.content
    return [
        Placed(
            f"0-{entry.number * PLACES + place}", copied(content["table"], content["columns"], texts, load)
        )
        for place, texts in enumerate(content["rows"], start=1)
        if place > done
    ]


def _loader(connection: Connection) -> Load:
    """Makes values as psycopg does. What Python has no value for, such as an infinite date, stays a text."""
    transformer = Transformer(connection)

    def load(kind: int, text: bytes) -> Any:
        try:
            return transformer.get_loader(kind, pq.Format.TEXT).load(text)
        except (psycopg.DataError, ValueError):
            return text.decode()

    return load


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _quoted(name: str) -> str:
    return sql.Identifier(*name.split(".", 1)).as_string(None)


def _tables(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(*name.split(".", 1)) for name in names)


def _lsn(place: int) -> str:
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


def _said(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


async def _sent(
    connection: Connection, query: Any, arguments: Sequence[Any] | None = None
) -> psycopg.AsyncCursor[Any]:
    return await connection.execute(query, arguments)


async def _rows(connection: Connection, query: Any, arguments: Sequence[Any] | None = None) -> list[Any]:
    return await (await _sent(connection, query, arguments)).fetchall()


async def _row(connection: Connection, query: Any, arguments: Sequence[Any] | None = None) -> Any:
    return await (await _sent(connection, query, arguments)).fetchone()
