"""How we connect to Redis.

redis-py annotates its own functions in part only, so the casts stand here and in the modules beside it.
"""

from __future__ import annotations

from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff


def connect(url: str, *, reply_seconds: float) -> redis.asyncio.Redis:
    """For an event loop. A cancelled command closes its connection; redis-py sees to that."""
    retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
    return cast(
        "redis.asyncio.Redis",
        cast("Any", redis.asyncio.Redis).from_url(url, retry=retry, **_options(reply_seconds)),
    )


def connect_sync(url: str, *, reply_seconds: float) -> redis.Redis:
    """For a thread."""
    retry = redis.retry.Retry(NoBackoff(), 0)
    return cast("redis.Redis", cast("Any", redis.Redis).from_url(url, retry=retry, **_options(reply_seconds)))


def _options(reply_seconds: float) -> dict[str, Any]:
    return {
        "decode_responses": True,
        # Somebody's entry may hold bytes that are no text. It must not keep us from reading the others.
        "encoding_errors": "replace",
        "socket_timeout": reply_seconds,
        "socket_connect_timeout": reply_seconds,
        # No retries inside the client: a retried XADD is a second entry, and our loops retry with open eyes.
    }
