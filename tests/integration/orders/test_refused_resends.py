"""A resend that is wrong makes no order; a broker that is declared wrongly is not declared."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.errors import Duplicate, InFlight, InvalidInput, Mismatch, NotFound, Refusal
from fencepost.kernel import idempotency
from fencepost_orders import operator_calls
from tests.integration.orders.env import OrdersEnv, request


def dead(market: OrdersEnv) -> int:
    order_id = market.accepted()
    market.settle(market.take_one(), "dead", fate="not_this", code="BAD_REQUEST")
    return order_id


def resend(market: OrdersEnv, order_id: int, key: str) -> int:
    return market.run(operator_calls.resend(order_id, "dead", request(key), "k", "ann", "again"))


def refused(reason: type[Refusal], market: OrdersEnv, order_id: int, key: str) -> None:
    before = market.rows("select count(*) as n from fencepost.outbox_orders")
    with pytest.raises(reason):
        resend(market, order_id, key)
    assert market.rows("select count(*) as n from fencepost.outbox_orders") == before


def test_an_order_that_is_not_there_or_not_dead_is_not_sent_again(market: OrdersEnv) -> None:
    refused(NotFound, market, 4711, "new")
    refused(Mismatch, market, market.accepted(), "new")


def test_a_resend_needs_a_key_that_no_caller_has(market: OrdersEnv, connect: Callable[[], OrdersEnv]) -> None:
    order_id, other = dead(market), market.accepted("taken")

    with pytest.raises(InvalidInput) as caught:
        resend(market, order_id, "key-1")
    assert caught.value.field == "idempotency_key"
    refused(Duplicate, market, order_id, "taken")
    rival = connect()
    with rival.connection.transaction():
        rival.run(idempotency.claim("orders", "new"))
        refused(InFlight, market, order_id, "new")
    assert market.status(other) == "queued"


@pytest.mark.parametrize(
    ("field", "limits"),
    [
        ("rate", {"rate_per_second": 0.0}),
        ("rate", {"rate_per_second": 1.0, "rate_min_per_second": 2.0}),
        ("burst", {"burst": 0.5}),
        ("burst", {"failures_max": 0}),
    ],
)
def test_a_broker_has_a_rate_and_a_burst(market: OrdersEnv, field: str, limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        market.declare("strange", **limits)
    assert caught.value.field == field
