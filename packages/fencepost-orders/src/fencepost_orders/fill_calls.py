"""Following an order that the broker has: its fills and its end. The calls, and the decision after each
answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from fencepost.backoff import Backoff
from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    duration,
    each,
    optional_document,
    optional_duration,
    parsed,
    text,
)
from fencepost_orders.broker import Declaration, FoundOrder, LookupFinding, LookupScope, OutgoingOrder
from fencepost_orders.order_calls import Settled, Weather
from fencepost_orders.outcome import result_of, weather_of


@dataclass(frozen=True, slots=True)
class FollowPolicy:
    """How often the broker is queried, and for how long when it never reports an end."""

    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 300.0))
    most_seconds: float = 90 * 86_400.0
    retry_after_max_seconds: float = 300.0


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
    weather: Weather | None = None


@dataclass(frozen=True, slots=True)
class FollowCount:
    """The number of followed orders of one broker, and how late the most overdue query is."""

    broker: str
    orders: int
    late_seconds: float


def heard(followed: Followed, answer: FoundOrder, declared: Declaration, policy: FollowPolicy) -> FollowUp:
    """Decide what follows from the answer. Only the broker's own answer about this very order changes
    anything."""
    waits = policy.backoff.seconds(followed.asks)
    again = FollowUp(followed.id, followed.take, delay_seconds=waits, weather=weather_of(answer))
    is_too_old = (followed.asked_at - followed.created_at).total_seconds() > policy.most_seconds
    if answer.order is not None and answer.order.client_id in {None, followed.idempotency_key}:
        is_open = answer.order.is_open and answer.order.live
        return replace(again, result=result_of(answer.order), over=not is_open or is_too_old)
    if answer.finding is LookupFinding.LIMITED and answer.retry_after_seconds is not None:
        wait_seconds = min(answer.retry_after_seconds, policy.retry_after_max_seconds)
        return replace(again, delay_seconds=wait_seconds)
    # A broker that shows open orders only, and does not show this one, says that it is over, but not how it
    # ended.
    is_gone = answer.finding is LookupFinding.ABSENT and declared.sight is LookupScope.OPEN
    return replace(again, over=is_gone or declared.sight is LookupScope.NONE or is_too_old)


def take(broker: str, lease_seconds: float, limit: int) -> Call[list[Followed]]:
    """Lease the orders that are due for a query."""
    return Call(
        "select id, take, request::text, idempotency_key, account, broker_order_id, asks, created_at,"
        " stamped_at, asked_at from fencepost.orders_follow_take(%s::text, %s::interval, %s::integer)",
        (text("broker", broker), duration("lease", lease_seconds), limit),
        _followed,
    )


def settle(broker: str, owner: str, follow_ups: Sequence[FollowUp]) -> Call[list[Settled]]:
    """Store the results with one statement; answers for each."""
    return Call(
        "select id, state, refusal from fencepost.orders_follow_settle(%s::text, %s::text, %s::bigint[],"
        " %s::bigint[], %s::jsonb[], %s::boolean[], %s::interval[], %s::text[])",
        (
            text("broker", broker),
            text("owner", owner),
            [one.id for one in follow_ups],
            [one.take for one in follow_ups],
            [optional_document("result", one.result) for one in follow_ups],
            [one.over for one in follow_ups],
            [optional_duration("delay", one.delay_seconds) for one in follow_ups],
            [one.weather for one in follow_ups],
        ),
        each(Settled),
    )


def counts() -> Call[list[FollowCount]]:
    """The number of followed orders, by broker."""
    return Call(
        "select broker, orders, late_seconds from fencepost.orders_follow_counts()", (), each(FollowCount)
    )


def _followed(rows: Sequence[Row]) -> list[Followed]:
    return [Followed(*_with_request(row)) for row in rows]


def _with_request(row: Row) -> tuple[Any, ...]:
    return (*row[:2], parsed(row[2]), *row[3:])
