"""How many more jobs this worker may hold."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager


class Capacity:
    """Places for jobs. Two loops claim: a place that one of them has reserved is not available to the
    other."""

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
        """Reserve up to `most` places inside the block; yields how many were reserved."""
        places = min(most, self.free)
        self._reserved += places
        try:
            yield places
        finally:
            self._reserved -= places
            # A loop that saw no free place because of this reservation checks again: perhaps nothing was
            # claimed.
            self._on_release()
