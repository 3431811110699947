"""The network port of an order: sends it to its broker, queries one whose outcome is unknown, and probes a
broker that failed.

None of them decides: `_outcome.py` says what an answer means, and the database whether the settling worker
still may.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from fencepost.crashpoints import crash_point
from fencepost.http_client import MaybeSent, NotSent
from fencepost_orders._order_source import BrokerHealth, OrderSettlement, Probed, ProbeSource, TakenOrder
from fencepost_orders._outcome import (
    Policy,
    answered,
    found,
    health_of,
    hold_back,
    maybe_sent,
    not_left,
    not_sent,
    outgoing,
    with_answer,
)
from fencepost_orders.broker import BrokerAdapter, Code, FoundOrder, LookupFinding, LookupScope

PROBE_SECONDS = 1.0


class OrderSender:
    """Sends one order."""

    def __init__(self, adapter: BrokerAdapter, policy: Policy) -> None:
        self._adapter = adapter
        self._policy = policy

    async def deliver(self, message: TakenOrder) -> OrderSettlement:
        # A worker that stood still for a lease sends nothing. One that stalls after this check sends late:
        # the stamp bounds how late a broker accepts it; where a broker has no such rule, the policy never
        # resends an order whose worker stopped renewing its take.
        crash_point("orders.before_send")
        if time.monotonic() >= message.leave_by:
            return not_left(message)
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
        if declared.lookup is LookupScope.NONE:
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


class Probe:
    """The loop of one broker that failed, or was halted because it refused the credentials.

    When the database says that a probe is due, it queries an order that waits for the broker. A query places
    nothing, so no order is risked.
    """

    def __init__(self, source: ProbeSource, adapter: BrokerAdapter) -> None:
        self._source = source
        self._adapter = adapter

    async def tick(self) -> float:
        probed = await self._source.take()
        if probed is not None:
            await self._source.settle(await self._ask(probed))
        return PROBE_SECONDS

    async def _ask(self, probed: Probed) -> BrokerHealth | None:
        try:
            answer = await self._adapter.find_order(probed.outgoing())
        except Exception:
            # Whatever an adapter raises: the broker did not answer.
            answer = FoundOrder(LookupFinding.NO_ANSWER, code=Code.UNKNOWN)
        return health_of(answer)
