"""The stream of one priority: dispatched in batches, read by a group, settled in batches.

The key schemas are documented at the heads of the Lua files.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.redis_streams._keys import beside
from fencepost.redis_streams.errors import ResponseError

if TYPE_CHECKING:
    from redis.asyncio import Redis

_FOLDER = Path(__file__).parent
CONSUMER_MEMORY_MS = 3_600_000
PROBE_MEMORY_SECONDS = 60


FIELDS = frozenset({"job_id", "enqueue_ts", "payload_ref", "priority"})
JOB_ID_DIGITS_MAX = 18


class StreamEntry(NamedTuple):
    """An entry as it was delivered.

    `job_id` is the job that it names, None if it names none. Then `fields` is what another writer put there;
    None if the entry was removed.
    """

    stream: str
    entry_id: str
    job_id: int | None
    fields: Mapping[str, str] | None = None

    @property
    def place(self) -> tuple[str, str]:
        """Its stream and id: two streams may use the same id."""
        return self.stream, self.entry_id


@dataclass(frozen=True, slots=True)
class Dispatched:
    incarnation: str
    entry_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class StreamLook:
    """The present contents of a stream; None for what does not exist."""

    incarnation: str | None
    length: int
    first_id: str | None
    last_generated_id: str | None
    entries_added: int
    last_delivered_id: str | None
    pending: int


class Streams:
    """The streams of one Redis, as one group sees them."""

    def __init__(self, redis: Redis, group: str) -> None:
        # Its methods are annotated for sync and async at once, so every result is narrowed here.
        self._redis: Any = redis
        self.group = group
        self._dispatch = self._script("dispatch")
        self._take = self._script("take")
        self._settle = self._script("settle")
        self._sweep = self._script("sweep")
        self._depart = self._script("depart")

    async def probe(self, key: str) -> None:
        """Whether Redis answers and accepts writes: a full one, or a replica, could not dispatch."""
        await self._redis.set(beside(key, "probe"), "1", ex=PROBE_MEMORY_SECONDS)

    async def dispatch(self, stream: str, priority: int, job_ids: Sequence[int], maxlen: int) -> Dispatched:
        """Write a batch of entries with one script: all, or the first ones if half of `maxlen` is reached."""
        now_ms = time.time_ns() // 1_000_000
        answer = await self._dispatch(
            keys=[stream, beside(stream, "incarnation")],
            args=[maxlen, secrets.token_hex(8), priority, now_ms, " ".join(map(str, job_ids))],
        )
        return Dispatched(answer[0], answer[1].split())

    async def length(self, stream: str) -> int:
        """Settled entries are removed, so this counts undelivered and pending entries."""
        return int(await self._redis.xlen(stream))

    async def readers(self, stream: str) -> int:
        """The number of consumers in the group: those that left are not counted, dead ones may be."""
        try:
            groups = await self._redis.xinfo_groups(stream)
        except ResponseError as error:
            if "no such key" in str(error):
                return 0
            raise
        return sum(int(group["consumers"]) for group in groups if group["name"] == self.group)

    async def take(self, parts: Mapping[str, int], limit: int, consumer: str) -> list[StreamEntry]:
        """New entries, up to each stream's part and at most `limit` in total, without waiting."""
        answer = await self._take(keys=list(parts), args=[self.group, consumer, limit, *parts.values()])
        entries: list[StreamEntry] = []
        for stream, known, others in answer:
            words = iter(known.split())
            entries += [
                StreamEntry(stream, entry_id, int(job_id))
                for entry_id, job_id in zip(words, words, strict=True)
            ]
            entries += [_entry(stream, entry_id, _fields(flat)) for entry_id, flat in others]
        return entries

    async def wait(
        self, streams: Sequence[str], consumer: str, count: int, block_ms: int
    ) -> list[StreamEntry]:
        """New entries of any of the streams, at most `count` of each; waits for the first."""
        answer = await self._redis.xreadgroup(
            self.group, consumer, dict.fromkeys(streams, ">"), count=count, block=block_ms
        )
        return _entries(answer)

    async def held_by(self, consumer: str, stream: str, after: str, count: int) -> list[StreamEntry]:
        """Entries that are pending for a consumer, after the given id: the consumer may not know of them."""
        answer = await self._redis.xreadgroup(self.group, consumer, {stream: after}, count=count)
        return _entries(answer)

    async def settle(self, stream: str, entry_ids: Sequence[str]) -> int:
        """Acknowledge and remove entries with one script."""
        return int(await self._settle(keys=[stream], args=[self.group, " ".join(entry_ids)]))

    async def claim_idle(
        self, stream: str, consumer: str, min_idle_ms: int, cursor: str, count: int
    ) -> tuple[str, list[StreamEntry]]:
        """Take over entries that were idle for `min_idle_ms`; returns the next cursor too."""
        answer = await self._redis.xautoclaim(stream, self.group, consumer, min_idle_ms, cursor, count=count)
        return str(answer[0]), [_entry(stream, entry_id, fields) for entry_id, fields in answer[1]]

    async def sweep(self, stream: str) -> StreamLook:
        """Remove what is no longer needed, and return what the stream holds."""
        answer = await self._sweep(
            keys=[stream, beside(stream, "incarnation")], args=[self.group, CONSUMER_MEMORY_MS]
        )
        return StreamLook(
            answer[0] or None,
            int(answer[1]),
            answer[2] or None,
            answer[3] or None,
            int(answer[4]),
            answer[5] or None,
            int(answer[6]),
        )

    async def are_pending(self, stream: str, entry_ids: Sequence[str]) -> list[bool]:
        """Whether each entry is pending for any consumer."""
        pipe = self._redis.pipeline(transaction=False)
        for entry_id in entry_ids:
            pipe.xpending_range(stream, self.group, min=entry_id, max=entry_id, count=1)
        return [bool(answer) for answer in await pipe.execute()]

    async def depart(self, stream: str, consumer: str) -> None:
        """Remove a consumer that leaves, unless entries are pending for it."""
        await self._depart(keys=[stream], args=[self.group, consumer])

    def _script(self, name: str) -> Any:
        return self._redis.register_script((_FOLDER / f"{name}.lua").read_text(encoding="utf-8"))


def is_missing_group(error: Exception) -> bool:
    """Redis was wiped, or the stream was never read: the next take makes the group."""
    text = str(error)
    return isinstance(error, ResponseError) and ("NOGROUP" in text or "UNBLOCKED" in text)


def entry_order(entry_id: str) -> tuple[int, int]:
    """Entry ids compare by their two numbers, not by their text."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def _entries(answer: Any) -> list[StreamEntry]:
    """RESP2 returns pairs, RESP3 a mapping from the stream to lists of them."""
    if not answer:
        return []
    by_stream: Any = answer.items() if hasattr(answer, "items") else answer
    if hasattr(answer, "items"):
        by_stream = [(stream, [entry for part in parts for entry in part]) for stream, parts in by_stream]
    return [_entry(stream, entry_id, fields) for stream, entries in by_stream for entry_id, fields in entries]


def _entry(stream: str, entry_id: str, fields: Mapping[str, str] | None) -> StreamEntry:
    job_id = (fields or {}).get("job_id", "")
    known = fields is not None and fields.keys() >= FIELDS
    if known and job_id.isascii() and job_id.isdigit() and len(job_id) <= JOB_ID_DIGITS_MAX:
        return StreamEntry(stream, entry_id, int(job_id))
    return StreamEntry(stream, entry_id, None, fields or None)


def _fields(flat: Sequence[str] | None) -> Mapping[str, str] | None:
    return dict(zip(flat[::2], flat[1::2], strict=True)) if flat else None
