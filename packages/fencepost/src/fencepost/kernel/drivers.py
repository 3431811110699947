"""Send a call over a connection that the user already has.

psycopg (sync and async), asyncpg, SQLAlchemy 2 (connections and sessions, sync and async), Django's.
This module never begins, commits or retries: the transaction is the user's. A refusal is raised as our
exception, with the driver's own as its cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from fencepost.errors import FencepostError, from_sqlstate
from fencepost.kernel._array_literal import as_literals
from fencepost.kernel.call import Call

T = TypeVar("T")
_SPECIAL = frozenset("'\\\0")
"""What a text in quotes may not have as it is."""
_PLACEHOLDER = re.compile(r"%s(?:::jsonb(?P<brackets>(?:\[\])?))?")


class SyncConnection(Protocol):
    """psycopg's Connection, SQLAlchemy's Connection and Session, Django's connection.

    Structural and not nominal: a driver that is not installed would be Any to a type checker, and Any fits
    every overload, so that `await run(...)` would be reported as an error.
    """

    def commit(self) -> None:
        """Commit the connection's transaction."""


class _Committing(Protocol):
    """psycopg's AsyncConnection, SQLAlchemy's AsyncConnection and AsyncSession."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class _AsyncpgConnection(Protocol):
    """asyncpg's Connection, also one from its pool; but not the pool itself, which has no transaction."""

    def is_in_transaction(self) -> bool: ...


AsyncConnection: TypeAlias = _Committing | _AsyncpgConnection


@overload
def run(connection: SyncConnection, call: Call[T]) -> T: ...
@overload
def run(connection: AsyncConnection, call: Call[T]) -> Coroutine[Any, Any, T]: ...
def run(connection: Any, call: Call[T]) -> T | Coroutine[Any, Any, T]:
    """Make the call in the connection's current transaction. Await the result of an async connection."""
    answer: T | Coroutine[Any, Any, T] = _sender(connection.__class__)(connection, call)
    return answer


def translate(error: BaseException) -> FencepostError | None:
    """Our exception for a driver's, or None if the kernel did not raise it.

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


@contextmanager
def as_ours() -> Generator[None]:
    """Raises our exception for a driver's, with the driver's as its cause."""
    try:
        yield
    except psycopg.Error as error:
        _raise_ours(error)
        raise


def with_literals(
    call: Call[Any], connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
) -> bytes:
    """The call's statement with its arguments in it, for a query of several statements, which has no
    parameters."""
    first, *rest = _between_arguments(call.sql)
    said = [first]
    for argument, text in zip(as_literals(call.arguments), rest, strict=True):
        said += (_literal(argument, connection), text)
    return b"".join(said)


@lru_cache(maxsize=512)
def _between_arguments(sql: str) -> Sequence[bytes]:
    return [text.encode() for text in sql.split("%s")]


def _literal(value: object, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bytes:
    # The arguments of fences and finishes are numbers and short texts, for which the general way costs most.
    if type(value) is int:
        return b"%d" % value
    if value is None:
        return b"null"
    if type(value) is str:
        if value.isascii() and _SPECIAL.isdisjoint(value):
            return b"'%b'" % value.encode()
        escaping = psycopg.pq.Escaping(connection.pgconn)
        return bytes(escaping.escape_literal(value.encode(connection.info.encoding)))
    return sql.Literal(value).as_bytes(connection)


def _raise_ours(error: Exception) -> None:
    ours = translate(error)
    if ours is not None:
        raise ours from error


@lru_cache(maxsize=512)
def numbered(sql: str) -> str:
    """The statement with numbered placeholders, as asyncpg requires them.

    JSON is sent as text: a user's own codec for jsonb would encode our text a second time, as a JSON string.
    """
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        brackets = match["brackets"]
        return f"${count}" if brackets is None else f"${count}::text{brackets}::jsonb{brackets}"

    return _PLACEHOLDER.sub(number, sql)


def _run_psycopg(connection: Any, call: Call[T]) -> T:
    cursor = _cursor(connection)
    try:
        cursor.execute(_for_cursor(cursor, call.sql), as_literals(call.arguments))
        rows = cursor.fetchall()
    except psycopg.Error as error:
        _raise_ours(error)
        raise
    return call.read(rows)


async def _run_psycopg_async(connection: Any, call: Call[T]) -> T:
    cursor = _cursor(connection)
    try:
        await cursor.execute(_for_cursor(cursor, call.sql), as_literals(call.arguments))
        rows = await cursor.fetchall()
    except psycopg.Error as error:
        _raise_ours(error)
        raise
    return call.read(rows)


def _cursor(connection: Any) -> Any:
    # The user's connection may return rows as dicts or objects; ours are read by position.
    cursor = connection.cursor(row_factory=tuple_row)
    # Binary results: neither side converts timestamps to text and back, and no setting affects them.
    # Client-side cursors, which put the arguments into the statement, receive text only.
    if not issubclass(type(cursor), psycopg.ClientCursor | psycopg.AsyncClientCursor):
        cursor.format = psycopg.pq.Format.BINARY
    return cursor


def _for_cursor(cursor: Any, sql: str) -> str:
    """The user's cursor factory is kept, because it may be the one that traces statements."""
    return numbered(sql) if isinstance(cursor, psycopg.RawCursor | psycopg.AsyncRawCursor) else sql


async def _run_asyncpg(connection: Any, call: Call[T]) -> T:
    from asyncpg import Record  # noqa: PLC0415 -- asyncpg is installed, or this connection would not exist.

    try:
        rows = await connection.fetch(numbered(call.sql), *call.arguments, record_class=Record)
    except Exception as error:
        _raise_ours(error)
        raise
    return call.read(rows)


def _run_sqlalchemy(connection: Any, call: Call[T]) -> T:
    try:
        rows = connection.exec_driver_sql(_for_dialect(connection, call.sql), call.arguments).fetchall()
    except Exception as error:
        _raise_ours(error)
        raise
    return call.read(rows)


async def _run_sqlalchemy_async(connection: Any, call: Call[T]) -> T:
    try:
        result = await connection.exec_driver_sql(_for_dialect(connection, call.sql), call.arguments)
        rows = result.fetchall()
    except Exception as error:
        _raise_ours(error)
        raise
    return call.read(rows)


def _run_session(session: Any, call: Call[T]) -> T:
    # As for any query: pending changes first, unless the user said no_autoflush.
    if session.autoflush:
        session.flush()
    return _run_sqlalchemy(session.connection(), call)


async def _run_session_async(session: Any, call: Call[T]) -> T:
    if session.autoflush:
        await session.flush()
    return await _run_sqlalchemy_async(await session.connection(), call)


def _for_dialect(connection: Any, sql: str) -> str:
    return numbered(sql) if connection.dialect.paramstyle == "numeric_dollar" else sql


def _run_django(connection: Any, call: Call[T]) -> T:
    try:
        with connection.cursor() as cursor:
            cursor.execute(call.sql, call.arguments)
            rows = cursor.fetchall()
    except Exception as error:
        _raise_ours(error)
        raise
    return call.read(rows)


_SENDERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("psycopg", "Connection"): _run_psycopg,
    ("psycopg", "AsyncConnection"): _run_psycopg_async,
    ("asyncpg", "Connection"): _run_asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _run_asyncpg,
    ("sqlalchemy", "Connection"): _run_sqlalchemy,
    ("sqlalchemy", "Session"): _run_session,
    ("sqlalchemy", "scoped_session"): _run_session,
    ("sqlalchemy", "AsyncConnection"): _run_sqlalchemy_async,
    ("sqlalchemy", "AsyncSession"): _run_session_async,
    ("sqlalchemy", "async_scoped_session"): _run_session_async,
    ("django", "BaseDatabaseWrapper"): _run_django,
    ("django", "ConnectionProxy"): _run_django,
}
"""By package and class name, because a driver that is not installed cannot be imported for the check.
Pools and engines are excluded: they would run the call in its own transaction, where a fence is void."""


@cache
def _sender(kind: type) -> Callable[..., Any]:
    for cls in kind.__mro__:
        package, _, _ = cls.__module__.partition(".")
        sender = _SENDERS.get((package, cls.__qualname__))
        if sender is not None:
            return sender
    raise TypeError(
        f"{kind.__module__}.{kind.__qualname__} is no connection that Fencepost knows: pass a connection or "
        "session of psycopg, asyncpg, SQLAlchemy 2 or Django, in whose transaction the call is to run."
    )
