"""Injects the faults of one schedule when they are due. Several executors run in parallel, in threads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from fencepost_torture._faults import FaultInjector
from fencepost_torture._schedule import Fault

TICK_SECONDS = 0.02
REST_SECONDS_MAX = 10.0
"""How long a fault waits for every system to make progress; then it hits even a system that hangs."""


class FaultExecutor:
    """With `done`, which counts what each system did, a fault waits until the last one is healed and every
    system makes progress again.

    Every system, because otherwise one that recovers more slowly than the fastest would never be tested.
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
        """When the last fault was over, and how much each system had done by then; None when work goes on."""
        self._resting = False

    def begin(self) -> None:
        self.faults.begin()
        if self._next is not None:
            self._due = time.monotonic() + self._next.gap_seconds

    def turn(self) -> None:
        """Inject the fault that is due; then heal those that are over."""
        while self._next is not None and not self._rests() and time.monotonic() >= self._due:
            self.faults.strike(self._next)
            self._next = next(self._planned_faults)
            # Counted from the end of the last one: a slow fault is not followed by a burst of others.
            self._due = time.monotonic() + self._next.gap_seconds
            self._resting = self._done is not None
        self.faults.heal_due()
        self.faults.give_orders()

    @property
    def seconds_left(self) -> float:
        """How long nothing is due here, at most one tick: the end of a wait for progress is not known."""
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
