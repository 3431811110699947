"""Wait for a named condition, at most for a given time."""

import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Deadline:
    """A number of seconds, and the condition that must hold by then."""

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
