"""What the hostile broker does to a request: drawn for each request, by chances that a test sets."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from enum import StrEnum


class BrokerFault(StrEnum):
    """What happens to one request for a new order."""

    PLAIN = "plain"
    LOSE_REPLY = "lose_reply"
    """Accepts, and closes without an answer."""
    LOSE_REQUEST = "lose_request"
    """Closes without an answer, and accepts nothing."""
    ACCEPT_LATE = "accept_late"
    """Answers 504, and accepts afterwards, if the request's deadline has not passed by then."""
    FAIL_AFTER = "fail_after"
    """Accepts, and answers 500."""
    FAIL_BEFORE = "fail_before"
    """Answers 503, and accepts nothing."""
    CLOSE_HALFWAY = "close_halfway"
    """Accepts, and closes in the middle of the answer."""
    GARBLE = "garble"
    """Accepts, and answers 200 with a body that is not JSON."""
    ECHO_ANOTHER = "echo_another"
    """Accepts, and answers with another order's key."""
    DUPLICATE = "duplicate"
    """The request arrives twice; the second answer is the one that comes back."""
    SLOW = "slow"
    """Accepts, and answers slowly."""
    LIMIT = "limit"
    """Answers 429 with Retry-After, and accepts nothing."""
    CHANGE_MIND = "change_mind"
    """Answers 400 to a request that it would have accepted a moment ago."""


@dataclass(frozen=True)
class BrokerFaults:
    """The chance of each fault, in a hundred requests; the rest are answered normally."""

    lose_reply: float = 0
    lose_request: float = 0
    accept_late: float = 0
    fail_after: float = 0
    fail_before: float = 0
    close_halfway: float = 0
    garble: float = 0
    echo_another: float = 0
    duplicate: float = 0
    slow: float = 0
    limit: float = 0
    change_mind: float = 0

    def draw(self, chance: random.Random) -> BrokerFault:
        """One fault, by its percentage, or none."""
        point = chance.uniform(0, 100)
        for each in fields(self):
            point -= getattr(self, each.name)
            if point < 0:
                return BrokerFault(each.name)
        return BrokerFault.PLAIN


FRIENDLY = BrokerFaults()
FOUL = BrokerFaults(
    lose_reply=5,
    lose_request=4,
    accept_late=4,
    fail_after=4,
    fail_before=4,
    close_halfway=3,
    garble=3,
    echo_another=2,
    duplicate=4,
    slow=3,
    limit=2,
    change_mind=1,
)
"""Two requests in five fail in one way or another."""
