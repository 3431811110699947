"""Wait for a named condition, at most for a given time."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fencepost.backoff import Backoff

PAUSES = Backoff(0.001, 0.05, jitter=0)


@dataclass(frozen=True)
class Deadline:
    """A number of seconds, and the condition that must hold by then."""

    seconds: float
    condition: str

    def wait(self, holds: Callable[[], bool]) -> None:
        """Return as soon as the condition holds; TimeoutError names it otherwise."""
        end = time.monotonic() + self.seconds
        pauses = PAUSES.waits()
        while not holds():
            if time.monotonic() >= end:
                raise TimeoutError(f"Timed out after {self.seconds:g} s waiting until {self.condition}.")
            time.sleep(next(pauses))
