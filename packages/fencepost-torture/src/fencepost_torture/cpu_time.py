"""Time as the machine gave it to us, for deadlines that must not be missed because others were busy."""

from __future__ import annotations

import os
import time


class CpuTime:
    """Seconds since the beginning, of a machine that has a core for everybody.

    Where twice as many want to run as there are cores, a second counts as half of one. A deadline in it is
    missed by a system that hangs or crawls, and not by one whose machine had other things to do.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def sleep(self, seconds: float) -> None:
        before = time.monotonic()
        time.sleep(seconds)
        # A machine that stood still as a whole gave nobody anything: no nap counts for more than two.
        self.count(min(time.monotonic() - before, 2 * seconds))

    def count(self, seconds: float) -> None:
        """So long something else took."""
        self.seconds += seconds / slowness()


def slowness() -> float:
    """How many want to run for each core, and at least one."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
