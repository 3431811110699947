"""How many more jobs this worker may hold."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager


class Capacity:
    """Places for jobs. Two loops claim: a place that one of them has asked for is not the other's."""

    def __init__(self, places: int, used: Callable[[], int], on_release: Callable[[], None]) -> None:
        self._places = places
        self._used = used
        self._on_release = on_release
        self._reserved = 0

    @property
    def free(self) -> int:
        return max(0, self._places - self._used() - self._reserved)

    @contextmanager
    def reserved(self, most: int) -> Generator[int]:
        """Keep up to so many places inside the block; answers how many there were."""
        places = min(most, self.free)
        self._reserved += places
        try:
            yield places
        finally:
            self._reserved -= places
            # Whoever saw no free place because of us looks again: perhaps nothing was claimed.
            self._on_release()
