"""One schedule, and the faults that it strikes when they are due. Lanes go beside each other, in threads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from fencepost_torture.faults import FaultInjector
from fencepost_torture.schedule import Fault

TICK_SECONDS = 0.02
REST_SECONDS_MAX = 10.0
"""So long a blow waits for everybody to do something; then it is struck at whoever hangs."""


class FaultExecutor:
    """With `done`, which counts what each system did, a blow waits until the last is healed and all go on.

    All, because who needs longer than the quickest to find his feet would never be asked for anything.
    """

    def __init__(
        self,
        faults: FaultInjector,
        planned_faults: Iterator[Fault],
        done: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        self.faults = faults
        self._planned_faults = planned_faults
        self._done = done
        self._next = next(planned_faults, None)
        self._due = math.inf
        self._healed: tuple[float, Mapping[str, int]] | None = None
        """When the last blow was over, and how much each had done by then; None when work goes on."""
        self._resting = False

    def begin(self) -> None:
        self.faults.begin()
        if self._next is not None:
            self._due = time.monotonic() + self._next.gap_seconds

    def turn(self) -> None:
        """Strike what is due; afterwards heal what is over."""
        while self._next is not None and not self._rests() and time.monotonic() >= self._due:
            self.faults.strike(self._next)
            self._next = next(self._planned_faults)
            # From the end of the last one: a slow fault is not followed by a heap of others.
            self._due = time.monotonic() + self._next.gap_seconds
            self._resting = self._done is not None
        self.faults.heal_due()
        self.faults.give_orders()

    @property
    def seconds_left(self) -> float:
        """How long nothing is to be done here, a tick at most: who rests does not know when it is over."""
        return TICK_SECONDS if self._resting else min(TICK_SECONDS, max(0.0, self._due - time.monotonic()))

    def keep_turning(self, over: threading.Event) -> None:
        while not over.is_set():
            self.turn()
            over.wait(self.seconds_left)

    def _rests(self) -> bool:
        if not self._resting or self._done is None:
            return False
        now, done = time.monotonic(), self._done()
        if not self.faults.is_over:
            self._healed = None
        elif self._healed is None:
            self._healed = now, done
        elif now > self._healed[0] + REST_SECONDS_MAX or all(
            done[name] > before for name, before in self._healed[1].items()
        ):
            self._resting, self._healed = False, None
            assert self._next is not None
            self._due = now + self._next.gap_seconds
        return self._resting
