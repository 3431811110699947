"""The link to Redis: up or down, and who wants to know.

Redis only drives. While it is down, workers claim straight from PostgreSQL; when it is back, they return to
the streams.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from fencepost.drive.stream import Streams
from fencepost.jobs.metrics import JobMetrics
from fencepost.signals import announce

_log = structlog.get_logger(__name__)
PROBE_SECONDS = 1.0


class DriveLink:
    """Redis as this process sees it. `streams` is None while it is down."""

    def __init__(self, url: str | None, group: str, metrics: JobMetrics, *, reply_seconds: float) -> None:
        self._metrics = metrics
        self._on_change: list[Callable[[], None]] = []
        self._redis = None if url is None else connect(url, reply_seconds=reply_seconds)
        self._streams = None if self._redis is None else Streams(self._redis, group)
        self._up = False

    @property
    def streams(self) -> Streams | None:
        return self._streams if self._up else None

    def on_change(self, callback: Callable[[], None]) -> None:
        self._on_change.append(callback)

    async def probe(self) -> float:
        """One tick of the loop that watches it; answers when to look again."""
        if self._redis is None:
            return 3600
        try:
            await self._redis.ping()
        except (RedisError, OSError) as error:
            self.failed(error)
        else:
            self._set(up=True, why="it answers")
        return PROBE_SECONDS

    def failed(self, error: Exception) -> None:
        """Somebody met an error: work goes on without Redis until it answers again."""
        self._set(up=False, why=str(error))

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()

    def _set(self, *, up: bool, why: str) -> None:
        self._metrics.drive_up.set(int(up))
        if up == self._up:
            return
        self._up = up
        _log.warning("redis_drives" if up else "postgresql_drives_alone", why=why)
        announce("drive.up" if up else "drive.down")
        for callback in self._on_change:
            callback()


def connect(url: str, *, reply_seconds: float) -> Redis:
    """No retries inside the client: a retried XADD is a second entry, and our loops retry with open eyes."""
    return Redis.from_url(  # pyright: ignore[reportUnknownMemberType] -- redis-py annotates it in part only.
        url,
        decode_responses=True,
        socket_timeout=reply_seconds,
        socket_connect_timeout=reply_seconds,
        retry=Retry(NoBackoff(), 0),
    )
