"""The database port of an order: what relays take from PostgreSQL, and how they settle it. Every call is one
statement, which the database fences with the take."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from fencepost.kernel.call import (
    Call,
    CallRunner,
    Json,
    Row,
    column,
    duration,
    each,
    nothing,
    optional_document,
    optional_duration,
    optional_text,
    parsed,
    text,
)
from fencepost_orders._metrics import OrderMetrics
from fencepost_orders.broker import OutgoingOrder

Outcome = Literal["sent", "dead", "failed", "queued", "unknown", "parked"]
Fate = Literal["unproved", "not_this", "none"]
BrokerHealth = Literal["ok", "failed", "limited", "ask_limited", "exhausted", "unauthorized"]
"""`exhausted`: it answered, and said that its rate limit has nothing left until the reset."""
Unauthorized = Literal["dead", "hold"]


@dataclass(frozen=True, slots=True)
class TakenOrder:
    """An order that was taken, to send it or to query it. `take` is the fence."""

    id: int
    take: int
    order_key: str
    request: dict[str, Json]
    idempotency_key: str
    account: str
    trace_id: str | None
    retry_count: int
    asks: int
    created_at: datetime
    expires_at: datetime | None
    stamped_at: datetime
    open_since: datetime | None
    taken_until: datetime
    last_error: str | None
    headers: Mapping[str, Json] = field(default_factory=dict[str, Json])
    unknown_since: datetime | None = None
    state: str = "sending"
    """Its state while it is taken: sending, unknown or parked."""
    leave_by: float = math.inf
    """When its lease ends if it is not renewed, by this process's `time.monotonic()`: an order that has not
    left by then is not sent."""

    @property
    def carried(self) -> Mapping[str, Json]:
        """The trace context with which the order was accepted."""
        return {"trace_id": self.trace_id, **self.headers}


@dataclass(frozen=True, slots=True)
class OrderSettlement:
    """The result of one request or one query. `fate` says what is proved about the requests so far."""

    id: int
    take: int
    outcome: Outcome
    fate: Fate = "unproved"
    code: str | None = None
    detail: str | None = None
    delay_seconds: float | None = None
    result: Json = None
    health: BrokerHealth | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    id: int
    state: str | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Probed:
    """The order that is queried."""

    request: dict[str, Json]
    idempotency_key: str
    account: str
    broker_order_id: str | None
    created_at: datetime
    stamped_at: datetime
    open_since: datetime | None

    def outgoing(self) -> OutgoingOrder:
        return OutgoingOrder(
            self.idempotency_key,
            self.request,
            self.stamped_at,
            self.account,
            self.open_since or self.created_at,
            broker_order_id=self.broker_order_id,
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
        # Read before the statement: the lease begins inside it.
        leave_by = time.monotonic() + lease_seconds
        taken = await self._database.run(take(self._broker, owner, lease_seconds, limit))
        return self._remember([replace(one, leave_by=leave_by) for one in taken])

    async def settle(self, owner: str, settlements: Sequence[OrderSettlement]) -> Sequence[str | None]:
        settled = await self._database.run(settle(self._broker, owner, settlements))
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
        await self._database.run(renew(messages, owner, lease_seconds))

    async def expire(self, limit: int) -> int:
        expired = await self._database.run(expire_takes(self._broker, limit))
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
        call = take_unknown(self._broker, owner, lease_seconds, limit, parked=self._parked)
        taken = await self._database.run(call)
        return self._remember(taken)

    async def expire(self, limit: int) -> int:
        """Does nothing. An expired take of a query is free by itself."""
        return 0


class ProbeSource:
    """The order with which a broker is probed, when a probe is due."""

    def __init__(self, database: CallRunner, broker: str) -> None:
        self._database = database
        self._broker = broker

    async def take(self) -> Probed | None:
        return await self._database.run(take_probe(self._broker))

    async def settle(self, health: BrokerHealth | None) -> None:
        await self._database.run(settle_probe(self._broker, health))


def take(broker: str, owner: str, lease_seconds: float, limit: int) -> Call[list[TakenOrder]]:
    """Lease due orders to `owner`, as many as the broker's throttle allows, and stamp their requests."""
    return Call(
        "select id, take, order_key, request::text, idempotency_key, account, trace_id, retry_count, asks,"
        " created_at, expires_at, stamped_at, open_since, taken_until, last_error, headers::text"
        " from fencepost.orders_take(%s::text, %s::text, %s::interval, %s::integer)",
        (text("broker", broker), text("owner", owner), duration("lease", lease_seconds), limit),
        _taken,
    )


def take_unknown(
    broker: str, owner: str, lease_seconds: float, limit: int, *, parked: bool = False
) -> Call[list[TakenOrder]]:
    """Lease orders whose outcome is unknown, to query them; and parked ones whose query is due."""
    return Call(
        "select id, take, order_key, request::text, idempotency_key, account, trace_id, retry_count, asks,"
        " created_at, expires_at, stamped_at, open_since, taken_until, last_error, headers::text,"
        " unknown_since, state"
        " from fencepost.orders_take_unknown(%s::text, %s::text, %s::interval, %s::integer, %s::boolean)",
        (text("broker", broker), text("owner", owner), duration("lease", lease_seconds), limit, parked),
        _taken,
    )


def settle(broker: str, owner: str, settlements: Sequence[OrderSettlement]) -> Call[list[Settled]]:
    """Settle requests or queries with one statement; answers for each."""
    return Call(
        "select id, state, refusal from fencepost.orders_settle(%s::text, %s::text, %s::bigint[],"
        " %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::interval[], %s::jsonb[],"
        " %s::text[])",
        (
            text("broker", broker),
            text("owner", owner),
            [s.id for s in settlements],
            [s.take for s in settlements],
            [s.outcome for s in settlements],
            [s.fate for s in settlements],
            [optional_text("code", s.code) for s in settlements],
            [optional_text("detail", s.detail) for s in settlements],
            [optional_duration("delay", s.delay_seconds) for s in settlements],
            [optional_document("result", s.result) for s in settlements],
            [s.health for s in settlements],
        ),
        each(Settled),
    )


def renew(orders: Sequence[TakenOrder], owner: str, lease_seconds: float) -> Call[list[Any]]:
    """Extend the leases of orders that are being sent; a take that is over stays over."""
    return Call(
        "select refusal from fencepost.outbox_renew(%s::bigint[], %s::bigint[], %s::text, %s::interval)",
        (
            [taken.id for taken in orders],
            [taken.take for taken in orders],
            text("owner", owner),
            duration("lease", lease_seconds),
        ),
        column,
    )


def expire_takes(broker: str, limit: int, *, grace_seconds: float = 0) -> Call[list[int]]:
    """Orders whose sender stopped renewing become unknown; answers their ids."""
    return Call(
        "select * from fencepost.orders_expire_takes(%s::text, %s::integer, %s::interval)",
        (text("broker", broker), limit, duration("grace", grace_seconds)),
        column,
    )


def take_probe(broker: str) -> Call[Probed | None]:
    """The order to query, when a probe of the broker is due and this process makes it; None otherwise."""
    return Call(
        "select request::text, idempotency_key, account, broker_order_id, created_at, stamped_at, open_since"
        " from fencepost.orders_probe_take(%s::text)",
        (text("broker", broker),),
        _probed,
    )


def settle_probe(broker: str, health: BrokerHealth | None) -> Call[None]:
    """Store what the answer says about the health of the broker."""
    return Call(
        "select fencepost.orders_probe_tell(%s::text, %s::text)",
        (text("broker", broker), optional_text("health", health)),
        nothing,
    )


def _probed(rows: Sequence[Row]) -> Probed | None:
    return Probed(parsed(rows[0][0]), *rows[0][1:]) if rows else None


def _taken(rows: Sequence[Row]) -> list[TakenOrder]:
    return [TakenOrder(*_with_request(row)) for row in rows]


def _with_request(row: Row) -> tuple[Any, ...]:
    return (*row[:3], parsed(row[3]), *row[4:15], parsed(row[15]), *row[16:])
