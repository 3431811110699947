"""Sending orders, and querying those whose outcome is unknown: the two destinations of the relays.

Neither decides: `outcome.py` says what an answer means, and the database whether the settling worker still
may.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fencepost.crashpoints import crash_point
from fencepost.http_client import MaybeSent, NotSent
from fencepost.kernel.call import CallRunner
from fencepost_orders import order_calls
from fencepost_orders.broker import BrokerAdapter, Code, FoundOrder, LookupFinding, LookupScope
from fencepost_orders.metrics import OrderMetrics
from fencepost_orders.order_calls import OrderSettlement, Settled, TakenOrder
from fencepost_orders.outcome import (
    Policy,
    answered,
    found,
    hold_back,
    maybe_sent,
    not_sent,
    outgoing,
    with_answer,
)


class OrderSender:
    """Sends one order."""

    def __init__(self, adapter: BrokerAdapter, policy: Policy) -> None:
        self._adapter = adapter
        self._policy = policy

    async def deliver(self, message: TakenOrder) -> OrderSettlement:
        # A worker that stalls here sends late. The stamp bounds how late a broker accepts it; where a broker
        # has no such rule, the policy never resends an order whose worker stopped renewing its take.
        crash_point("orders.before_send")
        held = hold_back(self._adapter.declaration, message, self._policy, datetime.now(UTC))
        if held is not None:
            return held
        leaving = outgoing(message)
        try:
            reply = await self._adapter.send_order(leaving)
        except NotSent as error:
            return not_sent(message, str(error), self._policy)
        except MaybeSent as error:
            return maybe_sent(message, Code.NETWORK_TIMEOUT, str(error))
        crash_point("orders.after_send")
        verdict = with_answer(self._adapter.classify(leaving, reply), reply)
        return answered(message, verdict, self._adapter.declaration, self._policy)

    def failed(self, message: TakenOrder, error: BaseException) -> OrderSettlement:
        return maybe_sent(message, Code.UNKNOWN, f"{type(error).__name__}: {error}")


class Reconciler:
    """Queries one order, and says what follows."""

    def __init__(self, adapter: BrokerAdapter, policy: Policy, lease_seconds: float) -> None:
        self._adapter = adapter
        self._policy = policy
        self._lease_seconds = lease_seconds

    async def deliver(self, message: TakenOrder) -> OrderSettlement:
        declared = self._adapter.declaration
        if declared.sight is LookupScope.NONE:
            answer = FoundOrder(LookupFinding.NO_ANSWER)
        else:
            answer = await self._adapter.find_order(outgoing(message))
        crash_point("orders.after_question")
        # The earliest possible time of the query, by the clock that stamped the request: that of the take.
        asked_at = message.taken_until - timedelta(seconds=self._lease_seconds)
        return found(message, answer, declared, self._policy, asked_at)

    def failed(self, message: TakenOrder, error: BaseException) -> OrderSettlement:
        detail = f"{type(error).__name__}: {error}"
        if message.state == "parked":
            wait_seconds = self._policy.backoff.spread(self._policy.parked_seconds)
            code = message.last_error or Code.UNKNOWN
            return OrderSettlement(message.id, message.take, "parked", code=code, delay_seconds=wait_seconds)
        wait_seconds = self._policy.backoff.seconds(message.asks)
        return OrderSettlement(
            message.id, message.take, "unknown", "unproved", Code.UNKNOWN, detail[:1000], wait_seconds
        )


class PendingOrderSource:
    """A broker's orders that wait to be sent."""

    def __init__(self, database: CallRunner, broker: str, metrics: OrderMetrics) -> None:
        self._database = database
        self._broker = broker
        self._metrics = metrics
        self._under_way: dict[int, TakenOrder] = {}

    @property
    def topic(self) -> str:
        return f"outbox:orders:{self._broker}"

    async def take(self, owner: str, lease_seconds: float, limit: int) -> Sequence[TakenOrder]:
        taken = await self._database.run(order_calls.take(self._broker, owner, lease_seconds, limit))
        return self._remember(taken)

    async def settle(self, owner: str, settlements: Sequence[OrderSettlement]) -> Sequence[str | None]:
        settled = await self._database.run(order_calls.settle(self._broker, owner, settlements))
        by_id = {answer.id: answer for answer in settled}
        answers = [by_id[settlement.id] for settlement in settlements]
        self._metrics.settled(settlements, answers, self._still_parked(answers))
        now = datetime.now(UTC)
        for answer in answers:
            taken = self._under_way.pop(answer.id, None)
            if taken is not None and answer.state in {"sent", "dead"}:
                self._metrics.ended((now - taken.created_at).total_seconds(), taken.retry_count)
        return [answer.refusal for answer in answers]

    async def renew(self, owner: str, lease_seconds: float, messages: Sequence[TakenOrder]) -> None:
        await self._database.run(order_calls.renew(messages, owner, lease_seconds))

    async def expire(self, limit: int) -> int:
        expired = await self._database.run(order_calls.expire_takes(self._broker, limit))
        self._metrics.sends.labels(outcome="unknown").inc(len(expired))
        return len(expired)

    def _still_parked(self, answers: Sequence[Settled]) -> set[int]:
        """Orders that were parked before the query and still are after it: nothing happened to them."""
        return {
            answer.id
            for answer in answers
            if answer.state == "parked"
            and (taken := self._under_way.get(answer.id)) is not None
            and taken.state == "parked"
        }

    def _remember(self, taken: Sequence[TakenOrder]) -> Sequence[TakenOrder]:
        self._under_way.update((one.id, one) for one in taken)
        return taken


class UnknownOrderSource(PendingOrderSource):
    """A broker's orders whose outcome is unknown, to be queried; and the parked ones, if the broker can be
    queried."""

    @property
    def topic(self) -> str:
        return f"orders-unknown:{self._broker}"

    def __init__(
        self, database: CallRunner, broker: str, metrics: OrderMetrics, *, parked: bool = True
    ) -> None:
        super().__init__(database, broker, metrics)
        self._parked = parked

    async def take(self, owner: str, lease_seconds: float, limit: int) -> Sequence[TakenOrder]:
        call = order_calls.take_unknown(self._broker, owner, lease_seconds, limit, parked=self._parked)
        taken = await self._database.run(call)
        return self._remember(taken)

    async def expire(self, limit: int) -> int:
        """Does nothing. An expired take of a query is free by itself."""
        return 0
