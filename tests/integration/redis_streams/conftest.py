"""Streams on the shared, empty Valkey."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.redis_streams.connection import connect
from fencepost.redis_streams.stream import Streams


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Any]:
    """A client that does whatever a stranger could do."""
    client = connect(redis_url, reply_seconds=5)
    yield client
    await client.aclose()


@pytest.fixture
def streams(redis: Any) -> Streams:
    return Streams(redis, "workers")
