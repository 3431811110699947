"""The errors of redis-py, under names that exist even if it is not installed: nothing raises them then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis.exceptions import RedisError, ResponseError
else:
    try:
        from redis.exceptions import RedisError, ResponseError
    except ModuleNotFoundError:

        class RedisError(Exception):
            """Stands for redis-py's base error."""

        class ResponseError(RedisError):
            """Stands for redis-py's error for an error reply."""


__all__ = ["RedisError", "ResponseError"]
