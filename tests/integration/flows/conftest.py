"""A client with tables for sinks."""

from collections.abc import AsyncGenerator

import pytest

from fencepost.embedded import Database
from tests.integration.flows.scene import Scene


@pytest.fixture
async def scene(database: Database, redis_url: str) -> AsyncGenerator[Scene]:
    async with Scene.of(database, redis_url) as scene:
        yield scene
