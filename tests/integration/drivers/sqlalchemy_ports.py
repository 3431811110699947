"""SQLAlchemy 2: connections and sessions, sync and async, on psycopg and on asyncpg."""

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, LiteralString, TypeVar

import asyncpg
import psycopg
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fencepost import Call, run
from tests.integration.drivers.port import Loop, Port

T = TypeVar("T")
AnySession = Session | scoped_session[Session]


class SqlalchemyPort:
    def __init__(self, connection: Connection | AnySession) -> None:
        self._connection = connection

    def transaction(self) -> AbstractContextManager[object]:
        return self._connection.begin()

    def savepoint(self) -> AbstractContextManager[object]:
        return self._connection.begin_nested()

    def execute(self, statement: LiteralString) -> None:
        self._connection.execute(text(statement))

    def run(self, call: Call[T]) -> T:
        return run(self._connection, call)


class AsyncSqlalchemyPort:
    def __init__(self, connection: AsyncConnection | AsyncSession, loop: Loop) -> None:
        self._connection = connection
        self._loop = loop

    def transaction(self) -> AbstractContextManager[object]:
        return self._loop.inside(self._connection.begin())

    def savepoint(self) -> AbstractContextManager[object]:
        return self._loop.inside(self._connection.begin_nested())

    def execute(self, statement: LiteralString) -> None:
        self._loop.wait(self._connection.execute(text(statement)))

    def run(self, call: Call[T]) -> T:
        return self._loop.wait(run(self._connection, call))


@contextmanager
def connection(url: str) -> Generator[Port]:
    with _engine(url) as engine, engine.connect() as opened:
        yield SqlalchemyPort(opened)


@contextmanager
def session(url: str) -> Generator[Port]:
    with _engine(url) as engine, Session(engine) as opened:
        yield SqlalchemyPort(opened)


@contextmanager
def scoped(url: str) -> Generator[Port]:
    """What Flask's extension gives its users as `db.session`."""
    with _engine(url) as engine:
        registry = scoped_session(sessionmaker(engine))
        yield SqlalchemyPort(registry)
        registry.remove()


@contextmanager
def async_connection_on_psycopg(url: str) -> Generator[Port]:
    with _async(_psycopg(url), AsyncEngine.connect) as port:
        yield port


@contextmanager
def async_connection_on_asyncpg(url: str) -> Generator[Port]:
    with _async(_asyncpg(url), AsyncEngine.connect) as port:
        yield port


@contextmanager
def async_session_on_psycopg(url: str) -> Generator[Port]:
    with _async(_psycopg(url), AsyncSession) as port:
        yield port


@contextmanager
def async_session_on_asyncpg(url: str) -> Generator[Port]:
    with _async(_asyncpg(url), AsyncSession) as port:
        yield port


@contextmanager
def _engine(url: str) -> Generator[Engine]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    yield engine
    engine.dispose()


def _psycopg(url: str) -> AsyncEngine:
    async def connect() -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(url)

    return create_async_engine("postgresql+psycopg://", async_creator=connect, poolclass=NullPool)


def _asyncpg(url: str) -> AsyncEngine:
    async def connect(**_: Any) -> "asyncpg.Connection[Any]":
        return await asyncpg.connect(url)

    return create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)


@contextmanager
def _async(
    engine: AsyncEngine,
    open_on: Callable[[AsyncEngine], AbstractAsyncContextManager[AsyncConnection | AsyncSession]],
) -> Generator[Port]:
    loop = Loop()
    with loop.inside(open_on(engine)) as opened:
        yield AsyncSqlalchemyPort(opened, loop)
    loop.wait(engine.dispose())
    loop.close()
