"""A bug that is planted into a database's copy of the kernel, and the scenario that must notice it.

A bug is an edit of a function's text as the database has it. An edit that does not apply exactly once is an
error, so a bug cannot quietly stop being planted when the kernel changes.
"""

from dataclasses import dataclass
from typing import LiteralString

from fencepost.embedded import Database


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
                query = "select pg_get_functiondef(%s::regproc)"
                row = connection.execute(query, (f"fencepost.{edit.function}",)).fetchone()
                assert row is not None
                text = str(row[0])
                assert text.count(edit.old) == 1, (
                    f"{edit.function} has {edit.old!r} {text.count(edit.old)} times"
                )
                connection.execute(text.replace(edit.old, edit.new).encode())
