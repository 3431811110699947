"""The errors of redis-py, under names that exist even if it is not installed: nothing raises them then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import RedisError, ResponseError
    from redis.exceptions import TimeoutError as RedisTimeoutError
else:
    try:
        from redis.exceptions import ConnectionError as RedisConnectionError
        from redis.exceptions import RedisError, ResponseError
        from redis.exceptions import TimeoutError as RedisTimeoutError
    except ModuleNotFoundError:

        class RedisError(Exception):
            """Stands for redis-py's base error."""

        class ResponseError(RedisError):
            """Stands for redis-py's error for an error reply."""

        class RedisConnectionError(RedisError):
            """Stands for redis-py's error for a connection that fails."""

        class RedisTimeoutError(RedisError):
            """Stands for redis-py's error for a reply that does not come."""


__all__ = ["RedisConnectionError", "RedisError", "RedisTimeoutError", "ResponseError"]
