"""Time weighted by the load of the machine, for deadlines that a busy machine must not make a run miss."""

from __future__ import annotations

import os
import time


class CpuTime:
    """Seconds since the start, of a machine that has a core for every runnable thread.

    Where twice as many threads want to run as there are cores, a second counts as half of one. A system that
    hangs or is slow misses a deadline in it; a system on a machine that is busy with other work does not.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def sleep(self, seconds: float) -> None:
        before = time.monotonic()
        time.sleep(seconds)
        # A machine that was suspended as a whole gave no time to any process: a sleep counts at most double.
        self.count(min(time.monotonic() - before, 2 * seconds))

    def count(self, seconds: float) -> None:
        """Add the time that something else took."""
        self.seconds += seconds / slowness()


def slowness() -> float:
    """The number of runnable threads for each core, at least one."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
