"""Waiting for a named condition, not longer than a stated time."""

import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Deadline:
    """A number of seconds, and what is to be true by then."""

    seconds: float
    condition: str

    def wait(self, holds: Callable[[], bool]) -> None:
        """Return as soon as the condition holds; TimeoutError names it otherwise."""
        end = time.monotonic() + self.seconds
        pause = FIRST_PAUSE_SECONDS
        while not holds():
            if time.monotonic() >= end:
                raise TimeoutError(f"Timed out after {self.seconds:g} s waiting until {self.condition}.")
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
