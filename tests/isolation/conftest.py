"""A database that is fit for interleavings, shared by the scenarios of one test process."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from fencepost.embedded import Database, PostgresServer
from tests.isolation.stage import Stage, prepare


@pytest.fixture(scope="session")
def stage_database(postgres: PostgresServer, template_database: Database) -> Iterator[Database]:
    """Every run begins with a reset, so one database serves them all."""
    database = Database(postgres, f"isolation_{uuid.uuid4().hex}")
    database.create(template=template_database.name)
    prepare(database)
    yield database
    database.drop()


@pytest.fixture
async def stage(stage_database: Database) -> AsyncIterator[Stage]:
    async with Stage.open(stage_database) as stage:
        yield stage
