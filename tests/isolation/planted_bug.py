"""A bug that is planted into a database's copy of the kernel, and the scenario that must notice it.

A bug is an edit of a function's text as the database has it. An edit that does not apply exactly once is an
error, so a bug cannot quietly stop being planted when the kernel changes.
"""

from dataclasses import dataclass
from typing import LiteralString

from fencepost.embedded import Database

DEFINITIONS: LiteralString = (
    "select pg_get_functiondef(p.oid) from pg_proc p"
    " where p.pronamespace = 'fencepost'::regnamespace and p.proname = %s"
)


@dataclass(frozen=True)
class Edit:
    """In this function, this text becomes that."""

    function: str
    old: str
    new: str


@dataclass(frozen=True)
class PlantedBug:
    title: str
    noticed_by: str
    edits: tuple[Edit, ...]
    statements: tuple[LiteralString, ...] = ()

    def plant(self, database: Database) -> None:
        with database.connect_admin() as connection:
            for statement in self.statements:
                connection.execute(statement)
            for edit in self.edits:
                # One name may have several signatures; the text stands in one of them.
                rows = connection.execute(DEFINITIONS, (edit.function,)).fetchall()
                texts = [str(text) for (text,) in rows if edit.old in str(text)]
                times = sum(text.count(edit.old) for text in texts)
                assert times == 1, f"{edit.function} has {edit.old!r} {times} times"
                connection.execute(texts[0].replace(edit.old, edit.new).encode())
