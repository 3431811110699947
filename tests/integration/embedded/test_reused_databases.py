"""A database that served one test is as the migrations left it, or it is dropped."""

from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from psycopg import sql

from fencepost.embedded import Database
from tests.integration.kernel.caller import connect
from tests.reused_databases import Kind, ReusedDatabase, ReusedDatabases


def contents(database: Database) -> dict[str, object]:
    """Every row of every table, every sequence, and what the planner is told of the tables."""
    tables = "select oid::regclass::text from pg_class where relkind = 'r' and oid >= 16384 order by 1"
    with database.connect_admin() as admin:
        names = [str(name) for (name,) in admin.execute(tables)]
        rows = {
            name: admin.execute(
                f"select array_agg(t::text order by t::text) from {name} t".encode()
            ).fetchall()
            for name in names
        }
        sequences = admin.execute("select sequencename, last_value from pg_sequences order by 1").fetchall()
        # The planner takes what it is told of an index of one page as nothing.
        pages = admin.execute(
            "select oid::regclass::text, relpages, reltuples from pg_class"
            " where oid >= 16384 and relkind <> 'i' order by 1"
        ).fetchall()
    return {**rows, "sequences": sequences, "pages": pages}


@pytest.fixture
def fresh(reused_databases: ReusedDatabases) -> Iterator[ReusedDatabase]:
    """One that has served no test."""
    fresh = reused_databases.fresh(Kind(with_clock=True))
    yield fresh
    reused_databases.discard(fresh)


def write(database: Database) -> None:
    with database.connect() as service:
        service.execute("select fencepost.lease_acquire('k', 'a', '60 s')")
    with database.connect_admin() as admin:
        admin.execute("delete from fencepost.refusal_reason where reason = 'lease_expired'")
        admin.execute("update fencepost_testing.clock set ahead = '1 hour'")
        with suppress(ZeroDivisionError), admin.transaction():
            admin.execute("insert into fencepost.account_service_role values ('x', 'y', 1)")
            raise ZeroDivisionError


def test_it_is_put_back_as_the_migrations_left_it(fresh: ReusedDatabase) -> None:
    before = contents(fresh.database)
    for _ in range(2):
        write(fresh.database)
        assert contents(fresh.database) != before
        assert fresh.restore()
        assert contents(fresh.database) == before


def test_a_clock_that_a_short_test_has_moved_is_put_back(fresh: ReusedDatabase) -> None:
    assert fresh.clock is not None
    for _ in range(3):
        before = contents(fresh.database)
        fresh.clock.advance(301)
        assert fresh.restore()
        assert contents(fresh.database) == before


def test_the_scans_of_a_test_are_not_counted_for_the_next(fresh: ReusedDatabase) -> None:
    scans = "select sum(seq_scan + coalesce(idx_scan, 0)) from pg_stat_user_tables"
    write(fresh.database)
    with fresh.database.connect_admin() as admin:
        assert admin.execute(scans).fetchone() != (0,)
    assert fresh.restore()
    with fresh.database.connect_admin() as admin:
        assert admin.execute(scans).fetchone() == (0,)


def test_the_sessions_of_a_test_are_ended(fresh: ReusedDatabase) -> None:
    with fresh.database.connect() as left:
        assert fresh.restore()
        with pytest.raises(psycopg.OperationalError):
            left.execute("select 1")


def test_a_test_that_ends_every_session_ends_the_one_that_puts_back_too(fresh: ReusedDatabase) -> None:
    write(fresh.database)
    with fresh.database.connect_admin() as admin:
        admin.execute(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
    assert fresh.restore()


def test_a_session_that_is_kept_is_as_it_began(fresh: ReusedDatabase) -> None:
    kept = fresh.session(fresh.database.url, connect)
    kept.execute("set lock_timeout = '7s'")
    kept.execute("select pg_advisory_lock(7)")
    kept.execute("select fencepost.lease_acquire('k', 'a', '60 s')")
    assert fresh.restore()
    assert fresh.session(fresh.database.url, connect) is kept
    row = kept.execute("""
        select current_setting('lock_timeout') as lock_timeout,
          (select count(*) from fencepost.lease_status) as leases,
          (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) as locks
    """).fetchone()
    assert row == {"lock_timeout": "0", "leases": 0, "locks": 0}


def test_a_session_that_was_left_in_a_transaction_is_not_kept(fresh: ReusedDatabase) -> None:
    left = fresh.session(fresh.database.url, connect)
    left.execute("begin")
    left.execute("select fencepost.lease_acquire('k', 'a', '60 s')")
    assert fresh.restore()
    assert left.closed


def test_one_that_a_test_has_dropped_serves_no_other_test(reused_databases: ReusedDatabases) -> None:
    reused = reused_databases.take(Kind())
    reused.database.drop()
    reused_databases.give_back(reused)
    following = reused_databases.take(Kind())
    assert following.database.name != reused.database.name
    assert following.database.exists()
    reused_databases.give_back(following)


CHANGES = (
    "create or replace function fencepost.job_stop_all() returns void language sql as ''",
    "create table public.mine (n int)",
    "revoke select on fencepost.jobs from fencepost_read",
    "alter table fencepost.lease set (fillfactor = 50)",
    "alter database {} set work_mem = '1MB'",
    "revoke connect on database {} from public",
    "analyze fencepost.lease",
    "truncate fencepost.lease",
    "comment on table fencepost.lease is 'mine'",
)


@pytest.mark.parametrize("change", CHANGES)
def test_one_that_cannot_be_put_back_serves_no_other_test(
    reused_databases: ReusedDatabases, change: str
) -> None:
    reused = reused_databases.take(Kind())
    with reused.database.connect_admin() as admin:
        admin.execute(sql.SQL(change).format(sql.Identifier(reused.database.name)))  # pyright: ignore
    reused_databases.give_back(reused)
    assert not reused.database.exists()
    following = reused_databases.take(Kind())
    assert following.database.name != reused.database.name
    reused_databases.give_back(following)
