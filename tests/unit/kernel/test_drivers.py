"""Which connections are known, how placeholders are written, and whose error is ours."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import psycopg
import psycopg_pool
import pytest
import sqlalchemy

from fencepost import Backpressure, Call, InvalidInput, NotOwner, StaleAttempt, WrongIsolation, run
from fencepost.kernel.call import nothing
from fencepost.kernel.drivers import numbered, translate

DETAIL = '{"noun": "job", "subject": "7", "attempted": {"attempt": 1}, "seen": {"attempt": 2}}'


class PsycopgError(Exception):
    """As psycopg raises it: facts in `diag`."""

    def __init__(
        self, sqlstate: str, message: str | None = "job 7: no.", detail: str | None = DETAIL
    ) -> None:
        super().__init__("the text with its context")
        self.sqlstate = sqlstate
        self.diag = SimpleNamespace(message_primary=message, message_detail=detail)


class AsyncpgError(Exception):
    """As asyncpg raises it: facts on the error itself."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("job 7: no.")
        self.sqlstate = sqlstate
        self.message = "job 7: no."
        self.detail = DETAIL


class WrapperError(Exception):
    """As SQLAlchemy wraps it: the driver's error in `orig`."""

    def __init__(self, orig: BaseException | None) -> None:
        super().__init__("(builtins) with the statement")
        self.orig = orig


def caused_by(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


class AdapterError(Exception):
    """SQLAlchemy's own face of asyncpg: the state, but not the facts, which its cause has."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("<class 'asyncpg...'>: job 7: no.")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    "error",
    [
        PsycopgError("ZF001"),
        AsyncpgError("ZF001"),
        WrapperError(PsycopgError("ZF001")),
        WrapperError(caused_by(AdapterError("ZF001"), AsyncpgError("ZF001"))),
        caused_by(Exception("django"), PsycopgError("ZF001")),
    ],
    ids=["psycopg", "asyncpg", "sqlalchemy-psycopg", "sqlalchemy-asyncpg", "django"],
)
def test_a_refusal_is_found_inside_every_drivers_error(error: Exception) -> None:
    refusal = translate(error)

    assert isinstance(refusal, StaleAttempt)
    assert str(refusal) == "job 7: no."
    assert (refusal.noun, refusal.subject) == ("job", "7")
    assert (refusal.attempted, refusal.seen) == ({"attempt": 1}, {"attempt": 2})


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [("ZF100", InvalidInput), ("ZF101", WrongIsolation), ("ZF102", Backpressure)],
)
def test_the_other_states_of_ours_have_their_classes(sqlstate: str, kind: type[Exception]) -> None:
    assert isinstance(translate(PsycopgError(sqlstate)), kind)


def test_a_wrong_argument_names_its_field() -> None:
    error = translate(PsycopgError("ZF100", detail='{"field": "priority"}'))

    assert isinstance(error, InvalidInput)
    assert error.field == "priority"


@pytest.mark.parametrize(
    "error",
    [
        Exception("no state at all"),
        PsycopgError("23505"),
        PsycopgError("ZF999"),
        WrapperError(PsycopgError("40001")),
        WrapperError(None),
        SimpleNamespace(sqlstate=None, __cause__=None),
    ],
    ids=["plain", "unique", "unknown-of-ours", "wrapped", "empty-wrapper", "no-state"],
)
def test_what_is_not_ours_is_left_alone(error: Any) -> None:
    assert translate(error) is None


@pytest.mark.parametrize("detail", [None, "", "no JSON", "[1, 2]", '"text"', "{"])
def test_a_refusal_with_an_unreadable_detail_is_still_a_refusal(detail: str | None) -> None:
    refusal = translate(PsycopgError("ZF005", detail=detail))

    assert isinstance(refusal, NotOwner)
    assert (refusal.noun, refusal.subject, refusal.attempted, refusal.seen) == ("", "", {}, {})


def test_a_message_that_is_missing_is_replaced_by_the_errors_text() -> None:
    assert str(translate(PsycopgError("ZF005", message=None))) == "the text with its context"


def test_a_circle_of_causes_ends() -> None:
    first, second = Exception("first"), Exception("second")
    first.__cause__, second.__cause__ = second, first

    assert translate(first) is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select f()", "select f()"),
        ("select f(%s::text, %s::bigint[])", "select f($1::text, $2::bigint[])"),
        ("select f(%s::jsonb, %s::text)", "select f($1::text::jsonb, $2::text)"),
        ("select f(%s::text[], %s::jsonb[])", "select f($1::text[], $2::text[]::jsonb[])"),
        ("select " + ", ".join(["%s"] * 11), "select " + ", ".join(f"${n}" for n in range(1, 12))),
    ],
)
def test_placeholders_are_numbered_and_json_goes_as_text(sql: str, expected: str) -> None:
    assert numbered(sql) == expected


CALL = Call("select fencepost.lease_fence(%s::text, %s::bigint)", ("door", 1), nothing)


def unmade(kind: type[Any]) -> Any:
    """A value of the class, without its construction: only the class is looked at."""
    return object.__new__(kind)


@pytest.mark.parametrize(
    "connection",
    [
        unmade(psycopg_pool.ConnectionPool),
        unmade(psycopg_pool.AsyncConnectionPool),
        unmade(asyncpg.Pool),
        unmade(sqlalchemy.Engine),
        "postgresql://host/shop",
        None,
    ],
    ids=["psycopg-pool", "psycopg-async-pool", "asyncpg-pool", "engine", "url", "none"],
)
def test_what_is_no_connection_is_refused_before_anything_is_sent(connection: Any) -> None:
    """A pool would run a fence in a transaction of its own, where it protects nothing."""
    with pytest.raises(
        TypeError, match="pass a connection or session of psycopg, asyncpg, SQLAlchemy 2 or Django"
    ):
        run(connection, CALL)


class TracingCursor:
    """A cursor that remembers."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Sequence[Any]]] = []

    def execute(self, sql: str, arguments: Sequence[Any]) -> None:
        self.sent.append((sql, arguments))

    def fetchall(self) -> list[Any]:
        return []


class TracingConnection(psycopg.Connection[Any]):
    """A user's own subclass, whose cursors trace."""

    def __init__(self) -> None:
        self.last = TracingCursor()

    def __del__(self, *_: Any) -> None:
        """Never connected: nothing to warn about."""

    def cursor(self, *_: Any, **__: Any) -> Any:
        return self.last


def test_a_users_own_subclass_is_known_and_its_cursors_are_used() -> None:
    connection = TracingConnection()

    run(cast("psycopg.Connection[Any]", connection), CALL)

    assert connection.last.sent == [(CALL.sql, CALL.arguments)]
