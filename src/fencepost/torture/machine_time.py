"""Time that a busy machine did not take away from us."""

from __future__ import annotations

import time

STALL_SECONDS = 0.25


class MachineTime:
    """Seconds since the beginning, without those in which the whole machine stood still.

    A deadline in it is missed by a system that hangs, and not by one whose machine was busy elsewhere:
    whoever sleeps for a moment and wakes up much later was stopped, and so was everybody else.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._stalled = 0.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began - self._stalled

    def sleep(self, seconds: float) -> None:
        before = time.monotonic()
        time.sleep(seconds)
        late = time.monotonic() - before - seconds
        if late > STALL_SECONDS:
            self._stalled += late
