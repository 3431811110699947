"""Which ticks a schedule must have, from its interval and the time alone: multiples of it since 1970."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Ticks:
    """The ticks of one schedule. A moment is in microseconds since 1970."""

    every_ms: int

    @property
    def schedule(self) -> str:
        return f"every-{self.every_ms}"

    @property
    def _step(self) -> int:
        return self.every_ms * 1000

    def key(self, tick: int) -> str:
        return f"{self.schedule}@{tick}"

    def between(self, after: int, until: int) -> range:
        return range((after // self._step + 1) * self._step, until + 1, self._step)

    def among(self, keys: Iterable[str]) -> list[int]:
        """The ticks of this schedule that are among the keys, sorted; only those that the schedule has."""
        mine = [key.partition("@") for key in keys]
        moments = [int(moment) for schedule, _, moment in mine if schedule == self.schedule]
        return sorted(moment for moment in moments if moment % self._step == 0)

    def due(self, done: Iterable[str], since: int, until: int) -> set[str]:
        """The keys of all ticks from the first that was done, none of which a schedule that catches up may
        miss. The first is at the latest the first tick since the declaration, whatever was done."""
        first = min([since, *(tick - 1 for tick in self.among(done))])
        return {self.key(tick) for tick in self.between(first, until)}
