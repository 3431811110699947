"""An outbox channel as a source: its messages are delivered to the flow.

A message leaves the outbox once, in an order that cannot be repeated. So messages are moved into a log that
belongs to the flow, one transaction per batch, and read from there by number. Several flows on one channel
share its messages, as several relays would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.flows._commit_trace import traces_of
from fencepost.flows._errors import SourceTrimmed
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import IdempotentRecord, Offset
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._source import Chunk
from fencepost.kernel.call import Call, CallRunner, Json, each, one, parsed, scalar, text
from fencepost.kernel.lease import Lease

TRIMMED_AT_ONCE = 10_000
ORIGINAL_ID = "x-original-message-id"


@dataclass(frozen=True, slots=True)
class Letter:
    """A message of the channel, with its number in the log."""

    number: int
    message_id: int
    key: str | None
    payload: Json
    headers: Json


class OutboxChannel:
    """The payloads of a channel's messages, in order for each key.

    `with_id` makes each an IdempotentRecord with the id in its header x-original-message-id, or the message's
    id without one. `trim` removes messages from the log once they are committed; then a savepoint from before
    cannot be restored.
    """

    promise = Promise(
        EXACTLY_ONCE, "messages lie in a log, and can be read again from the number in the checkpoint"
    )

    def __init__(
        self, channel: str, *, with_id: bool = False, trim: bool = True, name: str | None = None
    ) -> None:
        self.name = name or channel.replace(":", "-").replace("/", "-")
        self._channel = channel
        self._with_id = with_id
        self._trim = trim

    @property
    def partitions(self) -> Sequence[str]:
        """The names of its partitions."""
        return ["0"]

    def reads(self, partition: str) -> str:
        """What a partition reads, for people."""
        return f"outbox channel {self._channel}"

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> OutboxReader:
        """Read a partition from behind an offset."""
        lowest, last = await context.fp.run(log_range(context.flow, self.name))
        if after is not None and (last if lowest is None else lowest - 1) > int(after):
            raise SourceTrimmed(
                f"The log of the outbox channel {self._channel} begins behind {after}, where this flow has "
                "come to: what lay between was removed behind a later commit. Restore a later savepoint, or "
                "use OutboxChannel(trim=False)."
            )
        return OutboxReader(
            context.fp,
            context.flow,
            self.name,
            self._channel,
            int(after or 0),
            context.lease if self._trim else None,
            with_id=self._with_id,
        )


class OutboxReader:
    """Reads one partition, in order."""

    def __init__(
        self,
        fp: CallRunner,
        flow: str,
        source: str,
        channel: str,
        after: int,
        trims_under: Lease | None,
        *,
        with_id: bool,
    ) -> None:
        self._fp = fp
        self._flow = flow
        self._source = source
        self._channel = channel
        self._last = after
        self._trims_under = trims_under
        self._with_id = with_id

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next values."""
        found = await self._fp.run(read_log(self._flow, self._source, self._last, limit))
        if not found:
            await self._fp.run(gather(self._flow, self._source, self._channel, limit))
            found = await self._fp.run(read_log(self._flow, self._source, self._last, limit))
        if not found:
            await asyncio.sleep(wait_seconds)
            return Chunk((), ())
        self._last = found[-1].number
        traces = traces_of(lambda: (letter.headers for letter in found))
        numbers = [letter.number for letter in found]
        return Chunk([self._value(letter) for letter in found], numbers, traces=traces)

    async def acknowledge(self, offset: Offset) -> None:
        """Everything up to the offset is committed."""
        lease = self._trims_under
        if lease is not None:
            await self._fp.run(trim(self._flow, self._source, lease, int(offset), TRIMMED_AT_ONCE))

    async def lag(self, count: int) -> int | None:
        """The number of messages in the log; the outbox itself reports the length of its queue."""
        _, last = await self._fp.run(log_range(self._flow, self._source))
        return max(0, last - self._last)

    async def close(self) -> None:
        """Does nothing: the client owns the connections."""

    def _value(self, letter: Letter) -> Any:
        if self._with_id:
            headers: Any = letter.headers
            return IdempotentRecord(
                str(headers.get(ORIGINAL_ID, f"outbox-{letter.message_id}")), letter.payload
            )
        return letter.payload


def gather(flow: str, source: str, channel: str, limit: int) -> Call[int]:
    """Move due messages into the log; returns how many."""
    return Call(
        "select fencepost.flow_gather(%s::text, %s::text, %s::text, %s::integer)",
        (text("flow", flow), text("source", source), text("channel", channel), limit),
        scalar,
    )


def read_log(flow: str, source: str, after: int, limit: int) -> Call[list[Letter]]:
    """Messages of the log after a number, in order."""
    return Call(
        "select number, message_id, key, payload::text, headers::text"
        " from fencepost.flow_inbox_read(%s::text, %s::text, %s::bigint, %s::integer)",
        (text("flow", flow), text("source", source), after, limit),
        each(_letter),
    )


def log_range(flow: str, source: str) -> Call[tuple[int | None, int]]:
    """The lowest number in the log, and the highest that was ever assigned."""
    return Call(
        "select lowest, last from fencepost.flow_inbox_range(%s::text, %s::text)",
        (text("flow", flow), text("source", source)),
        one(_range),
    )


def trim(flow: str, source: str, lease: Lease, upto: int, limit: int) -> Call[int]:
    """Remove committed messages, under the lease of the task that committed them; returns how many."""
    return Call(
        "select fencepost.flow_inbox_trim(%s::text, %s::text, %s::text, %s::bigint, %s::bigint, %s::integer)",
        (
            text("flow", flow),
            text("source", source),
            text("resource", lease.resource),
            lease.token,
            upto,
            limit,
        ),
        scalar,
    )


def _letter(number: int, message_id: int, key: str | None, payload: str, headers: str) -> Letter:
    return Letter(number, message_id, key, parsed(payload), parsed(headers))


def _range(lowest: int | None, last: int) -> tuple[int | None, int]:
    return lowest, last
