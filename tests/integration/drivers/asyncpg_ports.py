"""asyncpg: a connection, one borrowed from a pool, and one whose user has taught it JSON."""

import json
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, LiteralString, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from fencepost import Call, run
from tests.integration.drivers.port import Loop, Port

T = TypeVar("T")


class AsyncpgPort:
    def __init__(self, connection: "asyncpg.Connection[Any] | PoolConnectionProxy[Any]", loop: Loop) -> None:
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


class Backwards(asyncpg.Record):
    """A user's own rows, as unlike a plain one as they can be."""

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.values())[::-1])


@contextmanager
def plain(url: str) -> Generator[Port]:
    with _connected(url) as (connection, loop):
        yield AsyncpgPort(connection, loop)


@contextmanager
def from_pool(url: str) -> Generator[Port]:
    async def open_pool() -> "asyncpg.Pool[Any]":
        return await asyncpg.create_pool(url, min_size=1, max_size=1)

    loop = Loop()
    pool = loop.wait(open_pool())
    connection = loop.wait(pool.acquire())
    try:
        yield AsyncpgPort(connection, loop)
    finally:
        loop.wait(pool.release(connection))
        loop.wait(pool.close())
        loop.close()


@contextmanager
def with_json_codecs(url: str) -> Generator[Port]:
    """What most asyncpg users write into their `init`: JSON as Python values."""
    with _connected(url, record_class=Backwards) as (connection, loop):
        for kind in ("json", "jsonb"):
            loop.wait(
                connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
            )
        yield AsyncpgPort(connection, loop)


@contextmanager
def _connected(url: str, **options: Any) -> "Generator[tuple[asyncpg.Connection[Any], Loop]]":
    loop = Loop()
    connection: asyncpg.Connection[Any] = loop.wait(asyncpg.connect(url, **options))
    try:
        yield connection, loop
    finally:
        loop.wait(connection.close())
        loop.close()
