"""Python values as a source: for tests, scripts and backfills."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Offset
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._source import Chunk

Values = Sequence[Any] | Callable[[], Iterable[Any]]


class IterableReader:
    def __init__(self, values: Iterable[Any], after: int) -> None:
        self._length = len(values) if isinstance(values, Sequence) else None  # pyright: ignore[reportUnknownArgumentType]
        self._values = islice(iter(values), after, None)
        self._at = after

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        values = list(islice(self._values, limit))
        first = self._at + 1
        self._at += len(values)
        return Chunk(values, range(first, self._at + 1), ended=len(values) < limit)

    async def acknowledge(self, offset: Offset) -> None:
        """Does nothing: no offset is stored outside the checkpoint."""

    async def lag(self, count: int) -> int | None:
        return None if self._length is None else self._length - count

    async def close(self) -> None:
        """Does nothing: no connection is open."""


class IterableSource:
    """A list, or a function that returns the same iterator every time it is called; or one for each
    partition."""

    promise = Promise(EXACTLY_ONCE, "the same values come again")

    def __init__(self, values: Values | Mapping[str, Values], *, name: str = "values") -> None:
        self.name = name
        self._values: Mapping[str, Values] = values if isinstance(values, Mapping) else {"0": values}

    @property
    def partitions(self) -> Sequence[str]:
        """The names of its partitions."""
        return sorted(self._values)

    def extent(self, partition: str) -> int | None:
        """How many values a partition has; None if that is not known."""
        values = self._values[partition]
        return None if callable(values) else len(values)

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> IterableReader:
        """Read a partition from behind an offset."""
        values = self._values[partition]
        return IterableReader(values() if callable(values) else values, int(after or 0))
