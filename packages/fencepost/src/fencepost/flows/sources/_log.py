"""The log of a source whose records have no offset to return to: it is appended to together with where the
source looks next, and read by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.flows._errors import FlowError
from fencepost.flows.sinks._sink import FlowContext
from fencepost.kernel.call import (
    Call,
    CallRunner,
    Json,
    document,
    each,
    one,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost.kernel.lease import Lease

TRIMMED_AT_ONCE = 10_000
Found = tuple[str | None, Json]
"""An entry to append: the id by which it is known again, and what it is."""


class Entry(NamedTuple):
    number: int
    id: str | None
    content: Json


class LogState(NamedTuple):
    lowest: int | None
    last: int
    """The highest number that was ever given."""
    cursor: Json


class SourceLog:
    """The log of one partition. Belongs to one reader, under the lease of its task."""

    def __init__(self, context: FlowContext, source: str) -> None:
        if context.lease is None:
            raise FlowError(f"{source} keeps a log, and is read by a task that has no lease.")
        self._fp: CallRunner = context.fp
        self._flow = context.flow
        self._source = source
        self._lease = context.lease
        self.last = 0
        """The highest number that was ever given."""

    async def state(self) -> LogState:
        state = await self._fp.run(log_state(self._flow, self._source))
        self.last = state.last
        return state

    async def append(self, found: Sequence[Found], cursor: Json = None) -> int:
        """Append what is not known by its id yet, and move the cursor, in one transaction; returns how many.
        `state` was called before."""
        before = self.last
        call = append(self._flow, self._source, self._lease, before, cursor, found)
        self.last = await self._fp.run(call)
        return self.last - before

    async def read(self, after: int, limit: int) -> list[Entry]:
        return await self._fp.run(read(self._flow, self._source, after, limit))

    async def known(self, ids: Sequence[str]) -> dict[str, Json]:
        """The entries that the log has of these ids."""
        found = await self._fp.run(known(self._flow, self._source, ids))
        return dict(found)

    async def trim(self, upto: int) -> int:
        """Remove entries whose effects are committed."""
        return await self._fp.run(trim(self._flow, self._source, self._lease, upto, TRIMMED_AT_ONCE))


def append(
    flow: str, source: str, lease: Lease, last: int, cursor: Json, found: Sequence[Found]
) -> Call[int]:
    """Append entries behind `last` and move the cursor; returns the highest number."""
    return Call(
        "select fencepost.flow_log_append(%s::text, %s::text, %s::text, %s::bigint, %s::bigint, %s::jsonb,"
        " %s::text[], %s::jsonb[])",
        (
            text("flow", flow),
            text("source", source),
            text("resource", lease.resource),
            lease.token,
            last,
            document("cursor", cursor),
            [optional_text("id", entry_id) for entry_id, _ in found],
            [document("entry", content) for _, content in found],
        ),
        scalar,
    )


def read(flow: str, source: str, after: int, limit: int) -> Call[list[Entry]]:
    return Call(
        "select number, id, entry::text"
        " from fencepost.flow_log_read(%s::text, %s::text, %s::bigint, %s::integer)",
        (text("flow", flow), text("source", source), after, limit),
        each(_entry),
    )


def known(flow: str, source: str, ids: Sequence[str]) -> Call[list[tuple[str, Json]]]:
    return Call(
        "select id, entry::text from fencepost.flow_log_known(%s::text, %s::text, %s::text[])",
        (text("flow", flow), text("source", source), [text("id", each_id) for each_id in ids]),
        each(_known),
    )


def log_state(flow: str, source: str) -> Call[LogState]:
    return Call(
        "select lowest, last, cursor::text from fencepost.flow_log_state(%s::text, %s::text)",
        (text("flow", flow), text("source", source)),
        one(_state),
    )


def trim(flow: str, source: str, lease: Lease, upto: int, limit: int) -> Call[int]:
    """Remove entries up to a number, under the lease of the task that committed them; returns how many."""
    return Call(
        "select fencepost.flow_log_trim(%s::text, %s::text, %s::text, %s::bigint, %s::bigint, %s::integer)",
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


def _entry(number: int, entry_id: str | None, content: str) -> Entry:
    return Entry(number, entry_id, parsed(content))


def _known(entry_id: str, content: str) -> tuple[str, Json]:
    return entry_id, parsed(content)


def _state(lowest: int | None, last: int, cursor: str | None) -> LogState:
    return LogState(lowest, last, parsed(cursor))
