"""The interface between a source and the runtime: partitions, each read from an offset, any number of
times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.flows._commit_trace import Traces
from fencepost.flows._guarantee import Promise
from fencepost.flows._record import Offset
from fencepost.flows.sinks._sink import FlowContext


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive values of one partition, with their offsets."""

    values: Sequence[Any]
    offsets: Sequence[Offset]
    ended: bool = False
    """No value will ever follow."""
    skipped: int = 0
    """Records before these that were gone when the flow began: they are counted, as the source counts
    them."""
    traces: Traces = ()
    """The trace context of each value, when tracing is on."""


class Reader(Protocol):
    """One partition, opened after an offset. Belongs to one task."""

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next values; an empty chunk when none arrived in time."""
        ...

    async def acknowledge(self, offset: Offset) -> None:
        """Everything up to the offset is committed. Best effort: only the offset in the checkpoint counts."""
        ...

    async def lag(self, count: int) -> int | None:
        """How many records wait after the first `count`, if that is known."""
        ...

    async def close(self) -> None: ...


class Source(Protocol):
    """Named partitions of records. A partition's records have one order, and offsets that grow.

    Four attributes are optional: `extent(partition)`, the offset at which it ends, for a progress bar;
    `timeless = True`, for a source that holds no window open (its next record may come at any time);
    `resumes = True`, for one whose end is only the end of that run: a later run goes on behind it; and
    `reads(partition)`, which names what the offsets refer to. A flow does not start if that name differs from
    the stored one, or if the same name is now read under another source name.
    """

    name: str
    promise: Promise

    @property
    def partitions(self) -> Sequence[str]: ...

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> Reader:
        """Open after `after`. Raises SourceTrimmed when records after it are gone."""
        ...


def partition_name(name: str) -> str:
    """Escape a name as part of a unit's name, in which a slash is the separator."""
    return name.replace("%", "%25").replace("/", "%2F")


def is_timeless(source: Source | None) -> bool:
    return getattr(source, "timeless", False)


def goes_on(source: Source | None) -> bool:
    """Whether a later run reads on behind the end of an earlier one."""
    return is_timeless(source) or getattr(source, "resumes", False)


def reads_of(source: Source | None, partition: str) -> str | None:
    reads = getattr(source, "reads", None)
    return None if reads is None else reads(partition)


def extent_of(source: Source | None, partition: str) -> int | None:
    extent = getattr(source, "extent", None)
    return None if extent is None else extent(partition)
