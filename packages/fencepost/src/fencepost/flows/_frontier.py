"""The frontier of a task: for each sender, the last committed offset, and the watermark there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fencepost.flows._record import Offset, order
from fencepost.kernel.call import Json


@dataclass(frozen=True, slots=True)
class Mark:
    """The position of one sender. `watermark` is None before its first record in event time."""

    at: Offset | None = None
    watermark: float | None = None
    ended: bool = False
    count: int = 0
    """How many records of the sender lie at or before `at`, as far as its source can count."""
    floor: float | None = None
    """The watermark to which the others have taken it while it was silent, in this task."""
    taken: Any = None
    """What the key groups of before had taken, after a change of their number, as plain data."""


BEGINNING = Mark()


class Frontier(dict[str, Mark]):
    """Marks by sender. Records at or below a mark were committed with it."""

    def as_json(self) -> Json:
        return {
            sender: {
                "at": mark.at,
                "watermark": _finite(mark.watermark),
                "ended": mark.ended,
                "count": mark.count,
                **({} if mark.floor is None else {"floor": mark.floor}),
                **({} if mark.taken is None else {"taken": mark.taken}),
            }
            for sender, mark in self.items()
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Frontier:
        return cls({sender: Mark(**mark) for sender, mark in (stored or {}).items()})

    @property
    def reached(self) -> dict[str, Offset | None]:
        return {sender: mark.at for sender, mark in self.items()}

    def of(self, sender: str) -> Mark:
        return self.get(sender, BEGINNING)


def least_mark(marks: list[Mark]) -> Mark:
    """The position where a sender must begin so that every receiver gets what it lacks."""
    # The sender has ended only if all receivers know it.
    ended = bool(marks) and all(mark.ended for mark in marks)
    if not marks or any(mark.at is None for mark in marks):
        return Mark(ended=ended)
    lowest = min(marks, key=lambda mark: order(mark.at if mark.at is not None else 0))
    return Mark(lowest.at, lowest.watermark, ended, lowest.count)


def _finite(watermark: float | None) -> float | None:
    return None if watermark is None or watermark in (float("inf"), float("-inf")) else watermark
