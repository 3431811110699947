"""What a source is to the runtime: partitions, each read from an offset, as often as need be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.flows.guarantee import Promise
from fencepost.flows.record import Offset
from fencepost.flows.sinks.sink import Workplace


@dataclass(frozen=True, slots=True)
class Chunk:
    """Values that follow each other in one partition, with their offsets."""

    values: Sequence[Any]
    offsets: Sequence[Offset]
    ended: bool = False
    """Nothing will ever follow."""


class Reader(Protocol):
    """One partition, opened behind an offset. Belongs to one task."""

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next values; an empty chunk when none came in time."""
        ...

    async def acknowledge(self, offset: Offset) -> None:
        """Everything up to the offset is committed. Best effort: the offset that counts is the
        checkpoint's."""
        ...

    async def lag(self) -> int | None:
        """How many records are waiting behind the last one that was read, if that can be told."""
        ...

    async def close(self) -> None: ...


class Source(Protocol):
    """A place with partitions. A partition's records have one order, and offsets that grow."""

    name: str
    promise: Promise

    @property
    def partitions(self) -> Sequence[str]: ...

    async def open(self, place: Workplace, partition: str, after: Offset | None) -> Reader:
        """Open behind `after`. Raises SourceTrimmed when records behind it are gone."""
        ...
