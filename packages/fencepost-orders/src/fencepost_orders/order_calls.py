"""The calls of the orders' SQL functions: accept, take, settle, and the reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from fencepost.errors import REFUSALS, Refusal
from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    column,
    document,
    duration,
    each,
    one,
    optional_document,
    optional_duration,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost.tracing import TRACEPARENT, within_trace
from fencepost_orders.request import OrderRequest

Status = Literal["queued", "sending", "sent", "failed", "dead", "unknown", "parked"]
Outcome = Literal["sent", "dead", "failed", "queued", "unknown", "parked"]
Fate = Literal["unproved", "not_this", "none"]
Weather = Literal["ok", "failed", "limited", "ask_limited", "unauthorized"]
Unauthorized = Literal["dead", "hold"]
KEEP_SECONDS = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of a request to accept an order."""

    outcome: str
    order_id: int | None

    @property
    def is_new(self) -> bool:
        return self.outcome == "accepted"

    def refusal(self, key: str) -> Refusal | None:
        """The refusal to raise, or None when the order is accepted, by this call or an earlier one."""
        if self.outcome in {"accepted", "replay"}:
            return None
        return REFUSALS[self.outcome](_SAID[self.outcome], noun="order", subject=key)


_SAID = {
    "mismatch": "This idempotency key was used for another order. Use a new key for a new order.",
    "in_flight": "Another request with this idempotency key is under way. Ask again shortly.",
    "too_old": "This idempotency key was used, and its time to be repeated is over. It is never used again.",
}


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
    weather: Weather | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    id: int
    state: str | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Count:
    """Live orders of one broker in one state."""

    broker: str
    status: str
    orders: int
    oldest_seconds: float


def accept(request: OrderRequest, order_key: str, *, keep_seconds: float = KEEP_SECONDS) -> Call[Accepted]:
    """Accept an order in the caller's transaction. The same key again answers, and accepts nothing."""
    trace_id, headers = _trace_of(request)
    return Call(
        "select outcome, order_id from fencepost.orders_accept(%s::text, %s::jsonb, %s::text, %s::text,"
        " %s::text, %s::text, %s::text, %s::text, %s::timestamptz, %s::interval, %s::jsonb)",
        (
            request.idempotency_key,
            document("request", request.document()),
            request.digest(),
            request.broker,
            request.account,
            request.symbol,
            text("order_key", order_key),
            optional_text("trace_id", trace_id),
            request.expires_at,
            duration("keep", keep_seconds),
            optional_document("headers", headers),
        ),
        one(Accepted),
    )


def _trace_of(request: OrderRequest) -> tuple[str | None, dict[str, str] | None]:
    """The order's trace: the one that it names, or the one in which it is accepted. Where tracing records
    spans, the span context goes into the message's headers."""
    present = within_trace()
    return request.trace_id or present.get("trace_id"), present if TRACEPARENT in present else None


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
            [s.weather for s in settlements],
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


def expire_due(limit: int) -> Call[list[int]]:
    """Orders past their expires_at that were never sent become dead; answers their ids."""
    return Call("select * from fencepost.orders_expire_due(%s::integer)", (limit,), column)


def get(*, order_id: int | None = None, key: str | None = None) -> Call[dict[str, Json] | None]:
    """One order with the broker's result, by id or by key; None when there is none."""
    return Call(
        "select t::text from fencepost.orders_get(%s::bigint, %s::text) t",
        (order_id, optional_text("key", key)),
        lambda rows: parsed(rows[0][0]) if rows else None,
    )


def history(order_id: int) -> Call[list[dict[str, Json]]]:
    """Every transition of one order, oldest first."""
    return Call("select t::text from fencepost.orders_history(%s::bigint) t", (order_id,), _documents)


def listing(
    *,
    status: str | None = None,
    broker: str | None = None,
    account: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> Call[list[dict[str, Json]]]:
    """Orders, newest first."""
    return Call(
        "select t::text from fencepost.orders_list(%s::text, %s::text, %s::text, %s::bigint, %s::integer) t",
        (
            optional_text("status", status),
            optional_text("broker", broker),
            optional_text("account", account),
            before,
            limit,
        ),
        _documents,
    )


def counts() -> Call[list[Count]]:
    """The number of live orders, by broker and state."""
    return Call(
        "select broker, status, orders, oldest_seconds from fencepost.orders_counts()", (), each(Count)
    )


def prune(keep_seconds: float, limit: int) -> Call[int]:
    """Delete settled orders older than the retention; their keys stay used. Answers how many."""
    return Call(
        "select fencepost.orders_prune(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )


def _taken(rows: Sequence[Row]) -> list[TakenOrder]:
    return [TakenOrder(*_with_request(row)) for row in rows]


def _with_request(row: Row) -> tuple[Any, ...]:
    return (*row[:3], parsed(row[3]), *row[4:15], parsed(row[15]), *row[16:])


def _documents(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [parsed(row[0]) for row in rows]
