"""Windows in event time: which windows a moment belongs to. Pure functions on numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fencepost.flows._errors import GraphRefused


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Adjacent windows of one size, aligned to 1970."""

    size_seconds: float

    def __post_init__(self) -> None:
        _positive("size_seconds", self.size_seconds)

    def starts(self, time: float) -> Iterator[float]:
        """The start of the one window that contains this time."""
        yield time - time % self.size_seconds

    def last_end(self, time: float) -> float:
        """When the last window of a moment ends."""
        return time - time % self.size_seconds + self.size_seconds


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size, a new one every step: a record belongs to several."""

    size_seconds: float
    step_seconds: float

    def __post_init__(self) -> None:
        _positive("size_seconds", self.size_seconds)
        _positive("step_seconds", self.step_seconds)
        if self.step_seconds > self.size_seconds:
            raise GraphRefused(
                f"A step of {self.step_seconds} s over windows of {self.size_seconds} s leaves records in no "
                "window. Allowed: a step of at most the size."
            )

    def starts(self, time: float) -> Iterator[float]:
        """The starts of all windows that contain this time."""
        start = time - time % self.step_seconds
        while start > time - self.size_seconds:
            yield start
            start -= self.step_seconds

    def last_end(self, time: float) -> float:
        """When the last window of a moment ends."""
        return time - time % self.step_seconds + self.size_seconds


@dataclass(frozen=True, slots=True)
class Session:
    """A window that lasts as long as records follow each other within the gap."""

    gap_seconds: float

    def __post_init__(self) -> None:
        _positive("gap_seconds", self.gap_seconds)


Window = Tumbling | Sliding | Session


def _positive(name: str, seconds: float) -> None:
    if not seconds > 0:
        raise GraphRefused(f"{name} is {seconds}; it must be more than 0.")
