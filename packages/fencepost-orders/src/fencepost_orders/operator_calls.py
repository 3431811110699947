"""The calls of an operator: cancel, resolve, send again, the kill switch, and the limits of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fencepost.kernel.call import (
    Call,
    Json,
    document,
    duration,
    nothing,
    optional_document,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost_orders._order_calls import KEEP_SECONDS
from fencepost_orders.request import OrderKey, OrderRequest, digest_of

Resolution = Literal["sent", "dead", "unknown", "queued"]


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The limits of a broker: its rate, its concurrent requests, and how many failures open the breaker for
    how long."""

    rate_per_second: float = 1000.0
    burst: float = 100.0
    failures_max: int = 20
    open_seconds: float = 10.0
    rate_min_per_second: float | None = None
    rate_rise_per_second: float | None = None


def declare_broker(broker: str, limits: BrokerLimits, *, can_ask: bool | None = None) -> Call[None]:
    """Declare a broker's limits, and whether it can be queried; what was learned since stays."""
    return Call(
        "select fencepost.orders_broker_declare(%s::text, %s::double precision, %s::double precision,"
        " %s::integer, %s::interval, %s::double precision, %s::double precision, %s::boolean)",
        (
            text("broker", broker),
            limits.rate_per_second,
            limits.burst,
            limits.failures_max,
            duration("open_for", limits.open_seconds),
            limits.rate_min_per_second,
            limits.rate_rise_per_second,
            can_ask,
        ),
        nothing,
    )


def halt(broker: str, account: str | None, actor: str, reason: str) -> Call[None]:
    """Turn on the kill switch for a broker, or for one of its accounts."""
    return Call(
        "select fencepost.orders_halt(%s::text, %s::text, %s::text, %s::text)",
        (
            text("broker", broker),
            optional_text("account", account),
            text("actor", actor),
            text("reason", reason),
        ),
        nothing,
    )


def resume(broker: str, account: str | None, actor: str, reason: str) -> Call[None]:
    """Turn the kill switch off: waiting orders are due at once, except those that have expired."""
    return Call(
        "select fencepost.orders_resume(%s::text, %s::text, %s::text, %s::text)",
        (
            text("broker", broker),
            optional_text("account", account),
            text("actor", actor),
            text("reason", reason),
        ),
        nothing,
    )


def cancel(order_id: int, actor: str, reason: str) -> Call[None]:
    """Cancel an order that has not been sent."""
    return Call(
        "select fencepost.orders_cancel(%s::bigint, %s::text, %s::text)",
        (order_id, text("actor", actor), text("reason", reason)),
        nothing,
    )


def resolve(
    order_id: int, expected: str, outcome: Resolution, actor: str, reason: str, *, result: Json = None
) -> Call[None]:
    """An operator decides about an order, guarded by the state that the operator saw."""
    return Call(
        "select fencepost.orders_resolve(%s::bigint, %s::text, %s::text, %s::text, %s::text, %s::jsonb)",
        (
            order_id,
            text("expected", expected),
            outcome,
            text("actor", actor),
            text("reason", reason),
            optional_document("result", result),
        ),
        nothing,
    )


def resend(
    order_id: int,
    expected: Literal["dead", "parked"],
    request: OrderRequest,
    order_key: str,
    actor: str,
    reason: str,
    *,
    expires_at: datetime | None = None,
    keep_seconds: float = KEEP_SECONDS,
) -> Call[int]:
    """Send a dead or parked order again as `request`, a new order with a new key; answers its id."""
    return Call(
        "select fencepost.orders_resend(%s::bigint, %s::text, %s::text, %s::text, %s::text, %s::jsonb,"
        " %s::text, %s::timestamptz, %s::interval)",
        (
            order_id,
            expected,
            text("actor", actor),
            text("reason", reason),
            request.digest(),
            document("request", request.document()),
            text("order_key", order_key),
            expires_at,
            duration("keep", keep_seconds),
        ),
        scalar,
    )


def resend_of(
    old: Mapping[str, Json],
    expected: Literal["dead", "parked"],
    key_of: OrderKey,
    actor: str,
    reason: str,
) -> Call[int]:
    """The call that sends an order again, made from the order as it was read. The expiry of the old order is
    dropped: it has passed, or applied to another time."""
    fields = {name: value for name, value in old["request_json"].items() if name != "expires_at"}
    request = OrderRequest.of({**fields, "idempotency_key": f"resend-of-{old['id']}"})
    return resend(old["id"], expected, request, key_of(request), actor, reason)


def result_by_hand(actor: str, broker_order_id: str | None) -> dict[str, Json]:
    """What an operator saw at the broker, stored like an answer of the broker."""
    kept: dict[str, Json] = {"broker_order_id": broker_order_id, "status": "resolved", "body": {"by": actor}}
    return {**kept, "digest": digest_of(kept), "open": True}


def recover(broker: str, actor: str) -> Call[int]:
    """After a restore from a backup: every live order is queried before anything is sent. Answers how
    many."""
    return Call(
        "select fencepost.orders_recover(%s::text, %s::text)",
        (text("broker", broker), text("actor", actor)),
        scalar,
    )


def brokers() -> Call[list[dict[str, Json]]]:
    """Throttle, breaker and kill switches of every broker."""
    return Call(
        "select to_jsonb(b)::text from fencepost.orders_brokers b order by b.broker",
        (),
        lambda rows: [parsed(row[0]) for row in rows],
    )
