"""The views of the compatibility profile: the services bring them, and the library alone has none."""

from collections.abc import Callable, Iterator

import pytest
from psycopg import sql

from fencepost.compatible_names import CompatibleNames
from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import components, migrate
from fencepost.plugin import load, plugins
from tests.integration.kernel.bare_databases import bare_databases

TABLES: dict[str, CompatibleNames] = {
    name: load(plugin.names) for name, plugin in plugins().items() if plugin.names
}
VIEWS = [(service, view) for service, names in TABLES.items() for view in names.views]


@pytest.fixture
def empty(postgres: PostgresServer, template_database: Database) -> Iterator[Callable[[], Database]]:
    with bare_databases(postgres) as create:
        yield create


def columns(database: Database, view: str) -> set[str]:
    with database.connect_admin() as admin:
        found = admin.execute(
            "select column_name from information_schema.columns"
            " where table_schema = 'fencepost' and table_name = %s",
            (view,),
        )
        return {str(name) for (name,) in found}


@pytest.mark.parametrize(("service", "view"), VIEWS)
def test_a_view_has_the_columns_that_operators_know_and_the_application_may_read_it(
    database: Database, service: str, view: str
) -> None:
    assert set(TABLES[service].views[view]) <= columns(database, view)
    with database.connect() as app:
        app.execute(sql.SQL("select * from fencepost.{}").format(sql.Identifier(view)))


def test_the_library_alone_has_none_of_them(empty: Callable[[], Database]) -> None:
    database = empty()
    migrate(database.admin_url, *components(only=("kernel", "flows")))
    assert [view for _, view in VIEWS if columns(database, view)] == []


@pytest.mark.parametrize("service", TABLES)
def test_a_service_brings_its_own_views_and_no_others(empty: Callable[[], Database], service: str) -> None:
    database = empty()
    migrate(database.admin_url, *components(only=(service,)))
    assert {view for _, view in VIEWS if columns(database, view)} == set(TABLES[service].views)
