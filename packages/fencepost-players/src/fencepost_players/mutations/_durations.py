"""Measures how long mutations take, so that Retry-After names a time when one is probably done."""

from __future__ import annotations

FIRST_GUESS_SECONDS = 0.05
RETRY_SECONDS_MIN = 0.01
RETRY_SECONDS_MAX = 5.0
_WEIGHT = 0.1


class Durations:
    """A moving average for each method of one node."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def saw(self, method: str, seconds: float) -> None:
        known = self._seconds.get(method, seconds)
        self._seconds[method] = known + _WEIGHT * (seconds - known)

    def retry_seconds(self, method: str) -> float:
        """Twice the usual duration: most of what is under way is done by then."""
        usual = self._seconds.get(method, FIRST_GUESS_SECONDS)
        return min(max(2 * usual, RETRY_SECONDS_MIN), RETRY_SECONDS_MAX)
