"""How we connect to Redis: to one server, or to whichever of several their Sentinels call the primary.

redis-py annotates its own functions in part only, so the casts stand here and in the modules beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.retry
import redis.sentinel
from redis.backoff import NoBackoff

from fencepost.sentinel_url import SentinelUrl, speaks_of_sentinels

NONE: Mapping[str, Any] = MappingProxyType({})


def connect(url: str, *, reply_seconds: float, connections_max: int | None = None) -> redis.asyncio.Redis:
    """For an event loop. A cancelled command closes its connection; redis-py sees to that.

    With `connections_max` a command that finds all connections in use waits for one, for as long as it would
    for its reply. Without it there are at most 100, and one more is an error.
    """
    options = {**_options(reply_seconds), "retry": redis.asyncio.retry.Retry(NoBackoff(), 0)}
    bound = {} if connections_max is None else {"max_connections": connections_max, "timeout": reply_seconds}
    if speaks_of_sentinels(url):
        pool = {"connection_pool_class": WaitingSentinelPool, **bound} if bound else {}
        client = _follow(url, redis.asyncio.sentinel.Sentinel, FollowingRedis, options, pool)
        return cast("FollowingRedis", client)
    if bound:
        waiting = cast("Any", redis.asyncio.BlockingConnectionPool).from_url(url, **options, **bound)
        return cast("redis.asyncio.Redis", cast("Any", redis.asyncio.Redis).from_pool(waiting))
    return cast("redis.asyncio.Redis", cast("Any", redis.asyncio.Redis).from_url(url, **options))


def connect_sync(url: str, *, reply_seconds: float) -> redis.Redis:
    """For a thread."""
    options = {**_options(reply_seconds), "retry": redis.retry.Retry(NoBackoff(), 0)}
    if speaks_of_sentinels(url):
        return cast("FollowingSyncRedis", _follow(url, redis.sentinel.Sentinel, FollowingSyncRedis, options))
    return cast("redis.Redis", cast("Any", redis.Redis).from_url(url, **options))


class WaitingSentinelPool(
    redis.asyncio.sentinel.SentinelConnectionPool, redis.asyncio.BlockingConnectionPool
):
    """Connections to the primary, at most so many."""


class FollowingRedis(redis.asyncio.Redis):
    """A client of the primary. A new connection asks a Sentinel who that is; so does one that was refused."""

    sentinel: Any

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Also the connections to the Sentinels: redis-py leaves them to whoever made them."""
        await super().aclose(close_connection_pool)
        for client in self.sentinel.sentinels:
            await client.aclose()


class FollowingSyncRedis(redis.Redis):
    """`FollowingRedis` for a thread."""

    sentinel: Any

    def close(self) -> None:
        super().close()
        for client in self.sentinel.sentinels:
            client.close()


def _follow(
    url: str, sentinel_class: Any, redis_class: Any, options: dict[str, Any], pool: Mapping[str, Any] = NONE
) -> Any:
    address = SentinelUrl.read(url)
    sockets = {name: value for name, value in options.items() if name.startswith(("socket_", "retry"))}
    tls = {"ssl": True} if address.tls else {}
    sentinel = sentinel_class(
        address.sentinels,
        sentinel_kwargs={**sockets, **tls, **address.sentinel_login},
        db=address.database,
        **options,
        **tls,
        **address.login,
    )
    client = sentinel.master_for(address.service, redis_class=redis_class, **pool)
    client.sentinel = sentinel
    return client


def _options(reply_seconds: float) -> dict[str, Any]:
    return {
        "decode_responses": True,
        # Somebody's entry may hold bytes that are no text. It must not keep us from reading the others.
        "encoding_errors": "replace",
        "socket_timeout": reply_seconds,
        "socket_connect_timeout": reply_seconds,
        # No retries inside the client: a retried XADD is a second entry, and our loops retry with open eyes.
    }
