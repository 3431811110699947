"""Sinks in Redis. Each is only as durable as that Redis.

The values of a commit are stored in the checkpoint before they are written, so that a repeat writes the same
ones; and the script that writes them also records their checkpoint, so that a repeat writes nothing. Redis
loses its newest writes when it is restarted without an append-only file: then its frontier is behind the
checkpoint, or behind what this process has seen of it, and the task goes back to the checkpoint that Redis
has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from fencepost.flows._errors import StartRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import IdempotentRecord, Offset
from fencepost.flows._redis_client import connect_bytes
from fencepost.flows.sinks._rejecting import STOP, OnReject, Rejections, converted
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import StagedSink
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.redis_streams import _keys as keys

_FOLDER = Path(__file__).parent
Kind = Literal["list", "hash", "set", "stream"]
_json = msgspec.json.Encoder().encode


def as_bytes(value: Any) -> bytes:
    """Bytes and text as they are, everything else as JSON."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _json(value)


class RedisScriptSink(StagedSink):
    """Writes values with one script, which also records their checkpoint."""

    numbered = True
    script: ClassVar[str]

    def __init__(self, key: str, frontier_key: str | None, url: str | None, on_reject: OnReject) -> None:
        self.on_reject = on_reject
        self._key = key
        self._frontier_key = frontier_key or keys.of_sink("frontier", key)
        self._url = url
        self._redis: Any = None
        self._users = 0
        self._take: Any = None
        self._seen: dict[str, int] = {}

    @property
    def kind(self) -> Kind:
        """The Redis type of the key."""
        return "list"

    async def open(self, context: FlowContext) -> None:
        self._users += 1
        if self._redis is None:
            self._redis = connect_bytes(self._url or context.redis_url, f"The sink {self._key}")
        self._take = self._redis.register_script((_FOLDER / self.script).read_text(encoding="utf-8"))
        found = (await self._redis.type(self._key)).decode()
        if found not in ("none", self.kind):
            raise StartRefused(
                f"The sink {self._key} writes a {self.kind}, and that key holds a {found}. Name another key, "
                f"or remove it: redis-cli del {self._key}"
            )

    async def close(self) -> None:
        """Close the connection after the last user has closed: two workers of one process may share a
        sink."""
        self._users = max(0, self._users - 1)
        if self._redis is not None and self._users == 0:
            client, self._redis = self._redis, None
            await client.aclose()

    async def position(self, resource: str) -> int | None:
        held = await self._redis.hget(self._frontier_key, resource)
        self._seen[resource] = int(held or 0)
        return None if held is None else int(held)

    async def restored(self, resource: str, number: int) -> None:
        """Redis has everything up to this checkpoint, also after a rewind, which gives it a new number."""
        await self.deliver(CheckpointId(resource, 0, number), ())


class RedisSink(RedisScriptSink):
    """A list, set, hash or stream, written together with its frontier in one script.

    A hash takes (field, value) pairs. `frontier_key` is derived from `key` so that both are in one slot.
    `acknowledges` is a source with a group on the same Redis: the script acknowledges its entries too. With
    key groups only the source knows what all groups have taken, and it acknowledges the entries.
    """

    script = "take.lua"
    promise = Promise(EXACTLY_ONCE, "one script writes the values and the frontier")

    def __init__(
        self,
        kind: Kind,
        key: str,
        *,
        encode: Callable[[Any], bytes] = as_bytes,
        frontier_key: str | None = None,
        acknowledges: RedisStreams | None = None,
        url: str | None = None,
        on_reject: OnReject = STOP,
    ) -> None:
        super().__init__(key, frontier_key, url, on_reject)
        self._kind: Kind = kind
        self._source = acknowledges
        self._encode = encode

    @property
    def kind(self) -> Kind:
        return self._kind

    @property
    def keyed(self) -> bool:  # type: ignore[override]
        """A field of a hash is replaced by its next value."""
        return self._kind == "hash"

    async def open(self, context: FlowContext) -> None:
        streams: Iterable[str] = () if self._source is None else self._source.streams.values()
        _one_slot(self._key, self._frontier_key, *streams)
        if self._source is not None and self._source.group is None:
            raise StartRefused(
                f"The sink {self._key} is to acknowledge entries of {self._source.name}, which has no group. "
                "Give RedisStreams a group, or leave acknowledges out."
            )
        if self._source is not None and (self._source.url or context.redis_url) != (
            self._url or context.redis_url
        ):
            raise StartRefused(
                f"The sink {self._key} is to acknowledge entries of {self._source.name} in one script, and "
                "they are in different servers. Give both the same url, or leave acknowledges out."
            )
        await super().open(context)

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        # Before the call to Redis, so that a repeat, which Redis skips, returns the same rejections.
        made, rejected = converted(values, self._cells)
        if rejected and self.on_reject == STOP:
            return rejected
        cells = [cell for of_one in made for cell in of_one]
        acknowledged = self._acknowledged(checkpoint)
        group = "" if self._source is None else self._source.group or ""
        await self._take(
            keys=[self._key, self._frontier_key, *acknowledged],
            args=[
                self._kind,
                checkpoint.resource,
                checkpoint.number,
                self._seen.get(checkpoint.resource, 0),
                group,
                len(acknowledged),
                *acknowledged.values(),
                *cells,
            ],
        )
        self._seen[checkpoint.resource] = checkpoint.number
        return rejected

    def _cells(self, value: Any) -> Sequence[bytes]:
        if self._kind != "hash":
            return (self._encode(value),)
        name, content = value
        return as_bytes(name), self._encode(content)

    def _acknowledged(self, checkpoint: CheckpointId) -> dict[str, Offset]:
        """The offset that each stream reaches with this checkpoint."""
        if self._source is None or "/group/" in checkpoint.resource:
            return {}
        reached = checkpoint.reached
        return {stream: reached.get(sender) or "" for sender, stream in self._source.streams.items()}


class RedisIdempotentList(RedisScriptSink):
    """A list that takes each record once, and of two IdempotentRecords with one id only the first.

    The frontier guarantees that a repeat after a crash changes nothing, however late it is. Ids are kept for
    `ttl_seconds`: they filter duplicates in the source itself.
    """

    script = "take_once.lua"
    promise = Promise(EXACTLY_ONCE, "one script writes the values, their ids and the frontier")

    def __init__(
        self,
        key: str,
        *,
        ttl_seconds: float,
        encode: Callable[[Any], bytes] = as_bytes,
        seen_key: str | None = None,
        frontier_key: str | None = None,
        url: str | None = None,
        on_reject: OnReject = STOP,
    ) -> None:
        super().__init__(key, frontier_key, url, on_reject)
        self._seen_key = seen_key or keys.of_sink("seen", key)
        self._ttl_seconds = ttl_seconds
        self._encode = encode

    async def open(self, context: FlowContext) -> None:
        _one_slot(self._key, self._frontier_key, self._seen_key)
        if self._ttl_seconds < context.replay_seconds_max:
            raise StartRefused(
                f"ttl_seconds of {self._key} is {self._ttl_seconds}, and a record may come again for up to "
                f"{context.replay_seconds_max} s (lease, checkpoint interval and drain): it would be "
                f"taken twice. "
                "Raise it above that."
            )
        await super().open(context)

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        places = iter(range(len(values)))

        def of_one(value: Any) -> tuple[str, bytes]:
            record = as_record(value, checkpoint, next(places))
            return record.id, self._encode(record.value)

        made, rejected = converted(values, of_one)
        if rejected and self.on_reject == STOP:
            return rejected
        cells = [cell for pair in made for cell in pair]
        await self._take(
            keys=[self._key, self._frontier_key, self._seen_key],
            args=[
                checkpoint.resource,
                checkpoint.number,
                self._seen.get(checkpoint.resource, 0),
                round(self._ttl_seconds * 1000),
                *cells,
            ],
        )
        self._seen[checkpoint.resource] = checkpoint.number
        return rejected


def as_record(value: Any, checkpoint: CheckpointId, index: int) -> IdempotentRecord[Any]:
    """The record with its own id, also when it is read from a checkpoint; or with a permanent id derived
    from its place."""
    record = IdempotentRecord[Any].of(value)
    return record or IdempotentRecord(f"{checkpoint.resource}#{checkpoint.number}/{index}", value)


def _one_slot(*names: str) -> None:
    from redis.crc import key_slot  # noqa: PLC0415 - Flows without Redis need not have it.

    slots = {key: key_slot(key.encode()) for key in names}
    if len(set(slots.values())) > 1:
        told = ", ".join(f"{key} in {slot}" for key, slot in slots.items())
        raise StartRefused(
            f"One script needs its keys in one slot of a cluster, and they are in different ones: "
            f"{told}. Give "
            "them one hash tag, as in out:{orders} and frontier:{orders}."
        )
