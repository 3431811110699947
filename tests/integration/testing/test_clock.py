"""The settable clock of a test's database."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.kernel.migrate import migrate
from fencepost.testing import Clock, NotATestDatabase

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def session(database: Database) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with database.connect() as connection:
        yield connection


def read(session: psycopg.Connection[tuple[Any, ...]]) -> datetime:
    row = session.execute("select fencepost.clock()").fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment


def is_real(moment: datetime) -> bool:
    return abs(moment - datetime.now(UTC)) < timedelta(minutes=1)


def test_an_open_session_sees_the_time_move(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    read(session)
    with Clock(database.admin_url) as clock:
        assert is_real(read(session))
        clock.advance(3600)
        assert is_real(read(session) - timedelta(hours=1))


def test_an_open_transaction_sees_the_time_move(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    with Clock(database.admin_url) as clock, session.transaction():
        clock.freeze(NEW_YEAR)
        assert read(session) == NEW_YEAR
        clock.advance(1)
        assert read(session) == NEW_YEAR + timedelta(seconds=1)


def test_a_frozen_clock_stands_still_until_it_is_moved(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    with Clock(database.admin_url) as clock:
        clock.advance(60)
        clock.freeze()
        moment = clock.now()
        assert is_real(moment - timedelta(minutes=1))
        assert read(session) == read(session) == moment
        clock.advance(0.5)
        assert read(session) == moment + timedelta(seconds=0.5)


def test_a_lease_expires_because_the_clock_was_moved(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    with Clock(database.admin_url) as clock:
        acquire = "select token from fencepost.lease_acquire('printer', %s, '60 seconds')"
        assert session.execute(acquire, ("ann",)).fetchone() == (1,)
        clock.advance(61)
        assert session.execute(acquire, ("bob",)).fetchone() == (2,)


@pytest.mark.parametrize("login", ["url", "viewer_url"])
def test_every_login_reads_it_and_no_grant_is_lost(database: Database, login: str) -> None:
    with Clock(database.admin_url) as clock:
        clock.freeze(NEW_YEAR)
        with psycopg.connect(getattr(database, login), autocommit=True) as session:
            assert read(session) == NEW_YEAR
            session.execute("select * from fencepost.lease_status")
    with database.connect_admin() as admin:
        row = admin.execute(
            """select proowner::regrole::text, proacl::text from pg_proc
               where oid = 'fencepost.clock()'::regprocedure"""
        ).fetchone()
    assert row is not None
    assert row[0] == "fencepost_owner"
    assert {entry.partition("=")[0] for entry in row[1].strip("{}").split(",")} == {
        "fencepost_owner",
        "fencepost_app",
        "fencepost_read",
    }


def test_restoring_leaves_nothing_behind(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    source = "select prosrc, provolatile from pg_proc where oid = 'fencepost.clock()'::regprocedure"
    with database.connect_admin() as admin:
        before = admin.execute(source).fetchone()
        with Clock(database.admin_url) as clock:
            clock.freeze(NEW_YEAR)
            clock.restore()
            assert is_real(read(session))
        assert admin.execute(source).fetchone() == before
        assert admin.execute("select to_regnamespace('fencepost_testing')").fetchone() == (None,)


def test_a_database_with_work_in_it_is_left_alone(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    session.execute("select fencepost.claim('orders', 'order-7')")
    with pytest.raises(NotATestDatabase, match=rf"{database.name} has idempotency keys"):
        Clock(database.admin_url).install()
    assert is_real(read(session))


def test_a_used_database_of_a_test_is_named_to_be_moved(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    session.execute("select fencepost.job_submit('mail', 'welcome', '{}')")
    with pytest.raises(NotATestDatabase, match="not to production"):
        Clock(database.admin_url, database="production").install()
    with Clock(database.admin_url, database=database.name) as clock:
        clock.freeze(NEW_YEAR)
        assert read(session) == NEW_YEAR


def test_a_clock_that_a_killed_test_left_is_replaced(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    Clock(database.admin_url).install().freeze(NEW_YEAR)
    session.execute("select fencepost.claim('orders', 'order-7')")
    with Clock(database.admin_url):
        assert is_real(read(session))
    assert is_real(read(session))


def test_a_migration_ends_a_clock_that_was_left_behind(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    Clock(database.admin_url).install().freeze(NEW_YEAR)
    migrate(database.admin_url)
    assert is_real(read(session))
    with Clock(database.admin_url) as clock:
        clock.freeze(NEW_YEAR)
        assert read(session) == NEW_YEAR
    assert is_real(read(session))


def test_the_application_cannot_move_the_time(
    database: Database, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    with Clock(database.admin_url), pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute("update fencepost_testing.clock set ahead = '1 hour'")
