"""The page of orders: what holds sending back is seen there."""

from __future__ import annotations

from fencepost_orders import _order_calls as order_calls
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from fencepost_orders._order_source import OrderSettlement
from fencepost_orders.request import OrderRequest, by_itself
from fencepost_server.console._role import Role
from tests.integration.console.env import ConsoleEnv


def test_a_pause_that_a_broker_asked_for_is_shown_until_it_is_lifted(env: ConsoleEnv) -> None:
    limits = operator_calls.BrokerLimits(rate_per_second=1e6, burst=1e6)
    env.call(operator_calls.declare_broker("acme", limits, can_ask=True))
    asked = {"idempotency_key": "k", "broker": "acme", "symbol": "USDJPY", "intent": "BUY", "qty": "1"}
    request = OrderRequest.of(asked)
    env.call(order_calls.accept(request, by_itself(request)))
    (taken,) = env.call(order_source.take("acme", "me", 60, 1))
    limited = OrderSettlement(taken.id, taken.take, "queued", "not_this", delay_seconds=200, health="limited")
    env.call(order_source.settle("acme", "me", [limited]))
    with env.visitor(Role.VIEWER) as client:
        shown = client.get("/console/orders").text
        assert "sending until" in shown
        assert "(Retry-After)" in shown
        assert client.get("/api/orders").json()["brokers"][0]["paused_until"] is not None
        env.call(operator_calls.resume("acme", None, "ann", "asked the broker"))
        assert "(Retry-After)" not in client.get("/console/orders").text
