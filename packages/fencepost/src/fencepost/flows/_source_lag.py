"""How long the oldest record in a source has waited, from counts alone: sources do not report arrival
times."""

from __future__ import annotations

from collections import deque

LOOKS_KEPT = 1024


class SourceLag:
    """Samples one partition repeatedly. A record has waited at least since the first sample that saw it."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()

    def seconds(self, now: float, taken: int, waiting: int) -> float:
        """The wait, given the counts taken and waiting. Too low by at most the time between two samples."""
        if waiting <= 0:
            self._ends.clear()
            return 0.0
        end = taken + waiting
        if not self._ends or end > self._ends[-1][1]:
            self._ends.append((now, end))
        while len(self._ends) > 1 and self._ends[0][1] <= taken:
            self._ends.popleft()
        if len(self._ends) > LOOKS_KEPT:
            # A long wait is measured more coarsely, and never as longer than it is.
            self._ends = deque(self._ends[place] for place in range(0, len(self._ends), 2))
        return max(0.0, now - self._ends[0][0])
