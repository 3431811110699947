"""The values in flows: internal records, and a few named values at sources and sinks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")

Offset = int | str
"""A position in one source partition: a number, or an entry id of Redis. `order` compares two of them."""

Record = tuple[Any, Any, "float | None", int]
"""Value, key, event time, and the index of the input record it came from, within the records read
together."""

END = float("inf")
"""The watermark after the last record of a source that ends."""


def order(offset: Offset) -> tuple[int, ...]:
    """A sort key for an offset: entry ids compare by their two numbers, not by their text."""
    if isinstance(offset, int):
        return (offset,)
    milliseconds, _, sequence = offset.partition("-")
    return int(milliseconds), int(sequence or 0)


def is_after(offset: Offset, other: Offset | None) -> bool:
    return other is None or order(offset) > order(other)


class Behind(float):
    """The time of a record that arrived behind the watermark of its partition and is not known to be late.

    It goes with the record through all steps. Each window reports whether it takes the record; when none has
    taken it and one has refused it, the record is late.
    """

    watermark: float = float("-inf")
    """Of its partition, on arrival: a window that ends there or before is closed for the record."""
    clock: str = ""
    """The name of the step that set its time."""
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
    """The time up to which windows are closed for a record with this time. For a record that arrived in
    time, no window that it belongs to is closed."""
    return time.watermark if type(time) is Behind else float("-inf")


def known_at(record: Record) -> float:
    """When a record was known, in event time: its own time, or the watermark of its partition when it came
    behind it. No later record of the partition was known before. A record without a time does not wait."""
    time = record[2]
    return float("-inf") if time is None else max(float(time), closed_until(time))


def settle(time: float, *, taken: bool) -> None:
    """Report that a window has taken a record, or that all its windows were closed."""
    if type(time) is Behind:
        time.taken = time.taken or taken
        time.refused = time.refused or not taken


def under(record: Record, floor: float, clock: str) -> Record:
    """The record, marked as one that came behind the watermark if it lies below the floor of its sender."""
    value, key, time, at = record
    if time is None or not time < floor or closed_until(time) >= floor:
        return record
    known = time if type(time) is Behind else Behind.of(time, floor, clock, value)
    known.watermark = floor
    return value, key, known, at


class IdempotentRecord(msgspec.Struct, Generic[T], frozen=True, tag_field="fencepost", tag="record"):
    """A value with the id by which a sink recognises it when it arrives again.

    As plain data, in a checkpoint or a channel, it has its own tag: a user's document with an id and a value
    is not taken for one.
    """

    id: str
    value: T

    @classmethod
    def of(cls, plain: Any) -> IdempotentRecord[Any] | None:
        """Convert plain data back to the record it was made from; None if it is something else."""
        if isinstance(plain, cls):
            return plain
        if isinstance(plain, dict) and plain.keys() == {"fencepost", "id", "value"}:  # pyright: ignore[reportUnknownMemberType]
            # A user's document may have these field names too, with other values.
            with suppress(msgspec.ValidationError):
                return msgspec.convert(plain, IdempotentRecord[Any])
        return None


class WindowResult(NamedTuple):
    """The result of one closed window of one key."""

    key: Any
    start: float
    end: float
    value: Any


class WindowUpdate(NamedTuple):
    """What a window holds by now, where a window emits more than once: the newest one is valid."""

    key: Any
    start: float
    end: float
    value: Any
    timing: str
    """`early` before the window closes, `on_time` when it does, `late` after it."""
    number: int
    """1 for the first of the window, and one more each time."""


class Failure(NamedTuple):
    """A record that a step could not process, for the side stream `.errors`."""

    value: Any
    error: str
    step: str
    key: Any = None
