"""The database port of an order that the broker has: what is queried until the broker is done with it, and
how its fills and its end are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.kernel.call import (
    Call,
    CallRunner,
    Json,
    Row,
    duration,
    each,
    optional_document,
    optional_duration,
    parsed,
    text,
)
from fencepost_orders._metrics import OrderMetrics
from fencepost_orders._order_source import BrokerHealth, Settled
from fencepost_orders.broker import OutgoingOrder


@dataclass(frozen=True, slots=True)
class Followed:
    """An order to query. `take` is the fence; `asked_at` is the database's time of the take."""

    id: int
    take: int
    request: dict[str, Json]
    idempotency_key: str
    account: str
    broker_order_id: str | None
    asks: int
    created_at: datetime
    stamped_at: datetime
    asked_at: datetime

    def outgoing(self) -> OutgoingOrder:
        """The order as it is queried. It was placed after it was accepted here, so a search goes back to that
        time."""
        return OutgoingOrder(
            self.idempotency_key,
            self.request,
            self.stamped_at,
            self.account,
            self.created_at,
            broker_order_id=self.broker_order_id,
        )


@dataclass(frozen=True, slots=True)
class FollowUp:
    """The result of one query. `over`: there is nothing more to query."""

    id: int
    take: int
    result: Json = None
    over: bool = False
    delay_seconds: float | None = None
    health: BrokerHealth | None = None


@dataclass(frozen=True, slots=True)
class FollowCount:
    """The number of followed orders of one broker, and how late the most overdue query is."""

    broker: str
    orders: int
    late_seconds: float


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
        return await self._database.run(take(self._broker, lease_seconds, limit))

    async def settle(self, owner: str, settlements: Sequence[FollowUp]) -> Sequence[str | None]:
        answers = await self._database.run(settle(self._broker, owner, settlements))
        self._metrics.followed_up(answers)
        refusals = {answer.id: answer.refusal for answer in answers}
        return [refusals[settlement.id] for settlement in settlements]

    async def renew(self, owner: str, lease_seconds: float, messages: Sequence[Followed]) -> None:
        """Does nothing. A query is short: one that outlasts its lease is repeated, and the fence decides
        between both."""

    async def expire(self, limit: int) -> int:
        """Does nothing. A take that ran out is due again by itself."""
        return 0


def take(broker: str, lease_seconds: float, limit: int) -> Call[list[Followed]]:
    """Lease the orders that are due for a query."""
    return Call(
        "select id, take, request::text, idempotency_key, account, broker_order_id, asks, created_at,"
        " stamped_at, asked_at from fencepost.orders_fill_take(%s::text, %s::interval, %s::integer)",
        (text("broker", broker), duration("lease", lease_seconds), limit),
        _followed,
    )


def settle(broker: str, owner: str, follow_ups: Sequence[FollowUp]) -> Call[list[Settled]]:
    """Store the results with one statement; answers for each."""
    return Call(
        "select id, state, refusal from fencepost.orders_fill_settle(%s::text, %s::text, %s::bigint[],"
        " %s::bigint[], %s::jsonb[], %s::boolean[], %s::interval[], %s::text[])",
        (
            text("broker", broker),
            text("owner", owner),
            [one.id for one in follow_ups],
            [one.take for one in follow_ups],
            [optional_document("result", one.result) for one in follow_ups],
            [one.over for one in follow_ups],
            [optional_duration("delay", one.delay_seconds) for one in follow_ups],
            [one.health for one in follow_ups],
        ),
        each(Settled),
    )


def counts() -> Call[list[FollowCount]]:
    """The number of followed orders, by broker."""
    return Call(
        "select broker, orders, late_seconds from fencepost.orders_fill_counts()", (), each(FollowCount)
    )


def _followed(rows: Sequence[Row]) -> list[Followed]:
    return [Followed(*_with_request(row)) for row in rows]


def _with_request(row: Row) -> tuple[Any, ...]:
    return (*row[:2], parsed(row[2]), *row[3:])
