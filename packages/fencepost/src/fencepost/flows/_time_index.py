"""Indexes by time beside a keyed state: what is over is found without a look at what is not.

They are derived from the state: nothing of them is stored, and a restore builds them again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import count
from typing import Any

PARTS = 64
"""Into how many buckets a time to live is divided. A key is deleted at most one bucket after its time."""


class TimeBuckets:
    """Keys in buckets by time. Buckets are numbers; the keys of one have the order in which they came."""

    def __init__(self) -> None:
        self._keys: dict[float, dict[Hashable, None]] = {}
        self._order: list[float] = []

    def add(self, bucket: float, key: Hashable) -> None:
        """Add a key, which is in a bucket at most once."""
        keys = self._keys.get(bucket)
        if keys is None:
            self._keys[bucket] = {key: None}
            heapq.heappush(self._order, bucket)
        else:
            keys[key] = None

    def take(self, is_over: Callable[[float], bool]) -> Iterator[tuple[float, Iterable[Any]]]:
        """Remove the buckets from the first one up to the first that is not over; each with its keys."""
        while self._order and is_over(self._order[0]):
            bucket = heapq.heappop(self._order)
            yield bucket, self._keys.pop(bucket)


class Expiry:
    """When keys were touched last, and which of them have outlived their time to live.

    A key is in one bucket, that of its time when it was added. A later touch moves nothing: the key moves
    when its bucket is over. So a touch costs nothing, and a key is looked at once in a bucket's time.
    """

    def __init__(self, ttl_seconds: float, touched: Callable[[Any], float | None]) -> None:
        """`touched` tells when a key was touched last; None for a key that is gone."""
        self._ttl_seconds = ttl_seconds
        self._width = ttl_seconds / PARTS
        self._touched = touched
        self._buckets = TimeBuckets()

    def add(self, key: Hashable, time: float) -> None:
        """Called for a key that is new, or may have left its bucket."""
        self._buckets.add(time // self._width, key)

    def expired(self, watermark: float) -> list[Any]:
        """Forget and return the keys whose time is over."""
        ttl, width = self._ttl_seconds, self._width
        over: list[Any] = []
        moved: list[tuple[Any, float]] = []
        for _, keys in self._buckets.take(lambda bucket: (bucket + 1) * width + ttl <= watermark):
            for key in keys:
                time = self._touched(key)
                if time is None:
                    continue
                if time + ttl <= watermark:
                    over.append(key)
                else:
                    moved.append((key, time))
        for key, time in moved:
            self.add(key, time)
        return over


class Deadlines:
    """The next deadline of each key, exactly. A key has one that counts; others of it are passed over."""

    def __init__(self) -> None:
        self._next: dict[Any, float] = {}
        self._heap: list[tuple[float, int, Any]] = []
        self._number = count()

    def add(self, key: Hashable, time: float) -> None:
        """Set the key's deadline, unless it has an earlier one: then it is asked again at that one."""
        before = self._next.get(key)
        if before is None or time < before:
            self._next[key] = time
            heapq.heappush(self._heap, (time, next(self._number), key))

    def first(self, until: float) -> tuple[float, list[Any]] | None:
        """Forget and return the keys with the earliest deadline; None if it has not come."""
        while self._heap and self._heap[0][0] <= until:
            at = self._heap[0][0]
            if keys := self.due(at):
                return at, keys
        return None

    def due(self, watermark: float) -> list[Any]:
        """Forget and return the keys whose deadline has come."""
        keys: list[Any] = []
        while self._heap and self._heap[0][0] <= watermark:
            time, _, key = heapq.heappop(self._heap)
            if self._next.get(key) == time:
                del self._next[key]
                keys.append(key)
        return keys
