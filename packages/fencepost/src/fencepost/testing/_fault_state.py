"""The faults that a proxy applies to its connections."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

GOLDEN = 0.6180339887
"""Its multiples spread over the whole unit interval, and no two consecutive ones are close."""


@dataclass(eq=False)
class DropRule:
    """Drops one message: the nth that matches, counted over all connections."""

    matches: Callable[[bytes], bool]
    nth: int
    half_open: bool
    """Whether the connection then stays open and silent, or ends."""
    fired: threading.Event = field(default_factory=threading.Event)
    _seen: int = 0

    def catches(self, message: bytes) -> bool:
        """Whether this message is the one to drop; counts those that match."""
        if self.fired.is_set() or not self.matches(message):
            return False
        self._seen += 1
        if self._seen == self.nth:
            self.fired.set()
        return self._seen == self.nth


@dataclass
class FaultState:
    """The current faults, for all connections."""

    delay_seconds: float = 0.0
    reorder_seconds: float = 0.0
    """The maximum delay of a request; the delay of each one depends on its number."""
    swallows: bool = False
    on_requests: list[DropRule] = field(default_factory=list[DropRule])
    on_replies: list[DropRule] = field(default_factory=list[DropRule])

    def held_up_seconds(self, turn: int) -> float:
        """The delay of the nth request, so that others overtake it: spread evenly, not in order."""
        return self.reorder_seconds * (turn * GOLDEN % 1.0)

    def clear(self) -> None:
        self.delay_seconds = 0.0
        self.reorder_seconds = 0.0
        self.swallows = False
        self.on_requests.clear()
        self.on_replies.clear()
