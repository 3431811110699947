"""Several statements in one round trip: a call with BEGIN before it or COMMIT behind it.

Where statements may be prepared they travel in a pipeline of the protocol, each by the name of what the
server has parsed and planned before: to read and plan the text of a fence and a finish costs the server a
quarter of a handler's transaction. Elsewhere they are one query of several statements, with the arguments in
it. Both stop at the first statement that fails.

psycopg's own pipeline is not used: its cursors cost more of Python than the round trips that it saves.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, LiteralString

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus

from fencepost.kernel._array_literal import as_literals
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import numbered, with_literals

Statement = LiteralString | Call[Any]
"""One without parameters, or a call. What it answers is not read."""
Sent = Generator[Any, Any, tuple[int, psycopg.Error | None]]
"""How many statements succeeded, and what failed then."""
_DONE = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_MARK = b""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement by the name that it gets on the server, with its parameters as texts."""

    name: bytes
    sql: bytes
    parameters: Sequence[bytes | None]


def as_prepared(statements: Sequence[Statement]) -> list[Prepared] | None:
    """None if one has an argument that only the driver can write."""
    found: list[Prepared] = []
    for statement in statements:
        if isinstance(statement, str):
            found.append(Prepared(*_named(statement), ()))
            continue
        parameters: list[bytes | None] = []
        for value in as_literals(statement.arguments):
            if type(value) is int:
                parameters.append(b"%d" % value)
            elif value is None:
                parameters.append(None)
            # The client library reads a text up to its first NUL; one of another encoding is rare.
            elif type(value) is str and value.isascii() and "\0" not in value:
                parameters.append(value.encode())
            else:
                return None
        found.append(Prepared(*_named(statement.sql), parameters))
    return found


def as_text(
    statements: Sequence[Statement], connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
) -> bytes:
    """One query of several statements, which has no parameters."""
    return b";".join(
        statement.encode() if isinstance(statement, str) else with_literals(statement, connection)
        for statement in statements
    )


def send_text(pgconn: psycopg.pq.abc.PGconn, query: bytes, encoding: str) -> Sent:
    """Without a cursor, which costs more than the statements that begin and end a transaction: not for one
    whose answer changes what the driver has prepared, as that of a rollback does."""
    pgconn.send_query(query)
    results = yield from generators.execute(pgconn)
    for done, result in enumerate(results):
        if result.status == ExecStatus.FATAL_ERROR:
            return done, psycopg.errors.error_from_result(result, encoding=encoding)
    return len(results), None


def send_prepared(
    pgconn: psycopg.pq.abc.PGconn, statements: Sequence[Prepared], known: set[bytes], encoding: str
) -> Sent:
    """`known` are the names that the server has on this connection; those that it gets here are added."""
    pgconn.enter_pipeline_mode()
    try:
        done, error = 0, None
        expected = _enqueue(pgconn, statements, known)
        yield from generators.send(pgconn)
        for name in expected:
            try:
                results = yield from generators.fetch_many(pgconn)
            except psycopg.OperationalError:
                if error is None:
                    raise
                # The error was the last that the server said on this connection.
                break
            status = results[0].status if results else ExecStatus.PIPELINE_ABORTED
            if status == ExecStatus.FATAL_ERROR:
                error = psycopg.errors.error_from_result(results[0], encoding=encoding)
            elif status in _DONE and name is None:
                done += 1
            elif status in _DONE and name is not None:
                known.add(name)
    finally:
        # A connection that is broken cannot leave it, and has an error of its own.
        with suppress(psycopg.OperationalError):
            pgconn.exit_pipeline_mode()
    if isinstance(error, psycopg.errors.InvalidSqlStatementName):
        # Something has removed what was prepared. The next transaction prepares it again.
        known.clear()
    return done, error


def _enqueue(
    pgconn: psycopg.pq.abc.PGconn, statements: Sequence[Prepared], known: set[bytes]
) -> list[bytes | None]:
    """What is answered, in order: the name of a statement that is prepared, None for one that runs, and the
    mark at the end, at which the server goes on after an error."""
    answered: list[bytes | None] = []
    for statement in statements:
        if statement.name not in known and statement.name not in answered:
            pgconn.send_prepare(statement.name, statement.sql)
            answered.append(statement.name)
        pgconn.send_query_prepared(statement.name, statement.parameters)
        answered.append(None)
    pgconn.pipeline_sync()
    return [*answered, _MARK]


@lru_cache(maxsize=512)
def _named(sql: str) -> tuple[bytes, bytes]:
    text = numbered(sql).encode()
    return b"fencepost_" + sha256(text).hexdigest()[:16].encode(), text
