"""What is not sent: the expired, the halted, and more than the broker can bear."""

from datetime import timedelta

import pytest

from fencepost.errors import NotFound
from fencepost.testing import Clock
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from tests.integration.orders.env import BROKER, OrdersEnv


def broker_row(market: OrdersEnv) -> dict[str, object]:
    (row,) = market.run(operator_calls.brokers())
    return row


def test_an_expired_order_is_dead_and_never_taken(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted(expires_at=clock.now() + timedelta(seconds=60))
    later = market.accepted(symbol="EURUSD")
    clock.advance(60)

    assert [taken.id for taken in market.take()] == [later]
    assert market.status(order_id) == "queued", "a take's answer has no room for what it would end"
    assert market.run(order_calls.expire_due(10)) == [order_id]
    found = market.get(order_id)
    assert (found["status"], found["last_error"], found["requests"]) == ("dead", "EXPIRED", 0)
    assert market.steps(order_id)[-1] == ("queued", "dead", "EXPIRED")


def test_an_expired_order_that_may_have_arrived_is_asked_about(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted(expires_at=clock.now() + timedelta(seconds=60))
    market.settle(market.take_one(), "unknown")
    market.settle(market.ask()[0], "queued", "asker-1")
    clock.advance(60)

    assert market.take() == []
    assert market.status(order_id) == "unknown"
    assert market.run(order_calls.expire_due(10)) == []


def test_an_expired_order_behind_a_held_head_ends_too(market: OrdersEnv, clock: Clock) -> None:
    market.accepted()
    market.settle(market.take_one(), "parked")
    behind = market.accepted(expires_at=clock.now() + timedelta(seconds=60))
    clock.advance(61)

    assert market.run(order_calls.expire_due(10)) == [behind]
    assert market.status(behind) == "dead"


def test_a_halted_broker_sends_nothing_until_it_is_resumed(market: OrdersEnv) -> None:
    order_id = market.accepted()
    market.run(operator_calls.halt(BROKER, None, "ann", "prices are wrong"))

    assert market.take() == []
    assert broker_row(market)["halted_by"] == "ann"

    market.run(operator_calls.resume(BROKER, None, "ann", "prices are right"))
    assert market.take_one().id == order_id


def test_a_halted_account_waits_and_the_others_go_on(market: OrdersEnv) -> None:
    halted = [market.accepted(account="risky", symbol=f"S{number}") for number in range(30)]
    other = market.accepted(account="main")
    market.run(operator_calls.halt(BROKER, "risky", "ann", "margin call"))

    assert [taken.id for taken in market.take(limit=10)] == [other]
    assert {market.status(order_id) for order_id in halted} == {"queued"}

    market.run(operator_calls.resume(BROKER, "risky", "ann", "paid"))
    assert [taken.id for taken in market.take(limit=100)] == halted


def test_questions_pass_the_kill_switch(market: OrdersEnv) -> None:
    market.accepted()
    market.settle(market.take_one(), "unknown")
    market.run(operator_calls.halt(BROKER, None, "ann", "stop"))

    assert len(market.ask()) == 1


def test_the_bucket_bounds_what_all_workers_take_together(market: OrdersEnv, clock: Clock) -> None:
    market.declare(rate_per_second=10, burst=5)
    for number in range(40):
        market.accepted(symbol=f"S{number}")

    # The bucket was full for another strength; this take spends what the new one holds.
    assert len(market.take("a", limit=100)) == 5
    assert market.take("b", limit=100) == []
    clock.advance(0.3)
    assert len(market.take("b", limit=100)) == 3
    clock.advance(100)
    assert len(market.take("a", limit=100)) == 5


def test_a_429_halves_the_rate_once_pauses_and_the_rate_rises_again(market: OrdersEnv, clock: Clock) -> None:
    market.declare(rate_per_second=100, burst=10, rate_rise_per_second=1)
    for number in range(10):
        market.accepted(symbol=f"S{number}")
    limited = [
        order_source.OrderSettlement(
            one.id, one.take, "queued", "not_this", "RATE_LIMITED", None, 7, None, "limited"
        )
        for one in market.take(limit=4)
    ]
    market.run(order_source.settle(BROKER, "worker-1", limited[:2]))
    market.run(order_source.settle(BROKER, "worker-1", limited[2:]))

    assert broker_row(market)["rate"] == 50
    assert market.take() == []
    clock.advance(6.9)
    assert market.take() == []
    clock.advance(0.1)
    assert len(market.take()) == 10
    assert broker_row(market)["rate"] == pytest.approx(57)


def test_failures_open_the_breaker_one_probe_closes_it(market: OrdersEnv, clock: Clock) -> None:
    market.declare(rate_per_second=1000, burst=100, failures_max=3, open_seconds=10)
    for number in range(9):
        market.accepted(symbol=f"S{number}")
    for taken in market.take(limit=3):
        market.settle(
            taken, "failed", fate="not_this", code="NETWORK_TIMEOUT", health="failed", delay_seconds=600
        )

    assert broker_row(market)["breaker"] == "open"
    assert market.take() == []
    clock.advance(10)
    assert broker_row(market)["breaker"] == "half_open"
    (probe,) = market.take()
    assert market.take() == [], "one tries, the others wait"
    market.settle(probe, "sent", health="ok")
    assert broker_row(market)["breaker"] == "closed"
    assert len(market.take()) == 5


def test_a_failed_probe_keeps_the_breaker_open(market: OrdersEnv, clock: Clock) -> None:
    market.declare(rate_per_second=1000, burst=100, failures_max=1, open_seconds=10)
    market.accepted(symbol="A")
    market.accepted(symbol="B")
    taken = market.take(limit=1)[0]
    market.settle(taken, "failed", fate="not_this", health="failed", delay_seconds=600)
    clock.advance(10)
    market.settle(market.take_one(), "failed", fate="not_this", health="failed", delay_seconds=600)

    assert broker_row(market)["breaker"] == "open"


def test_an_undeclared_broker_is_not_found(market: OrdersEnv) -> None:
    with pytest.raises(NotFound):
        market.run(order_source.take("nobody", "w", 60, 1))


def test_declaring_again_keeps_what_was_learned(market: OrdersEnv) -> None:
    market.declare(rate_per_second=100, burst=10)
    market.accepted()
    market.settle(
        market.take_one(), "queued", fate="not_this", code="RATE_LIMITED", health="limited", delay_seconds=1
    )
    market.declare(rate_per_second=100, burst=10)
    assert broker_row(market)["rate"] == 50
    market.declare(rate_per_second=30, burst=10)
    assert broker_row(market)["rate"] == 30
