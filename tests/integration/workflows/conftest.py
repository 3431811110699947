"""Workers that run workflows, with Redis and without."""

from collections.abc import AsyncIterator
from typing import LiteralString

import pytest

from fencepost.embedded import Database
from tests.integration.jobs.harness import TABLES, JobHarness, open_harness


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return TABLES


@pytest.fixture
async def harness(database: Database) -> AsyncIterator[JobHarness]:
    """Without Redis: workers claim directly."""
    async with open_harness(database, None) as harness:
        yield harness


@pytest.fixture
async def redis_harness(database: Database, redis_url: str) -> AsyncIterator[JobHarness]:
    async with open_harness(database, redis_url) as harness:
        yield harness
