"""Checks of a table that a sink writes, before the first record: what must be true, and the statement that
fixes it.

Each check is one statement over the catalog; its result is evaluated without I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from fencepost.flows._errors import StartRefused

Connection = psycopg.AsyncConnection[Any]
APPENDS = ("INSERT",)
REPLACES = ("SELECT", "INSERT", "UPDATE")
_PLACE = """
    select current_user, current_database(), has_database_privilege(current_database(), 'TEMP'),
      n.oid is not null, coalesce(has_schema_privilege(n.oid, 'USAGE'), false), c.oid, c.relkind = 'v',
      exists (select 1 from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal and t.tgtype & 7 = 7)
    from (select 1) one left join pg_namespace n on n.nspname = %s
      left join pg_class c on c.relnamespace = n.oid and c.relname = %s
        and c.relkind in ('r', 'p', 'f', 'v')"""
_COLUMNS = """
    select a.attname, a.attnotnull and not a.atthasdef and a.attidentity = '', a.attgenerated <> '',
      has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
      has_column_privilege(a.attrelid, a.attnum, 'INSERT'),
      has_column_privilege(a.attrelid, a.attnum, 'UPDATE')
    from pg_attribute a where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum"""
# What ON CONFLICT accepts as a key: not partial, columns only. With a deferrable constraint it fails.
_KEYS = """
    select array_agg(a.attname::text),
      (select c.conname from pg_constraint c where c.conindid = i.indexrelid and not i.indimmediate limit 1)
    from pg_index i
      cross join lateral unnest(i.indkey::smallint[]) with ordinality k (attnum, place)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    where i.indrelid = %s and i.indisunique and i.indisvalid
      and i.indpred is null and i.indexprs is null and k.place <= i.indnkeyatts
    group by i.indexrelid, i.indimmediate"""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    required: bool
    """Whether a row without it is rejected."""
    generated: bool
    rights: frozenset[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the catalog says of a table, for the current login."""

    login: str
    database: str
    may_stage: bool
    has_schema: bool
    may_use_schema: bool
    exists: bool
    is_view: bool
    """Its keys are those of the underlying table, which is not checked."""
    fills_rows: bool
    """Whether a trigger may fill columns that the sink leaves out."""
    columns: Sequence[Column] = ()
    keys: Sequence[tuple[frozenset[str], str | None]] = ()
    """Columns that are unique together, and the name of the constraint if it is deferrable."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a sink needs from a table. With `key` it replaces rows; without, it appends."""

    schema: str
    name: str
    columns: Sequence[str]
    key: Sequence[str] = ()

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def everything(self) -> Sequence[str]:
        return [*self.key, *self.columns]

    async def examine(self, connection: Connection, sink: str) -> None:
        """Raise StartRefused if the sink cannot write a row."""
        user_error = lacking(self, await self._seen(connection))
        if user_error is not None:
            raise StartRefused(f"{sink} cannot write {self.schema}.{self.name}: {user_error}")

    async def _seen(self, connection: Connection) -> Seen:
        found: Any = await (await connection.execute(_PLACE, (self.schema, self.name))).fetchone()
        login, database, may_stage, has_schema, may_use_schema, oid, is_view, fills_rows = found
        if oid is None:
            return Seen(login, database, may_stage, has_schema, may_use_schema, False, False, fills_rows)
        columns = [
            Column(name, required, generated, _rights(*rights))
            for name, required, generated, *rights in await _rows(connection, _COLUMNS, oid)
        ]
        keys = [(frozenset(names), deferrable) for names, deferrable in await _rows(connection, _KEYS, oid)]
        rights = (login, database, may_stage, has_schema, may_use_schema)
        return Seen(*rights, True, is_view, fills_rows, columns, keys)


def lacking(table: Table, seen: Seen) -> str | None:
    """What prevents a login from writing rows, with the statement that fixes it; None when nothing does."""
    login, target = sql.Identifier(seen.login), table.identifier
    schema = sql.Identifier(table.schema)
    if not seen.has_schema:
        return f"there is no schema {table.schema}. {_run('create schema {}', schema)}"
    if not seen.may_use_schema:
        grant = _run("grant usage on schema {} to {}", schema, login)
        return f"the login {seen.login} may not use the schema. {grant}"
    if not seen.exists:
        return f"there is no such table. {_creation(table)} Choose the types."
    missing = [name for name in table.everything if name not in {each.name for each in seen.columns}]
    if missing:
        has = ", ".join(each.name for each in seen.columns)
        add = sql.SQL(", ").join(
            sql.SQL("add column {} text").format(sql.Identifier(name)) for name in missing
        )
        return (
            f"it has no column {', '.join(missing)}; it has {has}. Name columns that it has, or: "
            f"{_run('alter table {} {}', target, add)} Choose the types."
        )
    return _unwritable(table, seen) or _unreplaceable(table, seen) or _forbidden(table, seen)


def _unwritable(table: Table, seen: Seen) -> str | None:
    """Columns that the sink may not omit, or may not write."""
    given = set(table.everything)
    for column in seen.columns:
        name = sql.Identifier(column.name)
        if column.name in given and column.generated:
            return (
                f"the database computes its column {column.name} itself. Leave it out of the sink's columns."
            )
        if column.name not in given and column.required and not seen.fills_rows:
            drop = _run("alter table {} alter column {} drop not null", table.identifier, name)
            needs = f"every row needs {column.name}, which the sink does not write"
            return f"{needs}. Add it to its columns, or: {drop}"
    return None


def _unreplaceable(table: Table, seen: Seen) -> str | None:
    fitting = [deferrable for columns, deferrable in seen.keys if columns == frozenset(table.key)]
    deferred = next((name for name in fitting if name is not None), None)
    if not table.key or seen.is_view or (fitting and deferred is None):
        return None
    if deferred is not None:
        again = _run(
            "alter table {} drop constraint {}, add unique ({})",
            table.identifier,
            sql.Identifier(deferred),
            _names(table.key),
        )
        return f"its constraint {deferred} is deferrable, and rows cannot be replaced by such a key. {again}"
    add = _run("alter table {} add unique ({})", table.identifier, _names(table.key))
    return f"nothing makes ({', '.join(table.key)}) unique, so no row can be replaced by it. {add}"


def _forbidden(table: Table, seen: Seen) -> str | None:
    needed = REPLACES if table.key else APPENDS
    given = set(table.everything)
    lacks = [
        right
        for right in needed
        if any(right not in column.rights for column in seen.columns if column.name in given)
    ]
    login = sql.Identifier(seen.login)
    if lacks:
        rights = sql.SQL(", ").join(_RIGHTS[right] for right in lacks)
        grant = _run("grant {} on {} to {}", rights, table.identifier, login)
        return f"the login {seen.login} lacks {', '.join(lacks)}. {grant}"
    if table.key and not seen.may_stage:
        grant = _run("grant temporary on database {} to {}", sql.Identifier(seen.database), login)
        return f"the login {seen.login} may not make temporary tables, from which rows are merged. {grant}"
    return None


def _creation(table: Table) -> str:
    columns = [sql.SQL("{} text").format(sql.Identifier(name)) for name in table.everything]
    if table.key:
        columns.append(sql.SQL("primary key ({})").format(_names(table.key)))
    return _run("create table {} ({})", table.identifier, sql.SQL(", ").join(columns))


def _run(statement: LiteralString, *parts: sql.Composable) -> str:
    return f"Run: {sql.SQL(statement).format(*parts).as_string(None)};"


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column) for column in columns)


def _rights(*has: bool) -> frozenset[str]:
    return frozenset(right for right, given in zip(REPLACES, has, strict=True) if given)


async def _rows(connection: Connection, query: Any, oid: int) -> list[Any]:
    return await (await connection.execute(query, (oid,))).fetchall()


_RIGHTS = {"SELECT": sql.SQL("select"), "INSERT": sql.SQL("insert"), "UPDATE": sql.SQL("update")}
