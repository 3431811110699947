"""What a migration brings each time, and that two of them take turns."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import fencepost.kernel.migrate as migrations
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel.migrate import migrate


def test_the_owner_may_end_backends_after_every_migration(database: Database) -> None:
    may = "select pg_has_role('fencepost_owner', 'pg_signal_backend', 'usage')"
    with database.connect_admin() as admin:
        admin.execute("revoke pg_signal_backend from fencepost_owner")
        assert admin.execute(may).fetchone() == (False,)
        migrate(database.admin_url)
        assert admin.execute(may).fetchone() == (True,)


def test_a_migration_waits_for_the_one_before_it_also_where_the_roles_are_there(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepared(connection: psycopg.Connection) -> None:
        """They are there."""

    monkeypatch.setattr(migrations, "_prepare_roles", prepared)
    with database.connect_admin() as other, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("select pg_advisory_xact_lock(%s)", (vars(migrations)["_TURN"],))
            second = pool.submit(migrate, database.admin_url)
            waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            Deadline(30, "the second waits").wait(lambda: other.execute(waiting).fetchone() == (1,))
            assert not second.done()
        assert second.result().applied == ()
