"""The errors of redis-py, by names that exist where it is not installed: nothing raises them there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis.exceptions import RedisError, ResponseError
else:
    try:
        from redis.exceptions import RedisError, ResponseError
    except ModuleNotFoundError:

        class RedisError(Exception):
            """What redis-py would raise."""

        class ResponseError(RedisError):
            """What redis-py would raise for an answer that is an error."""


__all__ = ["RedisError", "ResponseError"]
