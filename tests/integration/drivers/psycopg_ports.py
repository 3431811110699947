"""psycopg, as its users configure it: with their row factories and their cursors."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.rows import DictRow, dict_row, namedtuple_row

from fencepost import Call, run
from tests.integration.drivers.port import Loop, Port

T = TypeVar("T")


class PsycopgPort:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def transaction(self) -> AbstractContextManager[object]:
        return self._connection.transaction()

    def savepoint(self) -> AbstractContextManager[object]:
        return self._connection.transaction()

    def execute(self, statement: LiteralString) -> None:
        self._connection.execute(statement)

    def run(self, call: Call[T]) -> T:
        return run(self._connection, call)


class AsyncPsycopgPort:
    def __init__(self, connection: psycopg.AsyncConnection[Any], loop: Loop) -> None:
        self._connection = connection
        self._loop = loop

    def transaction(self) -> AbstractContextManager[object]:
        return self._loop.inside(self._connection.transaction())

    def savepoint(self) -> AbstractContextManager[object]:
        return self._loop.inside(self._connection.transaction())

    def execute(self, statement: LiteralString) -> None:
        self._loop.wait(self._connection.execute(statement))

    def run(self, call: Call[T]) -> T:
        return self._loop.wait(run(self._connection, call))


@contextmanager
def plain(url: str) -> Generator[Port]:
    with psycopg.connect(url) as connection:
        yield PsycopgPort(connection)


@contextmanager
def dict_rows(url: str) -> Generator[Port]:
    with psycopg.Connection[DictRow].connect(url, row_factory=dict_row) as connection:
        yield PsycopgPort(connection)


@contextmanager
def namedtuple_rows(url: str) -> Generator[Port]:
    with psycopg.connect(url, row_factory=namedtuple_row) as connection:
        yield PsycopgPort(connection)


@contextmanager
def client_cursor(url: str) -> Generator[Port]:
    with psycopg.connect(url, cursor_factory=psycopg.ClientCursor) as connection:
        yield PsycopgPort(connection)


@contextmanager
def raw_cursor(url: str) -> Generator[Port]:
    with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as connection:
        yield PsycopgPort(connection)


@contextmanager
def plain_async(url: str) -> Generator[Port]:
    with _async(url) as (connection, loop):
        yield AsyncPsycopgPort(connection, loop)


@contextmanager
def dict_rows_async(url: str) -> Generator[Port]:
    with _async(url, row_factory=dict_row) as (connection, loop):
        yield AsyncPsycopgPort(connection, loop)


@contextmanager
def raw_cursor_async(url: str) -> Generator[Port]:
    with _async(url, cursor_factory=psycopg.AsyncRawCursor) as (connection, loop):
        yield AsyncPsycopgPort(connection, loop)


@contextmanager
def _async(url: str, **options: Any) -> Generator[tuple[psycopg.AsyncConnection[Any], Loop]]:
    loop = Loop()
    connection = loop.wait(psycopg.AsyncConnection.connect(url, **options))
    try:
        yield connection, loop
    finally:
        loop.wait(connection.close())
        loop.close()
