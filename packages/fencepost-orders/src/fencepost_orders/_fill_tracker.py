"""Queries orders that the broker has, until it is done with them, and decides what follows from each
answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fencepost.backoff import Backoff
from fencepost_orders._fill_source import Followed, FollowUp
from fencepost_orders._outcome import health_of, result_of
from fencepost_orders.broker import BrokerAdapter, Declaration, FoundOrder, LookupFinding, LookupScope


@dataclass(frozen=True, slots=True)
class FollowPolicy:
    """How often the broker is queried, and for how long when it never reports an end."""

    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 300.0))
    most_seconds: float = 90 * 86_400.0
    retry_after_max_seconds: float = 300.0


class FillTracker:
    """Queries one order."""

    def __init__(self, adapter: BrokerAdapter, policy: FollowPolicy) -> None:
        self._adapter = adapter
        self._policy = policy

    async def deliver(self, message: Followed) -> FollowUp:
        declared = self._adapter.declaration
        if declared.lookup is LookupScope.NONE:
            answer = FoundOrder(LookupFinding.NO_ANSWER)
        else:
            answer = await self._adapter.find_order(message.outgoing())
        return heard(message, answer, declared, self._policy)

    def failed(self, message: Followed, error: BaseException) -> FollowUp:
        """A query places nothing: it is repeated later."""
        waits = self._policy.backoff.seconds(message.asks)
        return FollowUp(message.id, message.take, delay_seconds=waits)


def heard(followed: Followed, answer: FoundOrder, declared: Declaration, policy: FollowPolicy) -> FollowUp:
    """Decide what follows from the answer. Only the broker's own answer about this very order changes
    anything."""
    waits = policy.backoff.seconds(followed.asks)
    health = health_of(answer)
    if health == "exhausted":
        waits = max(waits, min(answer.retry_after_seconds or 0.0, policy.retry_after_max_seconds))
    again = FollowUp(followed.id, followed.take, delay_seconds=waits, health=health)
    is_too_old = (followed.asked_at - followed.created_at).total_seconds() > policy.most_seconds
    if answer.order is not None and answer.order.client_id in {None, followed.idempotency_key}:
        is_open = answer.order.is_open and answer.order.live
        return replace(again, result=result_of(answer.order), over=not is_open or is_too_old)
    if answer.finding is LookupFinding.LIMITED and answer.retry_after_seconds is not None:
        wait_seconds = min(answer.retry_after_seconds, policy.retry_after_max_seconds)
        return replace(again, delay_seconds=wait_seconds)
    # A broker that shows open orders only, and does not show this one, says that it is over, but not how it
    # ended.
    is_gone = answer.finding is LookupFinding.ABSENT and declared.lookup is LookupScope.OPEN
    return replace(again, over=is_gone or declared.lookup is LookupScope.NONE or is_too_old)
