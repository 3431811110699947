"""Connections to Redis: to one server, to the primary that Sentinels name, or to a cluster.

redis-py annotates its functions only partly, so the casts are here and in the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from fencepost._cluster_url import ClusterUrl, speaks_of_a_cluster
from fencepost._sentinel_url import SentinelUrl, speaks_of_sentinels
from fencepost.errors import SettingsError

if TYPE_CHECKING:
    import redis
    import redis.asyncio

NONE: Mapping[str, Any] = MappingProxyType({})


def connect(
    url: str, *, reply_seconds: float, connections_max: int | None = None, raw: bool = False
) -> redis.asyncio.Redis:
    """For an event loop. A cancelled command closes its connection; redis-py does that.

    With `connections_max` a command that finds all connections in use waits for one, for as long as it would
    for its reply; in a cluster that is the bound for each node. Without it there are at most 100, and one
    more is an error. With `raw` replies are bytes, and those of XREAD as Redis sends them.
    """
    _require_library()
    from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415 - May be missing; slow to load.
    from redis.asyncio.retry import Retry  # noqa: PLC0415
    from redis.asyncio.sentinel import Sentinel  # noqa: PLC0415
    from redis.backoff import NoBackoff  # noqa: PLC0415

    from fencepost.redis_streams._sentinel_clients import FollowingRedis, WaitingSentinelPool  # noqa: PLC0415

    options = {**_options(reply_seconds), "retry": Retry(NoBackoff(), 0), "decode_responses": not raw}
    bound = {} if connections_max is None else {"max_connections": connections_max, "timeout": reply_seconds}

    def single(url: str, **login: str) -> Any:
        if bound:
            pool: Any = cast("Any", BlockingConnectionPool).from_url(url, **options, **bound, **login)
            return _parsing(cast("Any", Redis).from_pool(pool), raw=raw)
        return _parsing(cast("Any", Redis).from_url(url, **options, **login), raw=raw)

    if speaks_of_sentinels(url):
        pool = {"connection_pool_class": WaitingSentinelPool, **bound} if bound else {}
        return cast(
            "FollowingRedis", _parsing(_follow(url, Sentinel, FollowingRedis, options, pool), raw=raw)
        )
    if speaks_of_a_cluster(url):
        from fencepost.redis_streams._cluster_clients import ClusterRedis  # noqa: PLC0415

        cluster = ClusterUrl.read(url)
        return ClusterRedis(cluster.nodes, lambda node: single(_url_of(cluster, node), **cluster.login))
    return cast("redis.asyncio.Redis", single(url))


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
    if speaks_of_a_cluster(url):
        from fencepost.redis_streams._cluster_clients import SyncClusterRedis  # noqa: PLC0415

        cluster = ClusterUrl.read(url)
        return SyncClusterRedis(
            cluster.nodes,
            lambda node: cast("Any", Redis).from_url(_url_of(cluster, node), **options, **cluster.login),
        )
    return cast("redis.Redis", cast("Any", Redis).from_url(url, **options))


def named_together(client: Any, keys: Iterable[str]) -> list[list[str]]:
    """The keys in lists that one command may name: in a cluster those of one slot, elsewhere all."""
    from fencepost.redis_streams._cluster_clients import ClusterRedis  # noqa: PLC0415 - Needs redis-py.
    from fencepost.redis_streams._slots import by_slot  # noqa: PLC0415

    return by_slot(keys) if isinstance(client, ClusterRedis) else [list(keys)]


def _parsing(client: Any, *, raw: bool) -> Any:
    """Without a parser for XREAD, which takes half the time of a read."""
    if raw:
        client.response_callbacks.pop("XREAD", None)
    return client


def _url_of(cluster: ClusterUrl, node: tuple[str, int]) -> str:
    host, port = node
    return f"{'rediss' if cluster.tls else 'redis'}://{f'[{host}]' if ':' in host else host}:{port}"


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
