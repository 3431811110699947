"""Clients of the primary that Sentinels name."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel


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
