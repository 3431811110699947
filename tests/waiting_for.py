"""How a test looks at its database while it waits for something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg

from fencepost.embedded import Database


class Waiter:
    """The superuser on one connection, made at the first look and again after the server has gone.

    A test that waits looks many times, and to connect anew costs the server more than to answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def rows(self, query: LiteralString, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        connection = self._connected()
        try:
            return connection.execute(query, values).fetchall()
        except psycopg.OperationalError:
            if not connection.closed:
                raise
            return self._connected().execute(query, values).fetchall()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect_admin()
            # What is looked at may be made anew under our eyes.
            self._connection.prepare_threshold = None
        return self._connection
