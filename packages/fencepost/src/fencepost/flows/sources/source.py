"""What a source is to the runtime: partitions, each read from an offset, as often as need be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.flows.commit_trace import Traces
from fencepost.flows.guarantee import Promise
from fencepost.flows.record import Offset
from fencepost.flows.sinks.sink import FlowContext


@dataclass(frozen=True, slots=True)
class Chunk:
    """Values that follow each other in one partition, with their offsets."""

    values: Sequence[Any]
    offsets: Sequence[Offset]
    ended: bool = False
    """Nothing will ever follow."""
    skipped: int = 0
    """Records before these that were gone when the flow began: they count, as the source counts them."""
    traces: Traces = ()
    """The place in a trace of each, where somebody sees spans."""


class Reader(Protocol):
    """One partition, opened behind an offset. Belongs to one task."""

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next values; an empty chunk when none came in time."""
        ...

    async def acknowledge(self, offset: Offset) -> None:
        """Everything up to the offset is committed. Best effort: the offset that counts is the
        checkpoint's."""
        ...

    async def lag(self, count: int) -> int | None:
        """How many records are waiting behind the first `count`, if that can be told."""
        ...

    async def close(self) -> None: ...


class Source(Protocol):
    """A place with partitions. A partition's records have one order, and offsets that grow.

    Three things more may be there: `extent(partition)`, the offset at which it ends, for a progress bar;
    `timeless = True`, for one that holds no window open (nobody knows when it will speak next); and
    `reads(partition)`, what its offsets are places in. A flow that finds another thing there than before, or
    the same under another name, does not start.
    """

    name: str
    promise: Promise

    @property
    def partitions(self) -> Sequence[str]: ...

    async def open(self, place: FlowContext, partition: str, after: Offset | None) -> Reader:
        """Open behind `after`. Raises SourceTrimmed when records behind it are gone."""
        ...


def partition_name(name: str) -> str:
    """A name as part of a unit's: a slash divides those."""
    return name.replace("%", "%25").replace("/", "%2F")


def is_timeless(source: Source | None) -> bool:
    return getattr(source, "timeless", False)


def reads_of(source: Source | None, partition: str) -> str | None:
    reads = getattr(source, "reads", None)
    return None if reads is None else reads(partition)


def extent_of(source: Source | None, partition: str) -> int | None:
    extent = getattr(source, "extent", None)
    return None if extent is None else extent(partition)
