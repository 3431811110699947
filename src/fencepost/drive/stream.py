"""One lane's stream: dispatched in batches, read by a group, settled in batches.

The key schemas stand at the heads of the Lua files.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from fencepost.drive.lanes import beside

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as it was delivered; `fields` is whatever somebody wrote there."""

    stream: str
    entry_id: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Dispatched:
    incarnation: str
    entry_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Look:
    """What a stream holds at this moment."""

    incarnation: str | None
    length: int
    first_id: str | None
    last_delivered_id: str | None
    pending: int


class Streams:
    """The streams of one Redis, as one group sees them."""

    def __init__(self, redis: Redis, group: str) -> None:
        self._redis = redis
        self.group = group
        self._dispatch = redis.register_script((_FOLDER / "dispatch.lua").read_text())
        self._settle = redis.register_script((_FOLDER / "settle.lua").read_text())

    async def ensure_group(self, stream: str) -> None:
        """Make stream and group. From 0 and not from the end: what was written before the group belongs to it
        too."""
        try:
            await self._redis.xgroup_create(stream, self.group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def dispatch(self, stream: str, lane: int, job_ids: Sequence[int], maxlen: int) -> Dispatched:
        """Write a batch of entries with one script."""
        arguments: list[str | int] = [
            maxlen,
            secrets.token_hex(8),
            lane,
            time.time_ns() // 1_000_000,
            *job_ids,
        ]
        answer: Any = await self._dispatch(keys=[stream, beside(stream, "incarnation")], args=arguments)
        return Dispatched(str(answer[0]), [str(entry_id) for entry_id in answer[1:]])

    async def length(self, stream: str) -> int:
        """Settled entries are removed, so this is what is undelivered and pending."""
        return int(await self._redis.xlen(stream))

    async def read(self, counts: Mapping[str, int], consumer: str) -> list[Entry]:
        """New entries, at most so many of each stream, in one round trip and without waiting."""
        pipe = self._redis.pipeline(transaction=False)
        for stream, count in counts.items():
            pipe.xreadgroup(self.group, consumer, {stream: ">"}, count=count)
        return [entry for answer in await pipe.execute() for entry in _entries(answer)]

    async def wait(self, streams: Sequence[str], consumer: str, count: int, block_ms: int) -> list[Entry]:
        """New entries of any of the streams; waits for the first."""
        answer: Any = await self._redis.xreadgroup(
            self.group, consumer, dict.fromkeys(streams, ">"), count=count, block=block_ms
        )
        return _entries(answer)

    async def settle(self, stream: str, entry_ids: Sequence[str]) -> int:
        """Acknowledge and remove entries with one script."""
        return int(await self._settle(keys=[stream], args=[self.group, *entry_ids]))

    async def claim_idle(
        self, stream: str, consumer: str, min_idle_ms: int, cursor: str, count: int
    ) -> tuple[str, list[Entry]]:
        """Take over entries that nobody has touched for `min_idle_ms`; answers the next cursor."""
        answer: Any = await self._redis.xautoclaim(
            stream, self.group, consumer, min_idle_ms, cursor, count=count
        )
        entries = [Entry(stream, entry_id, fields or {}) for entry_id, fields in answer[1]]
        return str(answer[0]), entries

    async def look(self, stream: str) -> Look:
        """What the stream holds; all of it empty when Redis has lost it."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.get(beside(stream, "incarnation"))
        pipe.xlen(stream)
        pipe.xrange(stream, count=1)
        pipe.xinfo_groups(stream)
        incarnation, length, first, groups = await pipe.execute(raise_on_error=False)
        group = (
            next((g for g in groups if g["name"] == self.group), None) if isinstance(groups, list) else None
        )
        return Look(
            incarnation if isinstance(incarnation, str) else None,
            length if isinstance(length, int) else 0,
            first[0][0] if isinstance(first, list) and first else None,
            group["last-delivered-id"] if group else None,
            int(group["pending"]) if group else 0,
        )

    async def are_pending(self, stream: str, entry_ids: Sequence[str]) -> list[bool]:
        """Whether each entry is pending for somebody."""
        pipe = self._redis.pipeline(transaction=False)
        for entry_id in entry_ids:
            pipe.xpending_range(stream, self.group, min=entry_id, max=entry_id, count=1)
        return [bool(answer) for answer in await pipe.execute()]


def entry_order(entry_id: str) -> tuple[int, int]:
    """Entry ids compare by their two numbers, not by their text."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def _entries(answer: Any) -> list[Entry]:
    """RESP2 answers pairs, RESP3 a mapping from the stream to lists of them."""
    if not answer:
        return []
    if isinstance(answer, dict):
        by_stream: Any = [(stream, [e for part in parts for e in part]) for stream, parts in answer.items()]
    else:
        by_stream = answer
    return [
        Entry(stream, entry_id, fields or {}) for stream, entries in by_stream for entry_id, fields in entries
    ]
