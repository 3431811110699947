"""The watermarks of a task's senders, and which of them are silent. No I/O, no clock.

A task advances to the lowest watermark of its senders. One that is silent does not hold the others back: its
watermark follows theirs, as its *floor*. The floor is stored with the frontier in the commit that has its
effects, so a replay finds the decision and does not take it again: a record that comes below the floor came
behind the watermark, in the first run and in every other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from fencepost.flows._frontier import Frontier
from fencepost.flows._record import END

BEGINNING = -END


class Watermarks:
    """By sender: None for one without event time, END for one that has ended."""

    def __init__(self, own: Mapping[str, float | None], frontier: Frontier) -> None:
        self._own = dict(own)
        floors = {sender: frontier.of(sender).floor for sender in own}
        self._floors = {sender: BEGINNING if floor is None else floor for sender, floor in floors.items()}
        self._highest = {sender: frontier.of(sender).watermark for sender in own}
        self._silent: set[str] = set()

    def arrived(self, sender: str, own: float | None, highest: float | None, *, silent: bool) -> None:
        """A sender has reached a watermark, or is silent. `highest` is its watermark without regard to its
        end."""
        self._own[sender] = own
        self._highest[sender] = highest
        (self._silent.add if silent else self._silent.discard)(sender)

    def settle(self) -> bool:
        """Let the silent senders follow the others, or, when all are silent, the furthest; returns whether
        one of them has moved."""
        silent = [sender for sender in self._silent if self._own[sender] not in (None, END)]
        if not silent:
            return False
        going = [
            self.of(sender)
            for sender, own in self._own.items()
            if own is not None and own != END and sender not in self._silent
        ]
        reached = [mark for sender in self._own if (mark := self._reached(sender)) is not None]
        # A sender that has ended does not move the others to the end of time: a silent one may still go on.
        follow = min((mark for mark in going if mark is not None), default=max(reached, default=BEGINNING))
        moved = [sender for sender in silent if (mark := self.of(sender)) is not None and follow > mark]
        self._floors.update(dict.fromkeys(moved, follow))
        return bool(moved)

    def of(self, sender: str) -> float | None:
        own = self._own[sender]
        return None if own is None else max(own, self._floors[sender])

    def floor(self, sender: str) -> float:
        """Below it a record came behind the watermark, whatever its own partition had reached."""
        return self._floors[sender]

    def stored_floor(self, sender: str) -> float | None:
        """What the frontier keeps: nothing when the sender itself has gone further."""
        floor, own = self._floors[sender], self._highest[sender]
        return None if floor == BEGINNING or (own is not None and own >= floor) else floor

    def lowest(self) -> float | None:
        """What a task advances to; None if no sender has event time."""
        return min((mark for sender in self._own if (mark := self.of(sender)) is not None), default=None)

    def slowest(self) -> frozenset[str]:
        """The senders that hold the others back."""
        lowest = self.lowest()
        return frozenset(sender for sender in self._own if self.of(sender) == lowest)

    def _reached(self, sender: str) -> float | None:
        if self._own[sender] is None:
            return None
        highest = self._highest[sender]
        return self._floors[sender] if highest is None else max(highest, self._floors[sender])


class Silence:
    """Whether a partition is silent: reads have found nothing for as long as was said, the last one too.

    It is measured from the first read that found nothing, not from the last record: a partition that nobody
    has read meanwhile is not silent.
    """

    def __init__(self, idle_seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Without `idle_seconds` no partition is ever silent."""
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._since: float | None = None

    def heard(self) -> None:
        self._since = None

    def lasts(self) -> bool:
        """Called after a read that found nothing."""
        if self._idle_seconds is None:
            return False
        self._since = self._clock() if self._since is None else self._since
        return self._clock() - self._since >= self._idle_seconds

    def begins_again(self) -> None:
        """Measure anew: a silence that lasts is told again after the same time."""
        self._since = self._clock()
