"""A cache for repeated requests: a request is in progress, or done with its response.

It only saves a query to PostgreSQL. Redis may be down, slow, wiped, or give one request the reply of another:
then the cache returns *nothing known*, within a short time, and the idempotency key in PostgreSQL decides
alone. The key schema is documented at the head of `response_begin.lua`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from fencepost.redis_streams import _keys as keys
from fencepost.redis_streams.errors import RedisError

if TYPE_CHECKING:
    from redis.asyncio import Redis

_FOLDER = Path(__file__).parent
_PENDING = "pending "
_DONE = "done "


@dataclass(frozen=True, slots=True)
class CacheKey:
    """A request as the cache identifies it. The digest covers the method and the body."""

    scope: str
    key: str
    digest: str

    @property
    def cache_key(self) -> str:
        """The key in Redis."""
        return keys.response(self.scope, self.key)


@dataclass(frozen=True, slots=True)
class Announced:
    """This caller executes the request; the token withdraws the announcement."""

    token: str


@dataclass(frozen=True, slots=True)
class InProgress:
    """Another node executes it, or did until it died; ask again after this time."""

    retry_seconds: float


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """It committed, and this is its response, also as text."""

    response: Any
    body: str


@dataclass(frozen=True, slots=True)
class CacheUnavailable:
    """Redis gives no information at present."""


Finding: TypeAlias = Announced | InProgress | CachedResponse | CacheUnavailable


class ResponseCache:
    """Never raises and never waits long. After a failure it does not use Redis for a moment.

    `on_error` is called with the kind of each failure.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        wait_seconds: float,
        pending_seconds: float,
        keep_seconds: float,
        rest_seconds: float = 1.0,
        on_error: Callable[[str], None] = lambda kind: None,
    ) -> None:
        # Its methods are annotated for sync and async at once, so every result is narrowed here.
        self._redis: Any = redis
        self._wait_seconds = wait_seconds
        self._pending_ms = round(pending_seconds * 1000)
        self._keep_ms = round(keep_seconds * 1000)
        self._rest_seconds = rest_seconds
        self._on_error = on_error
        self._resting_until = 0.0
        self._begin, self._complete, self._abandon = (
            self._redis.register_script((_FOLDER / f"response_{name}.lua").read_text(encoding="utf-8"))
            for name in ("begin", "complete", "abandon")
        )

    async def begin(self, name: CacheKey) -> Finding:
        """Look for a stored response; without one, mark the request as pending for this caller."""
        token = secrets.token_hex(8)
        now_ms = time.time_ns() // 1_000_000
        seen = await self._ask(
            lambda: self._begin(keys=[name.cache_key], args=[token, self._pending_ms, now_ms])
        )
        if seen is _FAILED:
            return CacheUnavailable()
        return Announced(token) if seen is None else _read(str(seen), name, now_ms, self._pending_ms)

    async def complete(self, name: CacheKey, body: str) -> None:
        """Keep the response of a committed request, as text. If it is lost here, PostgreSQL still has it."""
        document = json.dumps({**asdict(name), "body": body}, separators=(",", ":"))
        await self._ask(lambda: self._complete(keys=[name.cache_key], args=[document, self._keep_ms]))

    async def abandon(self, name: CacheKey, token: str) -> None:
        """It did not commit, or the outcome is unknown: let the next request ask PostgreSQL at once."""
        await self._ask(lambda: self._abandon(keys=[name.cache_key], args=[token]))

    async def close(self) -> None:
        """Close the connections to Redis."""
        await self._redis.aclose()

    async def _ask(self, command: Callable[[], Awaitable[Any]]) -> Any:
        if time.monotonic() < self._resting_until:
            return _FAILED
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await command()
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            # redis-py's parser raises ValueError for bytes that are not a reply.
            self._resting_until = time.monotonic() + self._rest_seconds
            self._on_error(type(error).__name__)
            return _FAILED


def kept_response(seen: str | None) -> dict[str, str] | None:
    """What a key of the cache holds: scope, key, digest and body of an answered request; None for others."""
    try:
        document: Any = json.loads(seen.removeprefix(_DONE)) if seen and seen.startswith(_DONE) else None
    except (ValueError, RecursionError):
        return None
    names = ("scope", "key", "digest", "body")
    facts = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if not all(isinstance(facts.get(name), str) for name in names):
        return None
    return {name: facts[name] for name in names}


_FAILED = object()


def _read(seen: str, name: CacheKey, now_ms: int, pending_ms: int) -> Finding:
    """The cached value, trusted only if it names the request that was asked for.

    Another digest is another request under the same key: PostgreSQL reports that.
    """
    if seen.startswith(_PENDING):
        _, _, ends = seen.rpartition(" ")
        left_ms = int(ends) - now_ms if ends.isascii() and ends.isdigit() and len(ends) < 20 else -1
        # An announcement lasts at most `pending_ms`; clocks may differ by as much again.
        return InProgress(left_ms / 1000) if 0 <= left_ms <= 2 * pending_ms else CacheUnavailable()
    try:
        document: Any = json.loads(seen.removeprefix(_DONE)) if seen.startswith(_DONE) else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        return CacheUnavailable()
    facts = cast("dict[str, Any]", document)
    body = facts.get("body")
    if not isinstance(body, str) or facts != {**asdict(name), "body": body}:
        return CacheUnavailable()
    try:
        return CachedResponse(json.loads(body), body)
    except (ValueError, RecursionError):
        return CacheUnavailable()
