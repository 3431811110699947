"""A connection that the server dropped is noticed before a call uses it."""

import uuid
from collections.abc import Iterator

import pytest

from fencepost import Fencepost, ServerUnavailable
from fencepost.embedded import Database, PostgresServer
from fencepost.kernel import lease
from fencepost.kernel.migrate import migrate
from fencepost.settings import Settings
from tests.integration.client.conftest import MakeFacade
from tests.integration.client.facade import Facade
from tests.tmp_dirs import server_directory

CONNECTIONS = 3


@pytest.fixture(scope="module")
def mortal_database() -> Iterator[Database]:
    """A database on a PostgreSQL that may be killed."""
    with PostgresServer(server_directory(), settings={"fsync": "off"}, ephemeral=True) as server:
        database = Database(server, f"t_{uuid.uuid4().hex}")
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        yield database


@pytest.fixture
def on_mortal(mortal_database: Database, face: MakeFacade) -> Iterator[Facade]:
    settings = Settings(pool_min=CONNECTIONS, pool_max=CONNECTIONS, pool_wait_seconds=5)
    facade = face(Fencepost(mortal_database.url, settings=settings))
    facade.open()
    yield facade
    facade.close()


def test_after_a_crash_the_next_request_works_when_the_server_does(
    on_mortal: Facade, mortal_database: Database
) -> None:
    mortal_database.server.kill()
    mortal_database.server.start()

    for number in range(CONNECTIONS):
        assert on_mortal.run(lease.acquire(f"call {number}", "me", 60)).resource == f"call {number}"
        with on_mortal.transaction() as tx:
            tx.run(lease.acquire(f"transaction {number}", "me", 60))


def test_a_request_without_a_server_says_that_it_is_away_and_nothing_else(
    on_mortal: Facade, mortal_database: Database
) -> None:
    mortal_database.server.kill()
    try:
        with pytest.raises(ServerUnavailable, match="check that the server answers"):
            on_mortal.run(lease.acquire("door", "me", 60))
        with pytest.raises(ServerUnavailable), on_mortal.transaction():
            pytest.fail("the block began")
    finally:
        mortal_database.server.start()

    assert on_mortal.run(lease.acquire("door", "me", 60)).resource == "door"
    assert on_mortal.metrics.registry.get_sample_value("fencepost_indeterminate_commits_total") == 0


def test_a_notice_on_an_idle_connection_keeps_it(on_mortal: Facade, mortal_database: Database) -> None:
    """It is readable too, and alive."""
    with on_mortal.transaction() as tx:
        tx.execute("listen x")
    before = backends(mortal_database)
    with mortal_database.connect_admin() as admin:
        admin.execute("notify x")
    for number in range(CONNECTIONS):
        on_mortal.run(lease.acquire(f"call {number}", "me", 60))

    assert backends(mortal_database) == before


def backends(database: Database) -> set[int]:
    with database.connect_admin() as admin:
        rows = admin.execute(
            "select pid from pg_stat_activity where datname = current_database()"
            " and application_name = 'fencepost'"
        ).fetchall()
    return {pid for (pid,) in rows}
