"""Windows in event time: which windows a moment belongs to. Pure functions on numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fencepost.flows._errors import GraphRefused

Unit = Literal["day", "week", "month", "year"]
UNITS = ("day", "week", "month", "year")


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Adjacent windows of one size, aligned to 1970 in UTC and shifted by an offset."""

    size_seconds: float
    offset_seconds: float = 0

    def __post_init__(self) -> None:
        _positive("size_seconds", self.size_seconds)
        _within("offset_seconds", self.offset_seconds, self.size_seconds)

    def __repr__(self) -> str:
        # Part of the identity of a step: it stays what it was for windows without an offset.
        return f"Tumbling(size_seconds={self.size_seconds}{_shift(self.offset_seconds)})"

    def starts(self, time: float) -> Iterator[float]:
        """The start of the one window that contains this time."""
        yield time - (time - self.offset_seconds) % self.size_seconds

    def end(self, start: float) -> float:
        """When the window that begins then ends."""
        return start + self.size_seconds

    def last_end(self, time: float) -> float:
        """When the last window of a moment ends."""
        return time - (time - self.offset_seconds) % self.size_seconds + self.size_seconds


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size, a new one every step: a record belongs to several."""

    size_seconds: float
    step_seconds: float
    offset_seconds: float = 0

    def __post_init__(self) -> None:
        _positive("size_seconds", self.size_seconds)
        _positive("step_seconds", self.step_seconds)
        if self.step_seconds > self.size_seconds:
            raise GraphRefused(
                f"A step of {self.step_seconds} s over windows of {self.size_seconds} s leaves records in no "
                "window. Allowed: a step of at most the size."
            )
        _within("offset_seconds", self.offset_seconds, self.step_seconds)

    def __repr__(self) -> str:
        sizes = f"size_seconds={self.size_seconds}, step_seconds={self.step_seconds}"
        return f"Sliding({sizes}{_shift(self.offset_seconds)})"

    def starts(self, time: float) -> Iterator[float]:
        """The starts of all windows that contain this time."""
        start = time - (time - self.offset_seconds) % self.step_seconds
        while start > time - self.size_seconds:
            yield start
            start -= self.step_seconds

    def end(self, start: float) -> float:
        """When the window that begins then ends."""
        return start + self.size_seconds

    def last_end(self, time: float) -> float:
        """When the last window of a moment ends."""
        return time - (time - self.offset_seconds) % self.step_seconds + self.size_seconds


@dataclass(frozen=True, slots=True)
class Calendar:
    """The days, weeks (from Monday), months or years of a time zone: `Calendar("day", "Europe/Berlin")`.

    A day has the length that it has there: 23 or 25 hours where clocks change.
    """

    unit: Unit
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise GraphRefused(f"{self.unit!r} is no unit of a calendar; allowed: {', '.join(UNITS)}.")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise GraphRefused(
                f"{self.zone!r} is no time zone; allowed: names as Europe/Berlin, or UTC."
            ) from None

    def starts(self, time: float) -> Iterator[float]:
        """The start of the one window that contains this time."""
        yield self._around(time)[0]

    def end(self, start: float) -> float:
        """When the window that begins then ends."""
        return self._around(start)[1]

    def last_end(self, time: float) -> float:
        """When the last window of a moment ends."""
        return self._around(time)[1]

    def _around(self, time: float) -> tuple[float, float]:
        here = ZoneInfo(self.zone)
        return _bounds(self.unit, here, datetime.fromtimestamp(time, here).date())


@lru_cache(maxsize=1024)
def _bounds(unit: Unit, zone: ZoneInfo, day: date) -> tuple[float, float]:
    """When the window with this day begins and ends. Where a clock change leaves no midnight, the day begins
    with its first moment."""
    match unit:
        case "day":
            first, after = day, day + timedelta(days=1)
        case "week":
            first = day - timedelta(days=day.weekday())
            after = first + timedelta(days=7)
        case "month":
            first = day.replace(day=1)
            after = (first + timedelta(days=31)).replace(day=1)
        case "year":
            first, after = day.replace(month=1, day=1), date(day.year + 1, 1, 1)
    return _midnight(first, zone), _midnight(after, zone)


def _midnight(day: date, zone: ZoneInfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


@dataclass(frozen=True, slots=True)
class Session:
    """A window that lasts as long as records follow each other within the gap."""

    gap_seconds: float

    def __post_init__(self) -> None:
        _positive("gap_seconds", self.gap_seconds)


@dataclass(frozen=True, slots=True)
class Interval:
    """For joins: the right record's time lies from `before_seconds` before the left one's to `after_seconds`
    after it, both included. A negative number moves that end past the left record's time."""

    before_seconds: float
    after_seconds: float

    def __post_init__(self) -> None:
        if not -self.before_seconds <= self.after_seconds:
            raise GraphRefused(
                f"An interval from {-self.before_seconds} s to {self.after_seconds} s around a record is "
                "empty. Allowed: before_seconds and after_seconds that are at least 0 together."
            )

    @property
    def left_ends_seconds(self) -> float:
        """How long after a left record a partner of it may be."""
        return max(0.0, self.after_seconds)

    @property
    def right_ends_seconds(self) -> float:
        """How long after a right record a partner of it may be."""
        return max(0.0, self.before_seconds)


Fixed = Tumbling | Sliding | Calendar
"""Windows that lie where they lie, whatever the records are."""
Window = Fixed | Session


@dataclass(frozen=True, slots=True)
class Firing:
    """A window that emits early, every so many seconds, or stays open for updates after its end."""

    window: Fixed
    early_seconds: float | None = None
    late_seconds: float = 0

    def last_end(self, time: float) -> float:
        """When the last window of a moment takes no more records."""
        return self.window.last_end(time) + self.late_seconds


Gathering = Window | Firing | Interval
"""How a step gathers records: decides which records are late."""
Joined = Tumbling | Calendar | Interval
"""What records of two streams are joined within."""


def _positive(name: str, seconds: float) -> None:
    if not seconds > 0:
        raise GraphRefused(f"{name} is {seconds}; it must be more than 0.")


def _within(name: str, seconds: float, size_seconds: float) -> None:
    if not 0 <= seconds < size_seconds:
        raise GraphRefused(f"{name} is {seconds}; allowed: from 0 to less than {size_seconds}.")


def _shift(offset_seconds: float) -> str:
    return f", offset_seconds={offset_seconds}" if offset_seconds else ""
