"""The orders service: what a program calls, and what runs in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal, cast

from fencepost.backoff import Backoff
from fencepost.client import Fencepost
from fencepost.errors import InvalidInput, NotFound, SettingsError
from fencepost.kernel import migrate
from fencepost.kernel.call import Call, Json
from fencepost.kernel.drivers import AsyncConnection
from fencepost.listener import Listener
from fencepost.loop import Loop
from fencepost.outbox.relay import Relay, RelayLimits
from fencepost.outbox.settings import OutboxSettings
from fencepost.retention import until_short
from fencepost.transaction import Transaction, send
from fencepost_orders import _change_source as change_source
from fencepost_orders import _fill_source as fill_source
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import limits as account_limits
from fencepost_orders import operator_calls
from fencepost_orders._change_source import (
    CancelledOpen,
    ChangeSettlement,
    ChangeSource,
    Replaced,
    TakenChange,
)
from fencepost_orders._changer import ChangePolicy, OrderChangeSender
from fencepost_orders._compatible_names import NAMES
from fencepost_orders._fill_source import Followed, FollowUp, OpenOrderSource
from fencepost_orders._fill_tracker import FillTracker, FollowPolicy
from fencepost_orders._metrics import OrderMetrics
from fencepost_orders._order_calls import Accepted
from fencepost_orders._order_source import (
    OrderSettlement,
    PendingOrderSource,
    ProbeSource,
    TakenOrder,
    UnknownOrderSource,
)
from fencepost_orders._outcome import Policy
from fencepost_orders._sender import OrderSender, Probe, Reconciler
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import LookupScope
from fencepost_orders.brokers import Broker
from fencepost_orders.limits import AccountLimits
from fencepost_orders.request import OrderRequest

MAINTENANCE_SECONDS = 5.0
MAINTENANCE_BATCH = 1000
OrderRelay = Relay[TakenOrder, OrderSettlement]
FollowRelay = Relay[Followed, FollowUp]
ChangeRelay = Relay[TakenChange, ChangeSettlement]
# Fills are less urgent than orders.
FOLLOW_IDLE_SECONDS = 1.0


class Orders:
    """Accept, read, decide; `running()` sends, queries and cleans up until its block ends.

    async with fp.transaction() as tx:
        await orders.accept(tx, OrderRequest.of({...}))       # with your own rows, or not at all
    """

    def __init__(
        self,
        fp: Fencepost,
        brokers: Mapping[str, Broker],
        settings: OrdersSettings | None = None,
        outbox_settings: OutboxSettings | None = None,
    ) -> None:
        self._fp = fp
        self._brokers = dict(brokers)
        self._settings = settings or OrdersSettings()
        self._outbox_settings = outbox_settings or OutboxSettings()
        self._key_of = self._settings.key_of()
        self.default_broker = self._settings.default_broker
        if self.default_broker is not None and self.default_broker not in self._brokers:
            known = ", ".join(sorted(self._brokers)) or "none"
            raise SettingsError(
                f"ORDERS_DEFAULT_BROKER is {self.default_broker!r}, which is no broker of ORDERS_BROKERS."
                f" Allowed: {known}."
            )
        self.metrics = OrderMetrics.on(fp.metrics)
        if fp.settings.compatible_names:
            fp.metrics.export_also(NAMES.metrics)

    def acceptance(self, request: OrderRequest) -> Call[Accepted]:
        """The call that accepts the order, for a connection of any driver: `fencepost.run(connection,
        call)`."""
        if request.broker not in self._brokers:
            known = ", ".join(sorted(self._brokers)) or "none; see ORDERS_BROKERS"
            raise InvalidInput(f"Unknown broker. Configured: {known}.", field="broker")
        broker = self._brokers[request.broker]
        if broker.accounts is not None and request.account not in broker.accounts:
            known = ", ".join(sorted(broker.accounts))
            raise InvalidInput(f"Unknown account of this broker. Configured: {known}.", field="account")
        broker.adapter.declaration.orders.check(request)
        keep_seconds = self._settings.key_days * 86_400
        return order_calls.accept(request, self._key_of(request), keep_seconds=keep_seconds)

    async def accept(self, tx: Transaction | AsyncConnection, request: OrderRequest) -> Accepted:
        """Accept the order in the caller's transaction. A repeat returns the first result; different content
        raises Mismatch."""
        answer: Accepted = await cast("Any", send)(tx, self.acceptance(request))
        return self._judged(request, answer)

    async def place(self, request: OrderRequest) -> Accepted:
        """Accept the order in a transaction of its own."""
        return self._judged(request, await self._fp.run(self.acceptance(request)))

    async def get(self, *, order_id: int | None = None, key: str | None = None) -> dict[str, Json]:
        """One order, by id or by idempotency key. Raises NotFound."""
        found = await self._fp.run(order_calls.get(order_id=order_id, key=key))
        if found is None:
            raise NotFound("Order not found.", noun="order", subject=str(order_id or key))
        return found

    async def history(self, order_id: int) -> list[dict[str, Json]]:
        """What happened to an order, oldest first."""
        return await self._fp.run(order_calls.history(order_id))

    async def listed(self, **which: Any) -> list[dict[str, Json]]:
        """Orders by state, broker, account or time."""
        return await self._fp.run(order_calls.listing(**which))

    async def cancel(self, order_id: int, actor: str, reason: str) -> None:
        """Cancel an order that was not sent. Raises a refusal when it may have been."""
        await self._fp.run(operator_calls.cancel(order_id, actor, reason))

    async def cancel_at_broker(self, order_id: int, key: str, actor: str, reason: str) -> str:
        """Cancel an order wherever it is. Answers `dead` when nothing had left, `requested` when the broker
        is asked for it, `replay` when the same key asked before."""
        return await self._fp.run(change_source.cancel(order_id, key, actor, reason))

    async def replace(
        self, order_id: int, key: str, changes: Mapping[str, Json], actor: str, reason: str
    ) -> Replaced:
        """Replace an order at the broker by one with other terms: `qty`, prices, `time_in_force`. The key
        makes it once."""
        old = await self.get(order_id=order_id)
        broker = self._brokers.get(old["broker"])
        terms = OrderRequest.of({**(old["terms"] or old["request_json"]), **changes})
        if broker is not None:
            broker.adapter.declaration.orders.check(terms)
        wanted = terms.document()
        given = {name: wanted[name] for name in changes if name in wanted}
        return await self._fp.run(change_source.replace_order(order_id, key, given, actor, reason))

    async def cancel_open(
        self, broker: str, account: str | None, key: str, actor: str, reason: str
    ) -> CancelledOpen:
        """Cancel everything of a broker, or of one account, that has not ended."""
        return await self._fp.run(change_source.cancel_open(broker, account, key, actor, reason))

    async def resolve(
        self,
        order_id: int,
        expected: str,
        outcome: operator_calls.Resolution,
        actor: str,
        reason: str,
        *,
        broker_order_id: str | None = None,
    ) -> None:
        """Settle by hand an order whose outcome is unknown. Raises Mismatch from another state."""
        result = operator_calls.result_by_hand(actor, broker_order_id) if outcome == "sent" else None
        await self._fp.run(operator_calls.resolve(order_id, expected, outcome, actor, reason, result=result))

    async def resend(
        self, order_id: int, expected: Literal["dead", "parked"], actor: str, reason: str
    ) -> int:
        """Send a dead or parked order again, as a new order; answers its id."""
        old = await self.get(order_id=order_id)
        call = operator_calls.resend_of(old, expected, self._key_of, actor, reason)
        return await self._fp.run(call)

    async def halt(self, broker: str, account: str | None, actor: str, reason: str) -> None:
        """Send nothing more to a broker, or for one account of it, until `resume`."""
        await self._fp.run(operator_calls.halt(broker, account, actor, reason))

    async def resume(self, broker: str, account: str | None, actor: str, reason: str) -> None:
        """Send again after `halt`."""
        await self._fp.run(operator_calls.resume(broker, account, actor, reason))

    async def set_limits(
        self, broker: str, account: str, limits: AccountLimits, actor: str, reason: str
    ) -> None:
        """Set what the orders of an account may have; `*` stands for every account without its own."""
        await self._fp.run(account_limits.set_limits(broker, account, limits, actor, reason))

    async def limits(self, broker: str | None = None) -> list[dict[str, Json]]:
        """The limits of each account, with what it has placed today."""
        return await self._fp.run(account_limits.listing(broker))

    async def set_prices(self, broker: str, prices: Mapping[str, Decimal], source: str) -> None:
        """Store reference prices, which price collars and notional limits need."""
        await self._fp.run(account_limits.set_prices(broker, prices, source))

    async def brokers(self) -> list[dict[str, Json]]:
        """The brokers, with what is halted and which breaker is open."""
        return await self._fp.run(operator_calls.brokers())

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Send orders and query unknown ones, until the block ends; raises when the schema does not fit."""
        async with self.serving(), self.working():
            yield

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """What accepting orders needs; sends nothing."""
        await asyncio.to_thread(migrate.require, self._fp.database_url, "orders")
        for name, broker in self._brokers.items():
            call = operator_calls.declare_broker(name, broker.limits, can_ask=_can_ask(broker))
            await self._fp.run(call)
            declared = broker.adapter.declaration
            await self._fp.run(
                change_source.declare_abilities(
                    name, can_cancel=declared.can_cancel, can_replace=declared.can_replace
                )
            )
        try:
            yield
        finally:
            for broker in self._brokers.values():
                await broker.adapter.close()

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """The work of the role `orders`: send, ask, follow, and end what has expired. Inside `serving`."""
        # Before anything is taken: after an outage, orders that have expired meanwhile end here, and are
        # counted.
        await self._end_what_expired()
        relays = self._relays() if self._settings.sending else []
        probes = self._probes() if self._settings.sending else []
        maintain = Loop("orders.maintenance", self.maintain, self.metrics.loop_errors)
        listener = Listener(self._fp.settings.listen_database_url or self._fp.database_url)
        for relay in relays:
            relay.start(listener)
        for loop in (maintain, *probes):
            loop.start()
        listening = asyncio.create_task(listener.run(), name="fencepost-orders-listener")
        try:
            yield
        finally:
            await asyncio.gather(*(relay.stop() for relay in relays))
            for loop in (maintain, *probes):
                await loop.stop()
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    def _relays(self) -> list[OrderRelay | FollowRelay | ChangeRelay]:
        pace = self._outbox_settings.pace()
        asking = RelayLimits(
            batch=pace.batch,
            in_flight_max=pace.batch,
            lease_seconds=self._settings.ask_lease_seconds,
            delivery_seconds=self._settings.ask_lease_seconds,
            idle_seconds=pace.idle_seconds,
        )
        policy = Policy(
            self._outbox_settings.retry_max,
            Backoff(
                self._outbox_settings.backoff_base_seconds, self._outbox_settings.backoff_base_seconds * 128
            ),
            self._settings.margin_seconds,
            self._settings.ask_seconds,
            self._settings.parked_ask_seconds,
            self._settings.retry_after_max_seconds,
            self._settings.unauthorized,
        )
        relays: list[OrderRelay | FollowRelay | ChangeRelay] = []
        for name, broker in self._brokers.items():
            questions = Reconciler(broker.adapter, policy, asking.lease_seconds)
            relays += [
                self._relay(
                    "orders",
                    PendingOrderSource(self._fp, name, self.metrics),
                    OrderSender(broker.adapter, policy),
                    pace,
                ),
                self._relay(
                    "orders.unknown",
                    UnknownOrderSource(self._fp, name, self.metrics, parked=_can_ask(broker)),
                    questions,
                    asking,
                ),
                self._following(name, broker, asking),
            ]
            if broker.adapter.declaration.can_cancel or broker.adapter.declaration.can_replace:
                relays.append(self._changing(name, broker, asking))
        return relays

    def _probes(self) -> list[Loop]:
        return [
            Loop(
                "orders.probe",
                Probe(ProbeSource(self._fp, name), broker.adapter).tick,
                self.metrics.loop_errors,
            )
            for name, broker in self._brokers.items()
            if _can_ask(broker)
        ]

    def _following(self, name: str, broker: Broker, asking: RelayLimits) -> FollowRelay:
        policy = FollowPolicy(
            Backoff(FOLLOW_IDLE_SECONDS, self._settings.follow_seconds),
            self._settings.follow_days * 86_400,
            self._settings.retry_after_max_seconds,
        )
        return Relay(
            "orders.following",
            OpenOrderSource(self._fp, name, self.metrics),
            FillTracker(broker.adapter, policy),
            self._fp,
            self._fp.owner,
            self.metrics.loop_errors,
            replace(asking, idle_seconds=max(asking.idle_seconds, FOLLOW_IDLE_SECONDS)),
        )

    def _changing(self, name: str, broker: Broker, asking: RelayLimits) -> ChangeRelay:
        first_seconds = self._outbox_settings.backoff_base_seconds / 2
        policy = ChangePolicy(
            self._outbox_settings.retry_max,
            Backoff(first_seconds, self._settings.parked_ask_seconds),
            min(0.1, first_seconds),
            self._settings.ask_seconds,
            self._settings.retry_after_max_seconds,
        )
        return Relay(
            "orders.changes",
            ChangeSource(self._fp, name, self.metrics),
            OrderChangeSender(broker.adapter, policy),
            self._fp,
            self._fp.owner,
            self.metrics.loop_errors,
            asking,
        )

    def _relay(
        self, name: str, box: PendingOrderSource, destination: OrderSender | Reconciler, pace: RelayLimits
    ) -> OrderRelay:
        return Relay(
            name,
            box,
            destination,
            self._fp,
            self._fp.owner,
            self.metrics.loop_errors,
            pace,
            on_taken=self.metrics.dequeues if isinstance(destination, OrderSender) else None,
            carried=lambda taken: taken.carried,
        )

    async def maintain(self) -> float:
        """The work without urgency: ending expired orders, pruning, and metrics."""
        await self._end_what_expired()
        await self._fp.run(change_source.sweep(MAINTENANCE_BATCH))
        await until_short(
            self._fp,
            order_calls.prune(self._settings.keep_days * 86_400, MAINTENANCE_BATCH),
            MAINTENANCE_BATCH,
        )
        counts = await self._fp.run(order_calls.counts())
        self.metrics.count(counts, sorted(self._brokers))
        followed = await self._fp.run(fill_source.counts())
        self.metrics.count_followed(followed, sorted(self._brokers))
        for broker in await self._fp.run(operator_calls.brokers()):
            self.metrics.show(broker)
        return MAINTENANCE_SECONDS

    async def _end_what_expired(self) -> None:
        """Batch after batch, because an outage may leave many."""
        while ended := await self._fp.run(order_calls.expire_due(MAINTENANCE_BATCH)):
            self.metrics.sends.labels(outcome="dead").inc(len(ended))
            if len(ended) < MAINTENANCE_BATCH:
                return

    def _judged(self, request: OrderRequest, answer: Accepted) -> Accepted:
        self.metrics.accepts.labels(outcome=answer.outcome).inc()
        refusal = answer.refusal(request.idempotency_key)
        if refusal is not None:
            raise refusal
        return answer


def _can_ask(broker: Broker) -> bool:
    return broker.adapter.declaration.lookup is not LookupScope.NONE
