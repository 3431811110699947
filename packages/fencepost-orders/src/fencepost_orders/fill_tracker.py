"""Queries orders that the broker has, until it is done with them: a message source and a destination of a
relay."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.kernel.call import CallRunner
from fencepost_orders import fill_calls
from fencepost_orders.broker import BrokerAdapter, FoundOrder, LookupFinding, LookupScope
from fencepost_orders.fill_calls import Followed, FollowPolicy, FollowUp
from fencepost_orders.metrics import OrderMetrics


class FillTracker:
    """Queries one order."""

    def __init__(self, adapter: BrokerAdapter, policy: FollowPolicy) -> None:
        self._adapter = adapter
        self._policy = policy

    async def deliver(self, message: Followed) -> FollowUp:
        declared = self._adapter.declaration
        if declared.sight is LookupScope.NONE:
            answer = FoundOrder(LookupFinding.NO_ANSWER)
        else:
            answer = await self._adapter.find_order(message.outgoing())
        return fill_calls.heard(message, answer, declared, self._policy)

    def failed(self, message: Followed, error: BaseException) -> FollowUp:
        """A query places nothing: it is repeated later."""
        waits = self._policy.backoff.seconds(message.asks)
        return FollowUp(message.id, message.take, delay_seconds=waits)


class OpenOrderSource:
    """A broker's orders that the broker has not finished."""

    def __init__(self, database: CallRunner, broker: str, metrics: OrderMetrics) -> None:
        self._database = database
        self._broker = broker
        self._metrics = metrics

    @property
    def topic(self) -> str:
        return f"orders-follow:{self._broker}"

    async def take(self, owner: str, lease_seconds: float, limit: int) -> Sequence[Followed]:
        return await self._database.run(fill_calls.take(self._broker, lease_seconds, limit))

    async def settle(self, owner: str, settlements: Sequence[FollowUp]) -> Sequence[str | None]:
        answers = await self._database.run(fill_calls.settle(self._broker, owner, settlements))
        self._metrics.followed_up(answers)
        refusals = {answer.id: answer.refusal for answer in answers}
        return [refusals[settlement.id] for settlement in settlements]

    async def renew(self, owner: str, lease_seconds: float, messages: Sequence[Followed]) -> None:
        """Does nothing. A query is short: one that outlasts its lease is repeated, and the fence decides
        between both."""

    async def expire(self, limit: int) -> int:
        """Does nothing. A take that ran out is due again by itself."""
        return 0
