"""The fast answer to a request that was sent again: under way, or done and what it answered.

It only spares PostgreSQL a question. Redis may be down, slow, wiped, or give one request the reply of
another: then this says *nothing known*, within a short time, and the marker in PostgreSQL decides alone. The
key schema stands at the head of `response_begin.lua`.
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

from fencepost.redis_streams.errors import RedisError

if TYPE_CHECKING:
    from redis.asyncio import Redis

_FOLDER = Path(__file__).parent
_PENDING = "pending "
_DONE = "done "


@dataclass(frozen=True, slots=True)
class CacheKey:
    """A request as the cache knows it. The digest covers the method and the body."""

    scope: str
    key: str
    digest: str

    @property
    def cache_key(self) -> str:
        return f"fencepost:mutation:{{{self.scope}/{self.key}}}"


@dataclass(frozen=True, slots=True)
class Announced:
    """It is ours to do; the token withdraws the announcement."""

    token: str


@dataclass(frozen=True, slots=True)
class InProgress:
    """Another node does it, or did until it died; ask again after so long."""

    retry_seconds: float


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """It committed, and this was its answer, as its text too."""

    response: Any
    body: str


@dataclass(frozen=True, slots=True)
class CacheUnavailable:
    """Redis does not help at present."""


Finding: TypeAlias = Announced | InProgress | CachedResponse | CacheUnavailable


class ResponseCache:
    """Never raises and never waits long. After a failure it leaves Redis alone for a moment.

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
        # Its methods are annotated for sync and async at once, so every answer is narrowed here.
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
        token = secrets.token_hex(8)
        now_ms = time.time_ns() // 1_000_000
        seen = await self._ask(
            lambda: self._begin(keys=[name.cache_key], args=[token, self._pending_ms, now_ms])
        )
        if seen is _FAILED:
            return CacheUnavailable()
        return Announced(token) if seen is None else _read(str(seen), name, now_ms, self._pending_ms)

    async def complete(self, name: CacheKey, body: str) -> None:
        """Keep the answer of what has committed, as its text. An answer lost here is found in PostgreSQL."""
        document = json.dumps({**asdict(name), "body": body}, separators=(",", ":"))
        await self._ask(lambda: self._complete(keys=[name.cache_key], args=[document, self._keep_ms]))

    async def abandon(self, name: CacheKey, token: str) -> None:
        """It did not commit, or nobody knows: let the next one ask PostgreSQL at once."""
        await self._ask(lambda: self._abandon(keys=[name.cache_key], args=[token]))

    async def close(self) -> None:
        await self._redis.aclose()

    async def _ask(self, command: Callable[[], Awaitable[Any]]) -> Any:
        if time.monotonic() < self._resting_until:
            return _FAILED
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await command()
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            # ValueError is what its parser says to bytes that are no reply.
            self._resting_until = time.monotonic() + self._rest_seconds
            self._on_error(type(error).__name__)
            return _FAILED


_FAILED = object()


def _read(seen: str, name: CacheKey, now_ms: int, pending_ms: int) -> Finding:
    """What stands there, believed only as far as it names the request that was asked for.

    Another digest is another request under the same key: PostgreSQL will say so.
    """
    if seen.startswith(_PENDING):
        _, _, ends = seen.rpartition(" ")
        left_ms = int(ends) - now_ms if ends.isascii() and ends.isdigit() and len(ends) < 20 else -1
        # Nobody announces himself for longer than he may; clocks may differ by as much again.
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
