"""What operators are told of orders: figures that mean what their names say."""

from typing import Literal

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from fencepost_orders._order_source import OrderSettlement, PendingOrderSource
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import Code, Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.service import Orders
from tests.integration.orders.broker_env import adapter_for
from tests.integration.orders.env import BROKER, RESULT, OrdersEnv, request

NOWHERE = "http://127.0.0.1:1"


def oldest(market: OrdersEnv) -> dict[str, float]:
    return {count.status: count.oldest_seconds for count in market.run(order_calls.counts())}


def test_an_order_is_as_old_as_it_waits_and_then_as_long_as_its_request_is_out(
    market: OrdersEnv, clock: Clock
) -> None:
    """After an outage nothing is stuck that was taken a moment ago."""
    market.accepted()
    clock.advance(3600)
    assert oldest(market) == {"queued": 3600}

    taken = market.take_one()
    clock.advance(5)
    assert oldest(market) == {"sending": 5}
    market.settle(taken, "unknown")
    clock.advance(5)
    assert oldest(market) == {"unknown": 10}

    (asked,) = market.ask()
    market.settle(asked, "queued", "asker-1", fate="none")
    assert oldest(market) == {"queued": 3610}


@pytest.mark.parametrize(
    ("order_key", "at_once"),
    [("account_symbol", ["1", "3", "4"]), ("account", ["1", "4"]), ("none", list("1234"))],
)
async def test_what_must_not_overtake_is_configured(
    database: Database,
    market: OrdersEnv,
    order_key: Literal["account_symbol", "account", "none"],
    at_once: list[str],
) -> None:
    """Two of one symbol, one of another, and one of another account."""
    async with Fencepost(database.url) as fp:
        broker = Broker(adapter_for(NOWHERE, Promise.NOTHING), operator_calls.BrokerLimits())
        orders = Orders(fp, {BROKER: broker}, OrdersSettings(order_key=order_key, sending=False))
        for key, account, symbol in (("1", "a", "X"), ("2", "a", "X"), ("3", "a", "Y"), ("4", "b", "X")):
            await orders.place(request(key, account=account, symbol=symbol))

    assert [taken.idempotency_key for taken in market.take()] == at_once


def lines(fp: Fencepost) -> set[str]:
    return set(fp.metrics.page().body.decode().splitlines())


OUTCOMES: dict[str, tuple[order_source.Outcome, Code | None]] = {
    "success": ("sent", None),
    "conflict_processed": ("sent", Code.CONFLICT_PROCESSED),
    "retry": ("failed", Code.NETWORK_TIMEOUT),
    "rate_limited": ("queued", Code.RATE_LIMITED),
    "unknown": ("unknown", Code.BROKER_5XX),
    "parked": ("parked", Code.UNKNOWN),
    "dead": ("dead", Code.BAD_REQUEST),
}


async def test_every_outcome_is_counted_and_every_state_is_shown(
    database: Database, market: OrdersEnv
) -> None:
    async with Fencepost(database.url) as fp:
        broker = Broker(
            adapter_for(NOWHERE, Promise.NOTHING), operator_calls.BrokerLimits(rate_per_second=250)
        )
        orders = Orders(fp, {BROKER: broker}, OrdersSettings(sending=False))
        async with orders.running():
            for name in (*OUTCOMES, "sending"):
                market.accepted(name, symbol=name.upper())
            box = PendingOrderSource(fp, BROKER, orders.metrics)
            taken = {one.idempotency_key: one for one in await box.take("me", 60, 10)}
            ended = [
                OrderSettlement(
                    taken[name].id,
                    taken[name].take,
                    outcome,
                    "none" if outcome == "dead" else "unproved",
                    code,
                    result=RESULT if outcome == "sent" else None,
                )
                for name, (outcome, code) in OUTCOMES.items()
            ]
            assert await box.settle("me", ended) == [None] * len(ended)
            assert await box.settle("me", ended[:1]) != [None]
            await orders.halt(BROKER, None, "ann", "enough")
            await orders.maintain()
            shown = lines(fp)

    assert {f'fencepost_orders_sends_total{{outcome="{name}"}} 1.0' for name in OUTCOMES} <= shown
    waiting = {"queued": 1, "failed": 1, "unknown": 1, "parked": 1, "sending": 1}
    assert {
        f'fencepost_orders{{channel="acme",state="{state}"}} {count}.0' for state, count in waiting.items()
    } <= shown
    assert {
        "fencepost_orders_in_flight 1.0",
        'fencepost_orders_halted{channel="acme"} 1.0',
        'fencepost_orders_breaker_open{channel="acme"} 0.0',
        'fencepost_orders_throttle_rate{channel="acme"} 250.0',
        'fencepost_orders_settlements_refused_total{reason="already_finished"} 1.0',
    } <= shown
    audited = [market.steps(taken[name].id)[-1][1:] for name in OUTCOMES]
    assert audited == [(outcome, code) for outcome, code in OUTCOMES.values()]


async def test_every_end_is_counted_in_takes_and_in_maintenance(
    database: Database, market: OrdersEnv, clock: Clock
) -> None:
    """Expired while another takes it; and sent by a worker that went silent."""
    market.accepted("silent", symbol="S")
    async with Fencepost(database.url) as fp:
        broker = Broker(adapter_for(NOWHERE, Promise.NOTHING), operator_calls.BrokerLimits())
        orders = Orders(fp, {BROKER: broker}, OrdersSettings(sending=False))
        box = PendingOrderSource(fp, BROKER, orders.metrics)
        assert len(await box.take("me", 1, 10)) == 1
        market.accepted("late", expires_at="2030-01-01T12:00:01Z")
        clock.advance(60)
        assert await box.take("me", 1, 10) == []
        assert await box.expire(10) == 1
        await orders.maintain()
        shown = lines(fp)
    assert {
        'fencepost_orders_sends_total{outcome="dead"} 1.0',
        'fencepost_orders_sends_total{outcome="unknown"} 1.0',
    } <= shown


async def test_what_expired_while_no_caller_was_there_is_counted_as_dead(
    database: Database, market: OrdersEnv, clock: Clock
) -> None:
    for number in range(3):
        market.accepted(f"old-{number}", symbol=f"S{number}", expires_at="2030-01-01T12:00:01Z")
    market.accepted("young", symbol="Y")
    clock.advance(3600)
    async with Fencepost(database.url) as fp:
        broker = Broker(adapter_for(NOWHERE, Promise.NOTHING), operator_calls.BrokerLimits())
        async with Orders(fp, {BROKER: broker}, OrdersSettings(sending=False)).running():
            assert 'fencepost_orders_sends_total{outcome="dead"} 3.0' in lines(fp)
    assert {row["status"] for row in market.run(order_calls.listing(status="dead", limit=9))} == {"dead"}
