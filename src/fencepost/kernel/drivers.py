"""Send a call over whatever connection the user already has.

psycopg (sync and async), asyncpg, SQLAlchemy 2 (connections and sessions, sync and async), Django's.
We never begin, commit or retry here: the transaction is the user's. A refusal comes back as our exception,
with the driver's own as its cause.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from fencepost.errors import FencepostError, from_sqlstate
from fencepost.kernel.call import Call, Row

if TYPE_CHECKING:
    import asyncpg
    import psycopg
    from asyncpg.pool import PoolConnectionProxy
    from django.db.backends.base.base import BaseDatabaseWrapper
    from sqlalchemy import Connection as SqlalchemyConnection
    from sqlalchemy.ext.asyncio import AsyncConnection as SqlalchemyAsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    SyncConnection: TypeAlias = psycopg.Connection[Any] | SqlalchemyConnection | Session | BaseDatabaseWrapper
    AsyncConnection: TypeAlias = (
        psycopg.AsyncConnection[Any]
        | asyncpg.Connection[Any]
        | PoolConnectionProxy[Any]
        | SqlalchemyAsyncConnection
        | AsyncSession
    )

T = TypeVar("T")
_PLACEHOLDER = re.compile("%s")


@overload
def run(connection: SyncConnection, call: Call[T]) -> T: ...
@overload
def run(connection: AsyncConnection, call: Call[T]) -> Awaitable[T]: ...
def run(connection: Any, call: Call[T]) -> T | Awaitable[T]:
    """Make the call in the connection's present transaction. Await the result of an async connection."""
    match _family(connection):
        case "psycopg":
            return _run_psycopg(connection, call)
        case "psycopg async":
            return _run_psycopg_async(connection, call)
        case "asyncpg":
            return _run_asyncpg(connection, call)
        case "sqlalchemy":
            return _run_sqlalchemy(connection, call)
        case "sqlalchemy async":
            return _run_sqlalchemy_async(connection, call)
        case "django":
            return _run_django(connection, call)
        case _:
            raise TypeError(
                f"{type(connection).__module__}.{type(connection).__qualname__} is no connection that "
                "Fencepost knows: pass one of psycopg, asyncpg, SQLAlchemy 2 or Django."
            )


def translate(error: BaseException) -> FencepostError | None:
    """Our exception for a driver's, or None when the kernel did not raise it.

    SQLAlchemy keeps the driver's error in `orig`, Django in the cause.
    """
    seen: set[int] = set()
    cause: Any = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        sqlstate = getattr(cause, "sqlstate", None)
        if isinstance(sqlstate, str) and sqlstate.startswith("ZF"):
            message, detail = _message(cause)
            return from_sqlstate(sqlstate, message, detail)
        cause = getattr(cause, "orig", None) or cause.__cause__
    return None


def _message(error: Any) -> tuple[str, str | None]:
    diag = getattr(error, "diag", None)
    if diag is not None:  # psycopg
        return diag.message_primary or str(error), diag.message_detail
    while getattr(error, "detail", None) is None and error.__cause__ is not None:
        error = error.__cause__  # SQLAlchemy's wrapper around asyncpg's error
    return getattr(error, "message", None) or str(error), getattr(error, "detail", None)


def _family(connection: Any) -> str:
    """By the classes' names, because a driver that is not installed cannot be imported to ask."""
    for cls in type(connection).__mro__:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if name.startswith("psycopg.") and cls.__qualname__ in ("Connection", "AsyncConnection"):
            return "psycopg" if cls.__qualname__ == "Connection" else "psycopg async"
        if name.startswith("asyncpg."):
            return "asyncpg"
        if name.startswith("sqlalchemy.ext.asyncio."):
            return "sqlalchemy async"
        if name.startswith("sqlalchemy."):
            return "sqlalchemy"
        if name.startswith("django.db."):
            return "django"
    return ""


def _dollars(sql: str) -> str:
    """Numbered placeholders, as asyncpg wants them."""
    count = 0

    def number(_: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${count}"

    return _PLACEHOLDER.sub(number, sql)


def _raise(error: Exception) -> None:
    ours = translate(error)
    if ours is not None:
        raise ours from error


def _run_psycopg(connection: Any, call: Call[T]) -> T:
    try:
        with connection.cursor() as cursor:
            cursor.row_factory = _tuples()
            cursor.execute(call.sql, call.arguments)
            rows: Sequence[Row] = cursor.fetchall()
    except Exception as error:
        _raise(error)
        raise
    return call.read(rows)


async def _run_psycopg_async(connection: Any, call: Call[T]) -> T:
    try:
        async with connection.cursor() as cursor:
            cursor.row_factory = _tuples()
            await cursor.execute(call.sql, call.arguments)
            rows: Sequence[Row] = await cursor.fetchall()
    except Exception as error:
        _raise(error)
        raise
    return call.read(rows)


def _tuples() -> Any:
    """The user's connection may make dicts or objects of its rows; ours are read by place."""
    from psycopg.rows import tuple_row  # noqa: PLC0415 -- psycopg is here, or this connection would not be.

    return tuple_row


async def _run_asyncpg(connection: Any, call: Call[T]) -> T:
    try:
        rows: Sequence[Row] = await connection.fetch(_dollars(call.sql), *call.arguments)
    except Exception as error:
        _raise(error)
        raise
    return call.read([tuple(row) for row in rows])


def _run_sqlalchemy(connection: Any, call: Call[T]) -> T:
    # A session lends its connection; its pending changes are flushed first, as for any query.
    if hasattr(connection, "flush"):
        connection.flush()
        connection = connection.connection()
    try:
        rows = connection.exec_driver_sql(_for_dialect(connection, call.sql), call.arguments).fetchall()
    except Exception as error:
        _raise(error)
        raise
    return call.read([tuple(row) for row in rows])


async def _run_sqlalchemy_async(connection: Any, call: Call[T]) -> T:
    if hasattr(connection, "flush"):
        await connection.flush()
        connection = await connection.connection()
    try:
        rows = (
            await connection.exec_driver_sql(_for_dialect(connection, call.sql), call.arguments)
        ).fetchall()
    except Exception as error:
        _raise(error)
        raise
    return call.read([tuple(row) for row in rows])


def _for_dialect(connection: Any, sql: str) -> str:
    return _dollars(sql) if connection.dialect.driver == "asyncpg" else sql


def _run_django(connection: Any, call: Call[T]) -> T:
    try:
        with connection.cursor() as cursor:
            cursor.execute(call.sql, call.arguments)
            rows = cursor.fetchall()
    except Exception as error:
        _raise(error)
        raise
    return call.read(rows)
