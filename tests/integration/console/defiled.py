"""Rows as a hostile neighbour leaves them: its text behind each text in the tables of the services."""

from __future__ import annotations

import psycopg
from psycopg import sql

from fencepost.embedded import Database

_COLUMNS = """
    select c.table_name, c.column_name, c.data_type from information_schema.columns c
    join information_schema.tables t using (table_schema, table_name)
    where c.table_schema = 'fencepost' and t.table_type = 'BASE TABLE' and c.data_type in ('text', 'jsonb')
      and c.is_generated = 'NEVER'
      and c.table_name ~
        '^(orders|nonce|player|console|account|flow|schedule|job|checkpoint|refusal|event|outbox|lease|webhook)'
      and c.table_name not in ('account_session', 'account_ticket', 'account_service_role')
      -- Foreign keys keep them to the roles of the services; they are off here.
      and (c.table_name, c.column_name) not in (('account_role', 'role'), ('account_token', 'role'))
      -- By these things are found; they were made with the text in them, or have a form of their own.
      and c.column_name not in ('resource', 'flow', 'queue', 'subject', 'noun', 'channel', 'name', 'reason',
        'service')
    order by 1, 2"""
# A JSON document with the text behind each of its texts, as deep as they stand.
_DEFILE_JSON = """
    create function pg_temp.defiled(j jsonb, evil text) returns jsonb language sql as $$
      select case jsonb_typeof(j)
        when 'string' then to_jsonb((j #>> '{}') || evil)
        when 'array' then (
          select coalesce(jsonb_agg(pg_temp.defiled(e, evil)), '[]') from jsonb_array_elements(j) e)
        when 'object' then (
          select coalesce(jsonb_object_agg(k, pg_temp.defiled(v, evil)), '{}') from jsonb_each(j) o (k, v))
        else j end $$"""


def defile(database: Database, evil: str) -> list[str]:
    """Answers the columns that took it: where a constraint says what may stand, nothing else ever does."""
    taken: list[str] = []
    with database.connect_admin() as connection:
        # Names are changed wherever they stand, so that they still refer to each other.
        connection.execute("set session_replication_role = replica")
        connection.execute(_DEFILE_JSON)
        for table, column, kind in connection.execute(_COLUMNS).fetchall():
            value = "{c} || {evil}" if kind == "text" else "pg_temp.defiled({c}, {evil})"
            statement = sql.SQL("update fencepost.{t} set {c} = " + value + " where {c} is not null")
            parts = {"t": sql.Identifier(table), "c": sql.Identifier(column), "evil": sql.Literal(evil)}
            try:
                with connection.transaction():
                    changed = connection.execute(statement.format(**parts)).rowcount
            except psycopg.errors.IntegrityError:
                continue
            if changed:
                taken.append(f"{table}.{column}")
    return taken
