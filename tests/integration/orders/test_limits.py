"""Limits of accounts: an order that passes one is not accepted, also when many are placed at once."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput, NotFound
from fencepost.testing import Clock
from fencepost_orders import limits as account_limits
from fencepost_orders import operator_calls
from fencepost_orders.limits import AccountLimits, OverLimit
from fencepost_orders.request import by_account
from tests.integration.orders.env import BROKER, OrdersEnv


def limit(market: OrdersEnv, account: str = "main", **limits: Any) -> None:
    market.run(
        account_limits.set_limits(BROKER, account, AccountLimits(**limits), "ann", "the rules of the desk")
    )


def price(market: OrdersEnv, symbol: str = "USDJPY", value: str = "145") -> None:
    market.run(account_limits.set_prices(BROKER, {symbol: Decimal(value)}, "feed"))


def refused(market: OrdersEnv, **fields: Any) -> dict[str, Any]:
    """Which limit the order passes."""
    answer = market.accept(**fields)
    assert (answer.outcome, answer.order_id) == ("over_limit", None), answer
    error = answer.refusal("k")
    assert isinstance(error, OverLimit)
    assert "Nothing was accepted" in str(error)
    return dict(answer.detail)


def placed(market: OrdersEnv) -> int:
    (row,) = market.rows("select count(*) as orders from fencepost.outbox_orders")
    return int(row["orders"])


def test_an_account_without_limits_has_none(market: OrdersEnv) -> None:
    limit(market, "other", qty_max=Decimal(1))
    market.accepted(qty="1000000000")


def test_the_largest_quantity(market: OrdersEnv) -> None:
    limit(market, qty_max=Decimal(100))
    assert refused(market, qty="100.5") == {"limit": "qty_max", "max": 100, "got": 100.5}
    assert placed(market) == 0
    market.accepted(qty="100")


def test_the_largest_notional_is_by_the_limit_price_the_stop_price_or_the_reference_price(
    market: OrdersEnv,
) -> None:
    limit(market, notional_max=Decimal(1000))
    market.accepted(qty="10", limit_price="100")
    assert refused(market, qty="10", limit_price="100.01")["got"] == 1000.1
    assert refused(market, qty="10", limit_price=None, stop_price="101")["got"] == 1010
    assert refused(market, qty="10", limit_price=None)["limit"] == "reference_price"
    price(market, value="100.5")
    assert refused(market, qty="10", limit_price=None)["got"] == 1005
    market.accepted(qty="9", limit_price=None)


def test_the_collar_is_around_a_reference_price_that_is_fresh(market: OrdersEnv, clock: Clock) -> None:
    limit(market, collar=Decimal("0.05"), price_age_max_seconds=30.0)
    passed = refused(market, limit_price="145")
    assert (passed["limit"], passed["got"], passed["max"]) == ("reference_price", None, 30)
    price(market, value="100")
    market.accepted(limit_price="105")
    market.accepted(limit_price="95")
    above = refused(market, limit_price="105.1")
    assert above == {"limit": "collar", "max": 0.05, "reference": 100, "got": 0.051}
    assert refused(market, limit_price="100", stop_price="94")["got"] == 0.06
    clock.advance(31)
    assert refused(market, limit_price="100")["got"] == 31
    # A market order has no price that could be held to it.
    market.accepted(limit_price=None)


def test_a_price_of_another_symbol_or_broker_is_no_reference(market: OrdersEnv) -> None:
    limit(market, collar=Decimal("0.05"))
    market.declare("other")
    price(market, symbol="EURUSD")
    market.run(account_limits.set_prices("other", {"USDJPY": Decimal(145)}, "feed"))
    assert refused(market, limit_price="145")["limit"] == "reference_price"


def test_the_orders_of_a_day_and_their_sum(market: OrdersEnv) -> None:
    limit(market, day_orders_max=3, day_notional_max=Decimal(1000))
    market.accepted("a", qty="6", limit_price="100")
    assert market.accept("a", qty="6", limit_price="100").outcome == "replay"
    passed = refused(market, qty="5", limit_price="100")
    assert passed == {"limit": "day_notional_max", "max": 1000, "got": 1100, "day": "2030-01-01"}
    market.accepted(qty="4", limit_price="100")
    (row,) = market.run(account_limits.listing(BROKER))
    assert row["today"] == [{"account": "main", "orders": 2, "notional": 1000}]
    limit(market, day_orders_max=3)
    market.accepted()
    assert refused(market)["limit"] == "day_orders_max"
    market.accepted(account="other")


def test_an_order_that_is_dead_still_counts(market: OrdersEnv) -> None:
    limit(market, day_orders_max=1)
    order_id = market.accepted()
    market.run(operator_calls.cancel(order_id, "ann", "not today"))
    assert refused(market)["limit"] == "day_orders_max"


def test_the_day_is_that_of_the_account(market: OrdersEnv, clock: Clock) -> None:
    """At noon in London it is nine in the evening in Tokyo: three hours later the day is over there."""
    limit(market, day_orders_max=1, day_zone="Asia/Tokyo")
    limit(market, "london", day_orders_max=1, day_zone="Europe/London")
    for account in ("main", "london"):
        market.accepted(account=account)
    clock.freeze(datetime(2030, 1, 1, 15, tzinfo=UTC))
    market.accepted()
    refused(market, account="london")
    clock.freeze(datetime(2030, 1, 2, 0, tzinfo=UTC))
    market.accepted(account="london")


def test_days_that_are_long_over_are_not_kept(market: OrdersEnv, clock: Clock) -> None:
    limit(market, day_orders_max=100)
    market.accepted()
    clock.advance(timedelta(days=9).total_seconds())
    market.accepted()
    with_days = market.run(account_limits.listing(BROKER))
    assert with_days[0]["today"][0]["orders"] == 1


def test_limits_of_every_account_are_held_by_each_alone(market: OrdersEnv) -> None:
    limit(market, "*", day_orders_max=1)
    limit(market, "free", qty_max=Decimal(10**9))
    for account in ("main", "other"):
        market.accepted(account=account)
        refused(market, account=account)
    for _ in range(3):
        market.accepted(account="free")


def test_a_resend_is_held_to_the_limits_too(market: OrdersEnv) -> None:
    order_id = market.accepted(qty="50")
    market.settle(market.take_one(), "dead", fate="not_this")
    limit(market, qty_max=Decimal(10))
    old = market.get(order_id)
    with pytest.raises(InvalidInput, match="qty_max") as caught:
        market.run(operator_calls.resend_of(old, "dead", by_account, "ann", "again"))
    assert caught.value.field == "qty_max"
    assert placed(market) == 1


def test_limits_are_replaced_as_a_whole_removed_and_kept_in_the_history(market: OrdersEnv) -> None:
    limit(market, qty_max=Decimal(1), day_orders_max=1)
    limit(market, notional_max=Decimal(10**12))
    market.accepted(qty="50")
    market.accepted(qty="50")
    limit(market)
    assert market.run(account_limits.listing()) == []
    with_admin = market.rows("select event, actor, detail from fencepost.explain('broker:acme')")
    assert [row["actor"] for row in with_admin if row["event"] == "limits set"] == ["ann"] * 3


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"qty_max": Decimal(0)}, "limits"),
        ({"collar": Decimal(-1)}, "limits"),
        ({"qty_max": Decimal("NaN")}, "limits"),
        ({"qty_max": Decimal(1), "day_zone": "Middle/Earth"}, "day_zone"),
    ],
)
def test_limits_that_limit_nothing_sensible_are_refused(
    market: OrdersEnv, limits: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        limit(market, **limits)
    assert caught.value.field == field


def test_an_unknown_broker_has_no_limits_and_no_prices(market: OrdersEnv) -> None:
    with pytest.raises(NotFound):
        market.run(account_limits.set_limits("acne", "main", AccountLimits(), "ann", "typo"))
    with pytest.raises(NotFound):
        market.run(account_limits.set_prices("acne", {"USDJPY": Decimal(1)}, "feed"))
    with pytest.raises(InvalidInput):
        market.run(account_limits.set_prices(BROKER, {"USDJPY": Decimal(0)}, "feed"))


def together(connect: Callable[[], OrdersEnv], count: int) -> list[str]:
    """So many acceptances, from as many connections."""
    envs = [connect() for _ in range(count)]
    outcomes: list[str] = []
    ready = threading.Barrier(count)

    def place(number: int) -> None:
        ready.wait(30)
        outcomes.append(envs[number].accept(f"at-once-{number}", symbol=f"S{number}", qty="1").outcome)

    threads = [threading.Thread(target=place, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return sorted(outcomes)


def test_orders_that_are_placed_together_do_not_pass_a_limit_together(
    market: OrdersEnv, connect: Callable[[], OrdersEnv]
) -> None:
    limit(market, day_notional_max=Decimal("145.001") * 3)
    assert together(connect, 8) == ["accepted"] * 3 + ["over_limit"] * 5


def test_an_acceptance_that_waits_for_another_is_held_to_the_sum_with_it(
    market: OrdersEnv, connect: Callable[[], OrdersEnv]
) -> None:
    limit(market, day_orders_max=1)
    other, outcomes = connect(), list[str]()
    with market.connection.transaction():
        market.accepted("first", symbol="A")
        thread = threading.Thread(target=lambda: outcomes.append(other.accept("second", symbol="B").outcome))
        thread.start()
        wait_for_lock(connect())
    thread.join(30)
    assert outcomes == ["over_limit"]


def test_without_the_lock_of_the_day_two_orders_pass_a_limit_together(
    database: Database, market: OrdersEnv, connect: Callable[[], OrdersEnv]
) -> None:
    """The planted bug: the sum is read without the lock of its row."""
    with database.connect_admin() as admin:
        row = admin.execute("select pg_get_functiondef('fencepost._orders_over_limit'::regproc)").fetchone()
        assert row is not None
        wrong = str(row[0]).replace("and d.day = v_today for update;", "and d.day = v_today;")
        assert wrong != row[0]
        admin.execute(wrong.encode())
    limit(market, day_orders_max=2)
    # The row of the day is there: the first order of a day waits for another's insert of it.
    market.accepted("before", symbol="Z")
    other, outcomes = connect(), list[str]()
    with market.connection.transaction():
        market.accepted("first", symbol="A")
        thread = threading.Thread(target=lambda: outcomes.append(other.accept("second", symbol="B").outcome))
        thread.start()
        wait_for_lock(connect())
    thread.join(30)
    assert outcomes == ["accepted"]
    assert market.run(account_limits.listing(BROKER))[0]["today"][0]["orders"] == 3


def wait_for_lock(watcher: OrdersEnv) -> None:
    """Until a connection waits for another's lock."""
    waiting = (
        "select count(*) as n from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )
    while not watcher.rows(waiting)[0]["n"]:
        watcher.rows("select pg_stat_clear_snapshot()")
