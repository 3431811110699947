"""Redis Streams as a source: one partition per stream. The checkpoint holds the offset that counts.

Streams are read without a consumer group, because a group's cursor is shared: a zombie that reads through it
would take entries away from its successor. With `group` the entries that are read and not committed yet are
shown as pending there, for operators and tools, and acknowledged after the commit; nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.flows._commit_trace import traces_of
from fencepost.flows._errors import GraphRefused, SourceTrimmed, StartRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import IdempotentRecord, Offset, order
from fencepost.flows._redis_client import connect_bytes, entries_of
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._source import Chunk, partition_name
from fencepost.redis_streams.errors import ResponseError
from fencepost.tracing import TRACE_HEADERS

ORIGINAL_ID = b"x-original-message-id"
NOTHING = Chunk((), ())
BEGINNING = "0"
LEFT_AT_ONCE = 1000


class RedisStreams:
    """Entries of one or more streams. A value is the bytes of one field, or all fields with `field=None`.

    Offsets are stored by the stream's name: streams may be added, removed and reordered.
    `with_id` makes each an IdempotentRecord with its x-original-message-id, or its entry id without one.
    `trim` removes entries from the stream once they are committed; the last one stays, as proof of position.
    `group` is deferAckUntilCheckpoint: entries are pending there until their commit. `url` is another Redis
    than the flow's own.
    """

    promise = Promise(EXACTLY_ONCE, "entries can be read again from the offset in the checkpoint")

    def __init__(
        self,
        streams: str | Sequence[str],
        *,
        field: str | None = "data",
        with_id: bool = False,
        trim: bool = False,
        group: str | None = None,
        claim_idle_seconds: float = 60.0,
        url: str | None = None,
        name: str | None = None,
    ) -> None:
        given = [streams] if isinstance(streams, str) else list(streams)
        self._streams = {partition_name(stream): stream for stream in given}
        if not given or len(self._streams) < len(given):
            raise GraphRefused(f"RedisStreams needs one or more streams, each once, and got {given}.")
        # Independent of the order in which they are given.
        self.name = name or min(given).replace(":", "-").replace("/", "-")
        self._field = None if field is None else field.encode()
        self._with_id = with_id
        self._trim = trim
        self._group = group
        self._claim_idle_seconds = claim_idle_seconds
        self._url = url

    @property
    def group(self) -> str | None:
        """The consumer group that is acknowledged for others to see; None without one."""
        return self._group

    @property
    def url(self) -> str | None:
        """The Redis that it reads; None for that of the flow."""
        return self._url

    @property
    def streams(self) -> dict[str, str]:
        """The streams by the names that frontiers use for them."""
        return {f"{self.name}:{partition}": stream for partition, stream in self._streams.items()}

    @property
    def partitions(self) -> Sequence[str]:
        """The names of the streams."""
        return list(self._streams)

    def reads(self, partition: str) -> str:
        """What a partition reads, for people."""
        return f"redis stream {self._streams[partition]}"

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> RedisStreamReader:
        """Read a stream from behind an offset."""
        self._check(context)
        redis = connect_bytes(self._url or context.redis_url, f"The source {self.name}")
        stream = self._streams[partition]
        reader = RedisStreamReader(
            redis,
            stream,
            str(after or BEGINNING),
            self._field,
            self._group,
            with_id=self._with_id,
            trim=self._trim,
        )
        try:
            await reader.check(None if after is None else str(after))
            if after is not None:
                await reader.acknowledge_left(after)
        except BaseException:
            await reader.close()
            raise
        return reader

    def _check(self, context: FlowContext) -> None:
        """Raise StartRefused if consumers that claim idle entries of the group would claim entries that
        wait for the commit."""
        longest = context.interval_seconds + context.drain_seconds
        if self._group is not None and self._claim_idle_seconds <= longest:
            raise StartRefused(
                f"claim_idle_seconds of {self.name} is {self._claim_idle_seconds}, and entries are "
                f"pending for up to "
                f"{longest} s (checkpoint interval {context.interval_seconds} plus drain "
                f"{context.drain_seconds}): others "
                "would claim them meanwhile. Raise it above that, or commit more often."
            )


class RedisStreamReader:
    """Reads one stream in order, and acknowledges what is committed."""

    def __init__(
        self,
        redis: Any,
        stream: str,
        after: str,
        field: bytes | None,
        group: str | None,
        *,
        with_id: bool,
        trim: bool,
    ) -> None:
        self._redis = redis
        self._stream = stream
        self._last = after
        self._field = field
        self._group = group
        self._with_id = with_id
        self._trim = trim
        self._pending: list[str] = []
        self._gone = 0

    async def check(self, after: str | None) -> None:
        """Raise SourceTrimmed unless everything after `after` still exists: the entry at it, or one before
        it, must exist."""
        if after is None:
            length, added, _ = await self._figures()
            self._gone = added - length
            return
        first = await self._redis.xrange(self._stream, count=1)
        if first and order(first[0][0].decode()) <= order(after):
            return
        length, added, last = await self._figures()
        if length == 0 and last == after:
            return
        if order(after) == (0, 0) and added == length:
            return
        raise SourceTrimmed(
            f"The stream {self._stream} begins behind {after}, where this flow has come to: what lay "
            f"between was "
            "trimmed, or Redis lost it. Restore the stream, or restore a savepoint that lies behind the loss."
        )

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next entries, at most `limit`; waits for the first. Raises SourceTrimmed if some are gone."""
        block = ("BLOCK", max(1, round(wait_seconds * 1000))) if wait_seconds > 0 else ()
        answer = await self._redis.execute_command(
            "XREAD", "COUNT", limit, *block, "STREAMS", self._stream, self._last
        )
        entries = next(iter(entries_of(answer).values()), ())
        if not entries:
            return NOTHING
        # One call for all: ids have no comma.
        offsets = b",".join([entry[0] for entry in entries]).decode().split(",")
        before, self._last = self._last, offsets[-1]
        if before != BEGINNING:
            # After the read: if an entry in between had been trimmed, this check would detect it.
            await self.check(before)
        if self._group is not None:
            await self._show_pending(offsets)
        gone, self._gone = self._gone, 0
        traces = traces_of(lambda: (_headers(flat) for _, flat in entries))
        return Chunk(self._values(entries), offsets, skipped=gone, traces=traces)

    async def acknowledge(self, offset: Offset) -> None:
        """Acknowledge, and trim if asked to, all entries up to an offset that is committed."""
        if self._group is not None:
            done = [entry_id for entry_id in self._pending if order(entry_id) <= order(offset)]
            self._pending = self._pending[len(done) :]
            if done:
                await self._redis.xack(self._stream, self._group, *done)
            await self.acknowledge_left(offset)
            await self._redis.xgroup_setid(self._stream, self._group, offset)
        if self._trim:
            await self._redis.xtrim(self._stream, minid=offset, approximate=False)

    async def acknowledge_left(self, offset: Offset) -> None:
        """Acknowledge entries that are committed but still pending: their reader has crashed, or is a
        zombie."""
        if self._group is None:
            return
        try:
            while left := await self._redis.xpending_range(
                self._stream, self._group, "-", offset, LEFT_AT_ONCE
            ):
                ids = [entry["message_id"] for entry in left]
                await self._redis.xack(self._stream, self._group, *ids)
        except Exception as error:
            # Nothing is pending in a group that is gone; the next read creates it again.
            if "NOGROUP" not in str(error):
                raise

    async def lag(self, count: int) -> int | None:
        """The entries ever added, minus those counted so far; at most the length, since entries may have
        been deleted."""
        length, added, _ = await self._figures()
        return max(0, min(length, added - count))

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    def _values(self, entries: Any) -> list[Any]:
        field = self._field
        if field is not None and not self._with_id:
            # It is nearly always the only field.
            return [flat[1] if flat[0] == field else _fields(flat).get(field) for _, flat in entries]
        values: list[Any] = []
        for entry_id, flat in entries:
            fields = _fields(flat)
            value: Any = _readable(fields) if field is None else fields.get(field)
            if self._with_id:
                value = IdempotentRecord(_text(fields.get(ORIGINAL_ID, entry_id)), value)
            values.append(value)
        return values

    async def _show_pending(self, offsets: list[str]) -> None:
        for _ in range(2):
            try:
                await self._redis.xclaim(
                    self._stream, self._group, "fencepost", 0, offsets, force=True, justid=True
                )
            except Exception as error:
                if "NOGROUP" not in str(error):
                    raise
                await self._redis.xgroup_create(self._stream, self._group, id="0", mkstream=True)
            else:
                self._pending += offsets
                return

    async def _figures(self) -> tuple[int, int, str]:
        try:
            facts = await self._redis.xinfo_stream(self._stream)
        except ResponseError as error:
            if "no such key" not in str(error):
                raise
            return 0, 0, ""
        plain = {_text(key): value for key, value in facts.items()}
        return int(plain["length"]), int(plain["entries-added"]), _text(plain["last-generated-id"])


def _fields(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _headers(flat: Sequence[bytes]) -> dict[str, str]:
    """The fields that carry the trace context."""
    fields = _fields(flat)
    return {name: _text(fields[name.encode()]) for name in TRACE_HEADERS if name.encode() in fields}


def _readable(fields: dict[bytes, bytes]) -> dict[str, str]:
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in fields.items()}


def _text(value: Any) -> str:
    """Decode an id. Bytes that are not valid text, or cannot be stored, are escaped, so that different ids
    stay different."""
    if not isinstance(value, bytes):
        return str(value)
    return value.decode(errors="backslashreplace").replace("\0", "\\x00")
