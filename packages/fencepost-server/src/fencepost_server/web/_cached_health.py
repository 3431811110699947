"""The health page for unauthenticated callers: its status, without the reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fencepost.metrics_server import MetricsPage, Route

FRESH_SECONDS = 1.0


class CachedHealth:
    """Checks at most once a second for all callers: anyone may ask, and each check connects to the
    servers."""

    def __init__(self, route: Route, *, now: Callable[[], float] = time.monotonic) -> None:
        self._route = route
        self._now = now
        self._looking = threading.Lock()
        self._seen: MetricsPage | None = None
        self._seen_at = 0.0

    def page(self) -> MetricsPage:
        with self._looking:
            if self._seen is None or self._now() - self._seen_at >= FRESH_SECONDS:
                status = self._route().status
                self._seen = MetricsPage(b"ok\n" if status < 400 else b"not ready\n", status=status)
                self._seen_at = self._now()
            return self._seen
