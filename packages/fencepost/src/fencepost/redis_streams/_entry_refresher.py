"""Keeps entries fresh while their jobs run, from the heartbeat's thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from fencepost.redis_streams.connection import connect_sync
from fencepost.redis_streams.stream import StreamEntry


class EntryRefresher:
    """Resets the idle time of entries, so that a long job's entry is not considered abandoned."""

    def __init__(self, url: str, group: str, consumer: str, *, reply_seconds: float) -> None:
        self._redis: Any = connect_sync(url, reply_seconds=reply_seconds)
        self._group = group
        self._consumer = consumer

    def refresh(self, entries: Iterable[StreamEntry]) -> None:
        """One round trip. JUSTID keeps the delivery count; acknowledged entries stay acknowledged."""
        by_stream: defaultdict[str, list[str]] = defaultdict(list)
        for entry in entries:
            by_stream[entry.stream].append(entry.entry_id)
        if not by_stream:
            return
        pipe = self._redis.pipeline(transaction=False)
        for stream, entry_ids in by_stream.items():
            pipe.xclaim(stream, self._group, self._consumer, 0, entry_ids, justid=True)
        pipe.execute()

    def close(self) -> None:
        self._redis.close()
