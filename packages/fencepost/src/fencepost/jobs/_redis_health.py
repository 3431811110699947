"""The state of the connection to Redis: up or down, with callbacks on a change.

Redis only dispatches. While it is down, workers claim directly from PostgreSQL; when it is back, they return
to the streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fencepost.backoff import Backoff
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs.settings import JobSettings
from fencepost.logs import get_logger
from fencepost.redis_streams.connection import connect
from fencepost.redis_streams.errors import RedisError
from fencepost.redis_streams.stream import Streams
from fencepost.signals import announce

_log = get_logger(__name__)
PROBES = Backoff(1.0, 30.0, jitter=0)
STEADY_SECONDS = 10.0
REDIS_ERRORS = (RedisError, OSError)
"""Errors that mean Redis is unavailable. redis-py wraps most socket errors, but not all."""


class RedisHealth:
    """Redis as this process sees it. `streams` is None while it is down."""

    def __init__(
        self, url: str | None, metrics: JobMetrics, settings: JobSettings, *, reply_seconds: float
    ) -> None:
        self._metrics = metrics
        self.reply_seconds = reply_seconds
        self._key = settings.stream_key
        self._on_change: list[Callable[[], None]] = []
        self._redis = None if url is None else connect(url, reply_seconds=reply_seconds)
        self._streams = None if self._redis is None else Streams(self._redis, settings.stream_group)
        # Neither up nor down at first, so that both are a change.
        self._up: bool | None = None
        self._up_since = 0.0
        self._falls = 1
        """In a row: a Redis that answers only the probe is probed less and less often."""
        self.losses = 0

    @property
    def streams(self) -> Streams | None:
        return self._streams if self._up else None

    def on_change(self, callback: Callable[[], None]) -> None:
        self._on_change.append(callback)

    async def probe(self) -> float:
        """One tick of the loop that probes Redis; returns the delay until the next probe."""
        if self._streams is None:
            self._set(up=False, why="REDIS_URL is not set")
            return 3600
        try:
            await self._streams.probe(self._key)
        except REDIS_ERRORS as error:
            self.failed(error)
        else:
            self._set(up=True, why="it answers")
        return PROBES.seconds(self._falls)

    def failed(self, error: Exception) -> None:
        """Called after an error: work continues without Redis until it answers again."""
        if self._up:
            steady = time.monotonic() - self._up_since > STEADY_SECONDS
            self._falls = 1 if steady else self._falls + 1
        self._set(up=False, why=f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()

    def _set(self, *, up: bool, why: str) -> None:
        self._metrics.redis_up.set(int(up))
        if up == self._up:
            return
        self._up = up
        if up:
            self._up_since = time.monotonic()
        else:
            self.losses += 1
        # Being up at the start is not logged; being up again ends a warning.
        say = _log.debug if up and not self.losses else _log.warning
        say("redis_drives" if up else "postgresql_drives_alone", why=why)
        announce("drive.up" if up else "drive.down")
        for callback in self._on_change:
            callback()
