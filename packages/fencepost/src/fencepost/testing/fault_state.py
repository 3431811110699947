"""What the connections through a proxy suffer."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

GOLDEN = 0.6180339887
"""Multiples of it fall into every part of the unit, and no two that follow each other are neighbours."""


@dataclass(eq=False)
class DropRule:
    """A message that will not arrive: the nth that matches, counted over all connections."""

    matches: Callable[[bytes], bool]
    nth: int
    half_open: bool
    """Whether the connection then stays, silent, or ends."""
    sprung: threading.Event = field(default_factory=threading.Event)
    _seen: int = 0

    def catches(self, message: bytes) -> bool:
        if self.sprung.is_set() or not self.matches(message):
            return False
        self._seen += 1
        if self._seen == self.nth:
            self.sprung.set()
        return self._seen == self.nth


@dataclass
class FaultState:
    """The present faults, for all connections."""

    delay_seconds: float = 0.0
    reorder_seconds: float = 0.0
    """Up to so long a connection is held up, each as long as its turn says."""
    swallows: bool = False
    on_requests: list[DropRule] = field(default_factory=list[DropRule])
    on_replies: list[DropRule] = field(default_factory=list[DropRule])

    def held_up_seconds(self, turn: int) -> float:
        """How long what comes in the nth turn waits, so that others pass it: spread evenly, not in order."""
        return self.reorder_seconds * (turn * GOLDEN % 1.0)

    def clear(self) -> None:
        self.delay_seconds = 0.0
        self.reorder_seconds = 0.0
        self.swallows = False
        self.on_requests.clear()
        self.on_replies.clear()
