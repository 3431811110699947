"""The calls of the orders' SQL functions: accept, the reads, and retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.errors import REFUSALS, Refusal
from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    column,
    document,
    duration,
    each,
    optional_document,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost.tracing import TRACEPARENT, within_trace
from fencepost_orders.limits import OverLimit
from fencepost_orders.request import OrderRequest

KEEP_SECONDS = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of a request to accept an order."""

    outcome: str
    order_id: int | None
    detail: Json = None
    """The limit that the order passes: its name, its maximum, and what the order has."""

    @property
    def is_new(self) -> bool:
        return self.outcome == "accepted"

    def refusal(self, key: str) -> Refusal | None:
        """The refusal to raise, or None when the order is accepted, by this call or an earlier one."""
        if self.outcome in {"accepted", "replay"}:
            return None
        if self.outcome == OverLimit.reason:
            return OverLimit.of(key, self.detail)
        return REFUSALS[self.outcome](_SAID[self.outcome], noun="order", subject=key)


_SAID = {
    "mismatch": "This idempotency key was used for another order. Use a new key for a new order.",
    "in_flight": "Another request with this idempotency key is in progress. Ask again shortly.",
    "too_old": "This idempotency key was used and can no longer be repeated. Use a new key.",
}


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
        "select outcome, order_id, detail::text from fencepost.orders_accept(%s::text, %s::jsonb, %s::text,"
        " %s::text, %s::text, %s::text, %s::text, %s::text, %s::timestamptz, %s::interval, %s::jsonb)",
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
        _accepted,
    )


def _accepted(rows: Sequence[Row]) -> Accepted:
    outcome, order_id, detail = rows[0]
    return Accepted(outcome, order_id, None if detail is None else parsed(detail))


def _trace_of(request: OrderRequest) -> tuple[str | None, dict[str, str] | None]:
    """The order's trace: the one that it names, or the one in which it is accepted. Where tracing records
    spans, the span context goes into the message's headers."""
    present = within_trace()
    return request.trace_id or present.get("trace_id"), present if TRACEPARENT in present else None


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


def _documents(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [parsed(row[0]) for row in rows]
