"""An order that the broker has is followed until the broker is done with it: fills come later than
acceptances."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_orders import _fill_source as fill_source
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import operator_calls
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._fill_source import FollowUp
from fencepost_orders._oanda import OandaBroker
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import BrokerAdapter, Promise
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_dialect import Dialect
from tests.integration.orders.broker_env import MARGIN_SECONDS, adapter_for, open_floor
from tests.integration.orders.dialects import AlpacaDialect, OandaDialect
from tests.integration.orders.env import BROKER, RESULT, OrdersEnv

OPEN = {**RESULT, "open": True}
FILLED: dict[str, Any] = {
    "broker_order_id": "brk-1",
    "status": "filled",
    "fills": [{"qty": "10000", "price": "145.001"}],
    "digest": "sha256:" + "f" * 64,
    "open": False,
}


def plain(url: str) -> BrokerAdapter:
    return adapter_for(url, Promise.WHILE_OPEN)


def alpaca(url: str) -> BrokerAdapter:
    return AlpacaBroker("key", "secret", base_url=url)


def oanda(url: str) -> BrokerAdapter:
    return OandaBroker("secret", base_url=url)


@pytest.mark.parametrize(
    ("make", "dialect"),
    [(plain, Dialect()), (alpaca, AlpacaDialect()), (oanda, OandaDialect())],
    ids=["plain", "alpaca", "oanda"],
)
async def test_fills_that_come_after_the_acceptance_are_stored(
    database: Database, make: Callable[[str], BrokerAdapter], dialect: Dialect
) -> None:
    settings = OrdersSettings(margin_seconds=MARGIN_SECONDS, ask_lease_seconds=5, follow_seconds=1)
    with HostileBroker(Promise.WHILE_OPEN, dialect=dialect) as broker:
        async with open_floor(database.url, make(broker.url), settings=settings) as floor:
            order_id = await floor.place("slow", limit_price="145.001", qty="100")
            accepted = await floor.until_status(order_id, "sent")
            assert accepted["result"]["fills"] == []
            broker.orders[0].is_open = False
            filled = await floor.until(
                "filled", lambda found: found["result"]["is_followed"] is False, order_id
            )
            steps = await floor.steps(order_id)
            ledger = await floor.orders.get(key="slow")
        assert [fill["qty"] for fill in filled["result"]["fills"]] == ["100"]
        assert filled["result"]["status"].lower() == "filled"
        assert filled["result"]["result_digest"] != accepted["result"]["result_digest"]
        assert ledger["status"] == "sent"
        assert steps[-1] == ("sent", "sent", None)
        assert len(broker.orders) == 1


async def test_a_part_of_a_fill_is_stored_and_the_order_is_asked_about_again(database: Database) -> None:
    settings = OrdersSettings(margin_seconds=MARGIN_SECONDS, ask_lease_seconds=5, follow_seconds=1)
    with HostileBroker(Promise.WHILE_OPEN, dialect=AlpacaDialect()) as broker:
        async with open_floor(database.url, alpaca(broker.url), settings=settings) as floor:
            broker.book.fill_chance = 0
            order_id = await floor.place("parts", qty="100")
            await floor.until_status(order_id, "sent")
            broker.orders[0].filled_part = "40"
            found = await floor.until("part", lambda seen: bool(seen["result"]["fills"]), order_id)
            assert found["result"]["fills"][0]["qty"] == "40"
            assert found["result"]["is_followed"]
            broker.orders[0].is_open = False
            found = await floor.until("over", lambda seen: not seen["result"]["is_followed"], order_id)
        assert found["result"]["fills"][0]["qty"] == "100"


@pytest.fixture
def followed(market: OrdersEnv, clock: Clock) -> tuple[int, fill_source.Followed]:
    order_id = market.accepted()
    market.settle(market.take_one(), "sent", result=OPEN)
    assert market.run(fill_source.take(BROKER, 60, 10)) == [], "none is asked about in the same moment"
    clock.advance(1)
    (taken,) = market.run(fill_source.take(BROKER, 60, 10))
    return order_id, taken


def settle(market: OrdersEnv, *follow_ups: FollowUp) -> list[tuple[str | None, str | None]]:
    return [(one.state, one.refusal) for one in market.run(fill_source.settle(BROKER, "asker-1", follow_ups))]


def test_what_the_broker_is_done_with_is_not_followed(market: OrdersEnv, clock: Clock) -> None:
    market.accepted()
    market.settle(market.take_one(), "sent", result={**RESULT, "open": False})
    clock.advance(10)

    assert market.run(fill_source.take(BROKER, 60, 10)) == []


def test_the_brokers_new_word_replaces_the_old_one_everywhere(
    market: OrdersEnv, followed: tuple[int, fill_source.Followed]
) -> None:
    order_id, taken = followed

    assert settle(market, FollowUp(taken.id, taken.take, FILLED, over=True)) == [("changed", None)]

    found = market.get(order_id)
    assert (found["status"], found["result"]["fills"]) == ("sent", FILLED["fills"])
    (ledger,) = market.rows("select result_digest from fencepost.idempo_ledger")
    assert ledger["result_digest"] == found["result"]["result_digest"] == FILLED["digest"]
    (line,) = market.run(order_calls.history(order_id))[-1:]
    assert (line["status_to"], line["detail"]) == ("sent", "the broker says filled")


def test_the_same_word_again_writes_nothing_but_the_next_question(
    market: OrdersEnv, clock: Clock, followed: tuple[int, fill_source.Followed]
) -> None:
    order_id, taken = followed
    lines = len(market.steps(order_id))

    assert settle(market, FollowUp(taken.id, taken.take, OPEN, delay_seconds=30)) == [("same", None)]

    assert len(market.steps(order_id)) == lines
    clock.advance(29)
    assert market.run(fill_source.take(BROKER, 60, 10)) == []
    clock.advance(1)
    assert [one.asks for one in market.run(fill_source.take(BROKER, 60, 10))] == [2]


def test_an_asker_that_stood_still_cannot_write_an_old_word_over_a_newer_one(
    market: OrdersEnv, clock: Clock, followed: tuple[int, fill_source.Followed]
) -> None:
    order_id, late = followed
    clock.advance(61)
    (taken,) = market.run(fill_source.take(BROKER, 60, 10))
    assert settle(market, FollowUp(taken.id, taken.take, {**FILLED, "open": True})) == [("changed", None)]

    assert settle(market, FollowUp(late.id, late.take, OPEN, over=True)) == [(None, "stale_attempt")]

    assert market.get(order_id)["result"]["status"] == "filled"
    assert market.get(order_id)["result"]["is_followed"]


def test_an_asker_that_dies_leaves_the_order_to_the_next_one(
    market: OrdersEnv, clock: Clock, followed: tuple[int, fill_source.Followed]
) -> None:
    _, first = followed
    assert market.run(fill_source.take(BROKER, 60, 10)) == []
    clock.advance(61)

    (second,) = market.run(fill_source.take(BROKER, 60, 10))

    assert (second.id, second.take) == (first.id, first.take + 1)


def test_questions_about_fills_leave_half_of_the_throttle_to_orders(market: OrdersEnv, clock: Clock) -> None:
    for number in range(10):
        market.accepted(symbol=f"S{number}")
    for taken in market.take():
        market.settle(taken, "sent", result={**OPEN, "broker_order_id": f"brk-{taken.id}"})
    clock.advance(1)
    market.declare(rate_per_second=0.001, burst=6)

    assert len(market.run(fill_source.take(BROKER, 60, 10))) == 3


def test_a_followed_order_is_not_pruned(
    market: OrdersEnv, clock: Clock, followed: tuple[int, fill_source.Followed]
) -> None:
    _, taken = followed
    clock.advance(86_400)
    assert market.run(order_calls.prune(60, 10)) == 0
    (taken,) = market.run(fill_source.take(BROKER, 60, 10))
    settle(market, FollowUp(taken.id, taken.take, over=True))

    assert market.run(order_calls.prune(60, 10)) == 1


def test_one_that_no_caller_follows_any_more_is_named(
    market: OrdersEnv, followed: tuple[int, fill_source.Followed]
) -> None:
    _, taken = followed
    settle(market, FollowUp(taken.id, taken.take, FILLED, over=True))

    assert settle(market, FollowUp(taken.id, taken.take, OPEN)) == [(None, "not_found")]
    assert settle(market, FollowUp(999, 1, OPEN)) == [(None, "not_found")]


def test_what_a_broker_limits_is_heard_by_the_throttle(
    market: OrdersEnv, followed: tuple[int, fill_source.Followed]
) -> None:
    _, taken = followed
    settle(market, FollowUp(taken.id, taken.take, delay_seconds=20, health="limited"))

    (broker,) = market.run(operator_calls.brokers())
    assert broker["paused_until"] is not None


def test_counts_tell_how_many_are_followed_and_how_late(
    market: OrdersEnv, clock: Clock, followed: tuple[int, fill_source.Followed]
) -> None:
    clock.advance(90)

    (count,) = market.run(fill_source.counts())

    assert (count.broker, count.orders, count.late_seconds) == (BROKER, 1, 30)
