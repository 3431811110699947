"""What flows carry: records inside, a few named values at the borders."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

Offset = int | str
"""A place in one source partition: a number, or an entry id of Redis. `order` compares two of them."""

Record = tuple[Any, Any, "float | None", int]
"""Value, key, event time, and which of the records that were read together it came from."""

END = float("inf")
"""The watermark behind the last record of a source that ends."""


def order(offset: Offset) -> tuple[int, ...]:
    """Entry ids compare by their two numbers, not by their text."""
    if isinstance(offset, int):
        return (offset,)
    milliseconds, _, sequence = offset.partition("-")
    return int(milliseconds), int(sequence or 0)


def is_after(offset: Offset, other: Offset | None) -> bool:
    return other is None or order(offset) > order(other)


class Behind(float):
    """The time of a record that came behind the watermark of its partition, and is not known to be late.

    It goes with the record through all steps. Each window says whether it takes it; when none has and one has
    refused it, the record is late.
    """

    watermark: float = float("-inf")
    """Of its partition, when it came: a window that ends there or before is closed for it."""
    clock: str = ""
    """The name of the step that gave it its time."""
    value: Any = None
    """The record as that step saw it."""
    refused: bool = False
    taken: bool = False

    @classmethod
    def of(cls, time: float, watermark: float, clock: str, value: Any) -> Behind:
        behind = cls(time)
        behind.watermark, behind.clock, behind.value = watermark, clock, value
        return behind

    @property
    def is_late(self) -> bool:
        return self.refused and not self.taken


def closed_until(time: float) -> float:
    """Up to where windows are closed for a record with this time. For one that came in time, none is that it
    belongs to."""
    return time.watermark if type(time) is Behind else float("-inf")


def settle(time: float, *, taken: bool) -> None:
    """A window has taken a record, or all its windows were closed."""
    if type(time) is Behind:
        time.taken = time.taken or taken
        time.refused = time.refused or not taken


class IdempotentRecord(msgspec.Struct, Generic[T], frozen=True, tag_field="fencepost", tag="record"):
    """A value with the id by which a sink recognises it when it comes again.

    As plain data, in a checkpoint or a channel, it has a mark of its own: a user's document with an id and a
    value is not one.
    """

    id: str
    value: T

    @classmethod
    def of(cls, plain: Any) -> IdempotentRecord[Any] | None:
        """The record that plain data was made of; None if it is something else."""
        if isinstance(plain, cls):
            return plain
        if isinstance(plain, dict) and plain.keys() == {"fencepost", "id", "value"}:  # pyright: ignore[reportUnknownMemberType]
            # Somebody's own document may have these names too, and other things under them.
            with suppress(msgspec.ValidationError):
                return msgspec.convert(plain, IdempotentRecord[Any])
        return None


class WindowResult(NamedTuple):
    """One window of one key, closed."""

    key: Any
    start: float
    end: float
    value: Any


class Failure(NamedTuple):
    """A record that a step could not take, for the side stream `.errors`."""

    value: Any
    error: str
    step: str
    key: Any = None
