"""Databases that serve one test after the other, because a copy of the template costs more than many a test.

After a test, a database is put back into the state of the template: the rows that were written are removed,
those of the migrations are stored again, and the sequences begin anew. PostgreSQL's own counters say which
tables were written, also by a transaction that was rolled back. A database of which anything else has changed
(a function, a grant, a table, the statistics of a planner) is dropped, and the next test gets a new copy.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, LiteralString, NamedTuple, TypeVar

import psycopg
from psycopg import sql

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Clock

# By files, as `Database.create` does.
CREATION = sql.SQL("create database {} template {} strategy file_copy")
REMOVAL = sql.SQL("drop database if exists {} with (force)")
WAIT_SECONDS = 10
T = TypeVar("T")

# Only a backend that has ended has told what it wrote.
_END: LiteralString = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and pid <> all(%s)
      and backend_type <> 'autovacuum worker'
"""
# How often each table was written; and how often VACUUM and ANALYZE have noted something of it, which
# changes plans. Those of the catalogs, below 16384, change nothing that a test sees.
_COUNTS: LiteralString = """
    select oid::int8, written, maintained from (
      select oid,
        pg_stat_get_tuples_inserted(oid) + pg_stat_get_tuples_updated(oid) + pg_stat_get_tuples_deleted(oid),
        case when oid >= 16384 then pg_stat_get_vacuum_count(oid) + pg_stat_get_autovacuum_count(oid)
          + pg_stat_get_analyze_count(oid) + pg_stat_get_autoanalyze_count(oid) else 0 end
      from pg_class where relkind = 'r' and not relisshared
    ) counts (oid, written, maintained)
    where written + maintained > 0
"""
# What belongs to the database and stands in catalogs of the whole server, or in none.
_BESIDE: LiteralString = """
    select
      (select array_agg((setrole, setconfig)::text order by setrole) from pg_db_role_setting
       where setdatabase = d.oid),
      d.datacl::text, d.datconnlimit, d.datallowconn, d.datdba,
      (select count(*) from pg_prepared_xact() where dbid = d.oid),
      (select count(*) from pg_get_replication_slots() where datoid = d.oid),
      (select count(*) from pg_subscription where subdbid = d.oid)
    from pg_database d where datname = current_database()
"""
_REWIND: LiteralString = """
    select setval(seqrelid, seqstart, false) from pg_sequence
    where pg_sequence_last_value(seqrelid) is not null
"""
_REFERENCES: LiteralString = "select confrelid::int8, conrelid::int8 from pg_constraint where contype = 'f'"
_TABLES: LiteralString = """
    select oid::int8, relnamespace::regnamespace::text, relname from pg_class
    where relkind = 'r' and oid >= 16384
"""


def furnish(database: Database, tables: LiteralString) -> None:
    """Make tables of a user, unless the database began with them (the fixture `user_tables`)."""
    reused = _REUSED.get(database.name)
    if reused is None or reused.kind.user_tables != tables:
        with database.connect_admin() as admin:
            admin.execute(tables)


def release(database: Database) -> None:
    """Close the session that waits to put it back: PostgreSQL copies a database only while it is not used."""
    if database.name in _REUSED:
        _REUSED[database.name].close()


# A truncation of our own belongs to the state from which the next test begins; and it counts its own scans.
_RESET: LiteralString = "select pg_stat_reset()"
_FLUSH: LiteralString = "select pg_stat_force_next_flush()"


@dataclass
class _Stored:
    """What the tables of a fresh copy hold, and which of them reference which."""

    rows: dict[int, bytes] = field(default_factory=dict[int, bytes])
    names: dict[int, sql.Identifier] = field(default_factory=dict[int, sql.Identifier])
    referencing: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> _Stored:
        stored = cls()
        for oid, schema, name in connection.execute(_TABLES).fetchall():
            stored.names[oid] = sql.Identifier(schema, name)
            if rows := stored.read(connection, oid):
                stored.rows[oid] = rows
        for referenced, referencing in connection.execute(_REFERENCES).fetchall():
            stored.referencing[referenced].add(referencing)
        return stored

    def read(self, connection: psycopg.Connection[Any], oid: int) -> bytes:
        with connection.cursor().copy(sql.SQL("copy {} to stdout").format(self.names[oid])) as copy:
            return b"".join(bytes(part) for part in copy)

    def with_referencing(self, tables: Iterable[int]) -> set[int]:
        """A table is truncated together with those that reference it."""
        found: set[int] = set()
        left = list(tables)
        while left:
            if (table := left.pop()) not in found:
                found.add(table)
                left += self.referencing[table]
        return found

    def restore(self, connection: psycopg.Connection[Any], written: set[int]) -> None:
        tables = self.with_referencing(written)
        if not tables:
            return
        with connection.transaction():
            # Rows that are stored again fire no trigger.
            connection.execute("set local session_replication_role = replica")
            names = [self.names[table] for table in tables]
            connection.execute(sql.SQL("truncate {}").format(sql.SQL(", ").join(names)))
            for table in tables & self.rows.keys():
                statement = sql.SQL("copy {} from stdin").format(self.names[table])
                with connection.cursor().copy(statement) as copy:
                    copy.write(self.rows[table])


class Kind(NamedTuple):
    """What a database begins with beside the product."""

    with_clock: bool = False
    with_sessions: bool = False
    """A test that does not ask for sessions finds none of another test."""
    user_tables: LiteralString = ""


class ReusedDatabase:
    """One of them, and the connection that puts it back; it stays idle during a test."""

    def __init__(self, database: Database, stored: _Stored, kind: Kind) -> None:
        self.database = database
        self.kind = kind
        self.clock = KeptClock(self) if kind.with_clock else None
        self._stored = stored
        self._connection = self._connect()
        self._sessions: dict[str, psycopg.Connection[Any]] = {}
        self._beside = self._look_beside()
        self._counts = self._count()

    def connection(self) -> psycopg.Connection[Any]:
        """The superuser's connection, made again after a test that has ended all backends."""
        if self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def session(self, url: str, connect: Callable[[str], psycopg.Connection[T]]) -> psycopg.Connection[T]:
        """A session that the next test gets, too, as it began: its backend has read the catalogs already."""
        if url not in self._sessions:
            self._sessions[url] = connect(url)
        return self._sessions[url]

    def restore(self) -> bool:
        """Put it back; False if that cannot be done."""
        self._sessions = {url: kept for url, kept in self._sessions.items() if _is_reset(kept)}
        try:
            self._await_end_of_sessions()
        except TimeoutError:
            # A process that the test has left comes again and again: a removal by force keeps it out.
            return False
        except psycopg.OperationalError:
            if self.database.exists():
                raise
            return False  # The test has dropped it.
        # What this session wrote itself: the clock that the test has moved.
        self._connection.execute(_FLUSH)
        counts = self._count()
        changed = {table for table, count in counts.items() if count != self._counts.get(table)}
        if not changed <= self._stored.names.keys() or self._look_beside() != self._beside:
            return False
        if any(counts[table].maintained != self._maintained(table) for table in changed):
            return False
        self._stored.restore(self._connection, changed)
        self._connection.execute(_REWIND)
        self._connection.execute(_FLUSH)
        self._connection.execute(_RESET)
        self._counts = self._count()
        return True

    def close(self) -> None:
        """End the session that puts it back, and those of the tests."""
        for session in (self._connection, *self._sessions.values()):
            session.close()
        self._sessions.clear()

    def _connect(self) -> psycopg.Connection[Any]:
        connection = self.database.connect_admin()
        connection.prepare_threshold = 1
        return connection

    def _await_end_of_sessions(self) -> None:
        kept = [session.info.backend_pid for session in self._sessions.values()]

        def have_ended() -> bool:
            connection = self.connection()
            try:
                return not connection.execute(_END, (kept,)).fetchall()
            except psycopg.OperationalError:
                # The test has ended this one, too.
                connection.close()
                return False

        Deadline(WAIT_SECONDS, "the sessions of the test have ended").wait(have_ended)

    def _look_beside(self) -> tuple[Any, ...] | None:
        return self._connection.execute(_BESIDE).fetchone()

    def _count(self) -> dict[int, _Count]:
        rows = self._connection.execute(_COUNTS).fetchall()
        return {oid: _Count(written, maintained) for oid, written, maintained in rows}

    def _maintained(self, table: int) -> int:
        return self._counts[table].maintained if table in self._counts else 0


def _is_reset(session: psycopg.Connection[Any]) -> bool:
    """Whether a session is as it began, and has told what it wrote. It is closed if it cannot be."""
    try:
        session.execute("discard all")
        session.execute(_FLUSH)
    except psycopg.Error:
        session.close()
        return False
    return True


class _Count(NamedTuple):
    """How often a table was written, and vacuumed or analyzed."""

    written: int
    maintained: int


# Those that stand, by name.
_REUSED: dict[str, ReusedDatabase] = {}


class KeptClock(Clock):
    """The clock of such a database, set on the connection that stands."""

    def __init__(self, reused: ReusedDatabase) -> None:
        super().__init__(reused.database.admin_url)
        self._reused = reused

    def _connect(self) -> AbstractContextManager[psycopg.Connection[tuple[Any, ...]]]:
        return nullcontext(self._reused.connection())


class ReusedDatabases:
    """The databases of one run: those that are free, by what they begin with."""

    def __init__(self, template: Database, registrar: psycopg.Connection[Any]) -> None:
        self._template = template
        self._registrar = registrar
        self._free: defaultdict[Kind, list[ReusedDatabase]] = defaultdict(list)
        self._templates: dict[Kind, tuple[Database, _Stored]] = {}

    def take(self, kind: Kind) -> ReusedDatabase:
        """One in the state of the template."""
        return self._free[kind].pop() if self._free[kind] else self.fresh(kind)

    def fresh(self, kind: Kind) -> ReusedDatabase:
        """One that has served no test."""
        if kind not in self._templates:
            self._templates[kind] = self._make_template(kind)
        template, stored = self._templates[kind]
        reused = ReusedDatabase(self.copy(template), stored, kind)
        _REUSED[reused.database.name] = reused
        return reused

    def give_back(self, reused: ReusedDatabase) -> None:
        """Put it back, or drop it."""
        if reused.restore():
            self._free[reused.kind].append(reused)
        else:
            self.discard(reused)

    def copy(self, template: Database | None = None) -> Database:
        """A copy that is not put back."""
        name = f"t_{uuid.uuid4().hex}"
        source = (template or self._template).name
        self._registrar.execute(CREATION.format(sql.Identifier(name), sql.Identifier(source)))
        return Database(self._template.server, name)

    def drop(self, database: Database) -> None:
        self._registrar.execute(REMOVAL.format(sql.Identifier(database.name)))

    def close(self) -> None:
        for reused in (reused for free in self._free.values() for reused in free):
            self.discard(reused)
        for template, _ in self._templates.values():
            if template is not self._template:
                self.drop(template)

    def discard(self, reused: ReusedDatabase) -> None:
        """Drop one that serves no other test."""
        del _REUSED[reused.database.name]
        reused.close()
        self.drop(reused.database)

    def _make_template(self, kind: Kind) -> tuple[Database, _Stored]:
        template = self.copy() if kind.with_clock or kind.user_tables else self._template
        if kind.with_clock:
            Clock(template.admin_url).install()
        if kind.user_tables:
            furnish(template, kind.user_tables)
        # All copies have the same tables under the same OIDs.
        with template.connect_admin() as connection:
            return template, _Stored.of(connection)
