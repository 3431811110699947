"""Scenes on the shared pair, and servers of one's own for tests that hurt them."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.kernel.migrate import migrate
from tests.integration.jobs.scene import Scene, open_scene
from tests.places import server_directory


@pytest.fixture
async def scene(database: Database, redis_url: str) -> AsyncIterator[Scene]:
    async with open_scene(database, redis_url) as scene:
        yield scene


@pytest.fixture
async def lonely_scene(database: Database) -> AsyncIterator[Scene]:
    """Without Redis."""
    async with open_scene(database, None) as scene:
        yield scene


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """A Valkey that may be killed and wiped."""
    with ValkeyServer(server_directory(), ephemeral=True) as server:
        yield server


@pytest.fixture
def own_database() -> Iterator[Database]:
    """A database on a PostgreSQL that may be killed."""
    directory = server_directory()
    with PostgresServer(directory, settings={"fsync": "off"}, ephemeral=True) as server:
        database = Database(server, f"t_{uuid.uuid4().hex}")
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        yield database
