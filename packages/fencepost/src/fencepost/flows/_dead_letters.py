"""Dead letters: records that a step could not process are stored in a table, and replayed on an operator's
request.

They are written in the commit that skips them (`DeadLetterSink`). A replay numbers them, and the flow reads
them by number (`DeadLetterSource`), as it reads any source: so each is replayed once, also across crashes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from fencepost.database import OpenClient
from fencepost.flows._errors import SourceTrimmed
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Failure, Offset
from fencepost.flows._state import as_key, reviver
from fencepost.flows._value_codec import UnknownClass, pack, unpack, unpack_plain
from fencepost.flows.sinks._rejecting import Rejection
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import TransactionalSink
from fencepost.flows.sources._source import Chunk
from fencepost.kernel.call import Call, duration, each, scalar, text
from fencepost.retention import BATCH, TICK_SECONDS, until_short
from fencepost.transaction import Transaction

PREVIEW_LENGTH = 500
ERROR_LENGTH = 2000
BODY_BYTES = 1_000_000


class DeadLetter(NamedTuple):
    """A record that is being replayed."""

    key: Any
    value: Any


class DeadLetterSink(TransactionalSink):
    """Stores failures in the table of dead letters, under the flow and a name."""

    def __init__(self, flow: str, step: str) -> None:
        self._flow = flow
        self._step = step

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Failure]) -> None:
        await tx.run(bury(self._flow, self._step, checkpoint.resource, checkpoint.token, values))


class DeadLetterSource:
    """The dead letters that operators have asked for, in the order of the requests. It holds no window
    open."""

    promise = Promise(
        EXACTLY_ONCE, "dead letters stay, and can be read again from the number in the checkpoint"
    )
    timeless = True

    def __init__(self, flow: str, step: str) -> None:
        self.name = f"dead-{step}"
        self._flow = flow
        self._step = step

    @property
    def partitions(self) -> Sequence[str]:
        return ["0"]

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> DeadLetterReader:
        return DeadLetterReader(context.fp, self._flow, self._step, int(after or 0), bounded=context.bounded)


class DeadLetterReader:
    def __init__(self, fp: OpenClient, flow: str, step: str, after: int, *, bounded: bool) -> None:
        self._fp = fp
        self._flow = flow
        self._step = step
        self._last = after
        self._taken = after
        self._bounded = bounded
        self._forgets_at = 0.0

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        found = await self._fp.run(replays(self._flow, self._step, self._last, limit))
        if not found:
            await self._forget()
            if not self._bounded:
                await asyncio.sleep(wait_seconds)
            return Chunk((), (), ended=self._bounded)
        if self._last and found[-1][0] != self._last + len(found):
            raise SourceTrimmed(
                f"Dead letters of {self._step} of {self._flow} behind number {self._last} were forgotten: "
                "this flow has not taken them. Restore a savepoint that lies behind them, or begin anew."
            )
        self._last = found[-1][0]
        return Chunk([_as_it_was(record) for _, record in found], [number for number, _ in found])

    async def acknowledge(self, offset: Offset) -> None:
        self._taken = int(offset)

    async def _forget(self) -> None:
        """Periodically delete letters that were replayed long ago: they are not needed any more."""
        if time.monotonic() < self._forgets_at:
            return
        self._forgets_at = time.monotonic() + TICK_SECONDS
        keep_seconds = self._fp.settings.history_keep_seconds
        await until_short(self._fp, forget(self._flow, self._step, self._taken, keep_seconds, BATCH))

    async def lag(self, count: int) -> int | None:
        return None

    async def close(self) -> None:
        """Does nothing: the client owns the connections."""


def _as_it_was(record: bytes) -> Any:
    """The key and the value. A letter of a class that is gone is returned as plain data: it must not stop the
    flow."""
    try:
        return unpack(record)
    except UnknownClass:
        return unpack_plain(record)


def key_of(stored: Any) -> Any:
    return as_key(stored[0])


def value_of(kind: type[Any] | None) -> Callable[[Any], Any]:
    revive = reviver(kind)
    return lambda stored: revive(stored[1])


def bury(flow: str, step: str, resource: str, token: int, failures: Sequence[Failure]) -> Call[int]:
    return Call(
        "select fencepost.flow_bury"
        "(%s::text, %s::text, %s::text, %s::bigint, %s::bytea[], %s::text[], %s::text[])",
        (
            text("flow", flow),
            text("step", step),
            text("resource", resource),
            token,
            [pack([failure.key, failure.value]) for failure in failures],
            [preview(failure.value) for failure in failures],
            [_fitting(failure.error, ERROR_LENGTH) for failure in failures],
        ),
        scalar,
    )


def bury_rejected(
    flow: str, name: str, resource: str, token: int, rejections: Sequence[Rejection]
) -> Call[int]:
    """Store what a sink rejected, with what was sent and the response."""
    return Call(
        "select fencepost.flow_bury(%s::text, %s::text, %s::text, %s::bigint, %s::bytea[], %s::text[],"
        " %s::text[], %s::bytea[], %s::text[])",
        (
            text("flow", flow),
            text("step", name),
            text("resource", resource),
            token,
            [pack((None, each.value)) for each in rejections],
            [preview(each.value) for each in rejections],
            [_fitting(each.error, ERROR_LENGTH) for each in rejections],
            [None if each.body is None else each.body[:BODY_BYTES] for each in rejections],
            [None if each.answer is None else _fitting(each.answer, ERROR_LENGTH * 2) for each in rejections],
        ),
        scalar,
    )


def replays(flow: str, step: str, after: int, limit: int) -> Call[list[tuple[int, bytes]]]:
    return Call(
        "select replay, record from fencepost.flow_replays(%s::text, %s::text, %s::bigint, %s::integer)",
        (text("flow", flow), text("step", step), after, limit),
        each(_replay),
    )


def replay(flow: str, step: str, *, ids: Sequence[int] | None, limit: int, by: str) -> Call[int]:
    """Request a replay of dead letters, the oldest first; returns how many."""
    return Call(
        "select fencepost.flow_replay(%s::text, %s::text, %s::bigint[], %s::integer, %s::text)",
        (
            text("flow", flow),
            text("step", step),
            None if ids is None else list(ids),
            limit,
            text("by", by),
        ),
        scalar,
    )


def discard(flow: str, step: str, *, ids: Sequence[int] | None, limit: int) -> Call[int]:
    """Delete dead letters for which no replay was requested; returns how many."""
    return Call(
        "select fencepost.flow_discard(%s::text, %s::text, %s::bigint[], %s::integer)",
        (text("flow", flow), text("step", step), None if ids is None else list(ids), limit),
        scalar,
    )


def forget(flow: str, step: str, taken: int, keep_seconds: float, limit: int) -> Call[int]:
    """Delete letters that were replayed long ago, up to the number that the flow has committed; returns how
    many."""
    return Call(
        "select fencepost.flow_forget(%s::text, %s::text, %s::bigint, %s::interval, %s::integer)",
        (text("flow", flow), text("step", step), taken, duration("keep", keep_seconds), limit),
        scalar,
    )


def preview(value: Any) -> str:
    """A value as text, for people: bytes are decoded where they probably are text."""
    if isinstance(value, bytes):
        return _fitting(value.decode(errors="replace"), PREVIEW_LENGTH)
    if isinstance(value, str):
        return _fitting(value, PREVIEW_LENGTH)
    try:
        return _fitting(msgspec.json.encode(value).decode(), PREVIEW_LENGTH)
    except (TypeError, ValueError):
        return _fitting(repr(value), PREVIEW_LENGTH)


def _fitting(words: str, length: int) -> str:
    """Replace what PostgreSQL cannot store: NUL and unpaired surrogates."""
    clean = words.replace("\0", "\ufffd").encode(errors="replace").decode()
    return clean if len(clean) <= length else clean[: length - 1] + "…"


def _replay(number: int, record: bytes) -> tuple[int, bytes]:
    return number, bytes(record)
