"""Whether a database is whole: every table can be read, nothing contradicts itself, and no id comes again.

For backups: a restored copy is verified, and so the backup. It reads everything and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

_VERIFY = (Path(__file__).parent / "verify.sql").read_bytes()
_TABLES: LiteralString = """
    select c.relname::text from pg_class c
    where c.relnamespace = 'fencepost'::regnamespace and c.relkind = 'r' order by c.relname
"""
_IDENTITIES: LiteralString = """
    select c.relname::text, a.attname::text, pg_sequence_last_value(s.seqrelid)
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attidentity <> ''
    join pg_sequence s on s.seqrelid = pg_get_serial_sequence(c.oid::regclass::text, a.attname)::regclass
    where c.relnamespace = 'fencepost'::regnamespace and c.relkind = 'r' order by c.relname
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified: how many contradict it, and one of them."""

    what: str
    broken: int
    example: str | None = None

    @property
    def is_met(self) -> bool:
        return self.broken == 0


def verify(connection: psycopg.Connection[Any]) -> Iterator[Check]:
    """Each check as it is made. The login reads every table: the one that migrates."""
    tables = [name for (name,) in connection.execute(_TABLES)]
    unreadable = _unreadable(connection, tables)
    yield unreadable
    if not unreadable.is_met:
        # Whatever else is asked would meet the damage.
        return
    for what, broken, example in connection.execute(_VERIFY).fetchall():
        yield Check(what, broken, example)
    yield _repeated_ids(connection)


def _unreadable(connection: psycopg.Connection[Any], tables: list[str]) -> Check:
    """Every row of every table, with what is stored outside of it: a damaged page is an error."""
    failed: list[str] = []
    for name in tables:
        statement = sql.SQL("copy (select * from fencepost.{}) to stdout").format(sql.Identifier(name))
        try:
            with connection.cursor() as cursor, cursor.copy(statement) as rows:
                for _ in rows:
                    pass
        except (psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted, psycopg.errors.IoError) as error:
            failed.append(f"{name}: {error.diag.message_primary}")
        except psycopg.errors.UndefinedFile as error:
            failed.append(f"{name}: {error.diag.message_primary}")
    return Check("tables that cannot be read", len(failed), failed[0] if failed else None)


def _repeated_ids(connection: psycopg.Connection[Any]) -> Check:
    """Sequences behind their tables: logical replication and some dumps leave them so."""
    behind: list[str] = []
    for table, column, last in connection.execute(_IDENTITIES).fetchall():
        statement = sql.SQL("select max({}) from fencepost.{}").format(
            sql.Identifier(column), sql.Identifier(table)
        )
        [(most,)] = connection.execute(statement).fetchall()
        if most is not None and most > (last or 0):
            behind.append(f"{table}.{column} is at {last}, and {most} is used")
    return Check("ids that would be issued again", len(behind), behind[0] if behind else None)
