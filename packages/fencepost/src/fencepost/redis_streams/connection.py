"""Connections to Redis: to one server, or to the primary that Sentinels name.

redis-py annotates its functions only partly, so the casts are here and in the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from fencepost._sentinel_url import SentinelUrl, speaks_of_sentinels
from fencepost.errors import SettingsError

if TYPE_CHECKING:
    import redis
    import redis.asyncio

NONE: Mapping[str, Any] = MappingProxyType({})


def connect(url: str, *, reply_seconds: float, connections_max: int | None = None) -> redis.asyncio.Redis:
    """For an event loop. A cancelled command closes its connection; redis-py does that.

    With `connections_max` a command that finds all connections in use waits for one, for as long as it would
    for its reply. Without it there are at most 100, and one more is an error.
    """
    _require_library()
    from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415 - May be missing; slow to load.
    from redis.asyncio.retry import Retry  # noqa: PLC0415
    from redis.asyncio.sentinel import Sentinel  # noqa: PLC0415
    from redis.backoff import NoBackoff  # noqa: PLC0415

    from fencepost.redis_streams._sentinel_clients import FollowingRedis, WaitingSentinelPool  # noqa: PLC0415

    options = {**_options(reply_seconds), "retry": Retry(NoBackoff(), 0)}
    bound = {} if connections_max is None else {"max_connections": connections_max, "timeout": reply_seconds}
    if speaks_of_sentinels(url):
        pool = {"connection_pool_class": WaitingSentinelPool, **bound} if bound else {}
        return cast("FollowingRedis", _follow(url, Sentinel, FollowingRedis, options, pool))
    if bound:
        waiting = cast("Any", BlockingConnectionPool).from_url(url, **options, **bound)
        return cast("redis.asyncio.Redis", cast("Any", Redis).from_pool(waiting))
    return cast("redis.asyncio.Redis", cast("Any", Redis).from_url(url, **options))


def connect_sync(url: str, *, reply_seconds: float) -> redis.Redis:
    """For a thread."""
    _require_library()
    from redis import Redis  # noqa: PLC0415 - As above.
    from redis.backoff import NoBackoff  # noqa: PLC0415
    from redis.retry import Retry  # noqa: PLC0415
    from redis.sentinel import Sentinel  # noqa: PLC0415

    from fencepost.redis_streams._sentinel_clients import FollowingSyncRedis  # noqa: PLC0415

    options = {**_options(reply_seconds), "retry": Retry(NoBackoff(), 0)}
    if speaks_of_sentinels(url):
        return cast("FollowingSyncRedis", _follow(url, Sentinel, FollowingSyncRedis, options))
    return cast("redis.Redis", cast("Any", Redis).from_url(url, **options))


def _require_library() -> None:
    if find_spec("redis") is None:
        raise SettingsError(
            'A Redis URL is set, and redis-py is not installed. Run: pip install "fencepost[redis]". Without '
            "REDIS_URL workers claim straight from PostgreSQL."
        )


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
        # An entry of another writer may hold bytes that are not text. It must not prevent reading the others.
        "encoding_errors": "replace",
        "socket_timeout": reply_seconds,
        "socket_connect_timeout": reply_seconds,
        # No retries inside the client: a retried XADD is a second entry, and our loops retry knowing that.
    }
