"""Clients of the primary that Sentinels name."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.sentinel


class WaitingSentinelPool(
    redis.asyncio.sentinel.SentinelConnectionPool, redis.asyncio.BlockingConnectionPool
):
    """A bounded pool of connections to the primary."""


class FollowingRedis(redis.asyncio.Redis):
    """A client of the primary. A new connection asks a Sentinel for the primary; so does a refused one."""

    sentinel: Any

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Also closes the connections to the Sentinels: redis-py leaves them to their creator."""
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
