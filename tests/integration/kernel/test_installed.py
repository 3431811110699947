"""What a database has, as a process asks before it works with it."""

from collections.abc import Callable, Iterator

import pytest

from fencepost.embedded import Database, PostgresServer
from fencepost.errors import SchemaMissing, ServerUnavailable
from fencepost.kernel.migrate import components, installed, require
from tests.integration.kernel.bare_databases import bare_databases


@pytest.fixture
def bare(postgres: PostgresServer, template_database: Database) -> Iterator[Callable[[], Database]]:
    """The template is there, so the server has the roles."""
    with bare_databases(postgres) as create:
        yield create


def test_a_migrated_database_has_every_component_in_this_version(database: Database) -> None:
    found = installed(database.url)

    assert {name: one.version for name, one in found.items()} == {
        component.name: component.version for component in components()
    }
    for name in found:
        require(database.url, name)


def test_a_bare_one_has_none_and_is_turned_away(bare: Callable[[], Database]) -> None:
    database = bare()

    assert installed(database.admin_url) == {}
    with pytest.raises(SchemaMissing):
        require(database.admin_url, "kernel")


def test_one_that_cannot_be_reached_is_said_so() -> None:
    with pytest.raises(ServerUnavailable, match="cannot be reached"):
        installed("postgresql:///x?host=/nowhere")
