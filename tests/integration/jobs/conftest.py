"""Scenes on the shared pair, and servers of one's own for tests that hurt them."""

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import LiteralString

import pytest

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.kernel.migrate import migrate
from tests.integration.jobs.harness import TABLES, JobHarness, open_harness
from tests.tmp_dirs import server_directory


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return TABLES


@pytest.fixture
async def harness(database: Database, redis_url: str) -> AsyncIterator[JobHarness]:
    async with open_harness(database, redis_url) as harness:
        yield harness


@pytest.fixture
async def lonely_harness(database: Database) -> AsyncIterator[JobHarness]:
    """Without Redis."""
    async with open_harness(database, None) as harness:
        yield harness


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
