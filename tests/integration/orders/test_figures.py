"""What operators are told of orders: figures that mean what their names say."""

from typing import Literal

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.orders import desk, order
from fencepost.orders.broker import Promise
from fencepost.orders.brokers import Broker
from fencepost.orders.service import Orders
from fencepost.orders.settings import OrdersSettings
from fencepost.testing import Clock
from tests.integration.orders.market import BROKER, Market, request
from tests.integration.orders.trading_floor import adapter_for

NOWHERE = "http://127.0.0.1:1"


def oldest(market: Market) -> dict[str, float]:
    return {count.status: count.oldest_seconds for count in market.run(order.counts())}


def test_an_order_is_as_old_as_it_waits_and_then_as_long_as_its_request_is_out(
    market: Market, clock: Clock
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
    market: Market,
    order_key: Literal["account_symbol", "account", "none"],
    at_once: list[str],
) -> None:
    """Two of one symbol, one of another, and one of another account."""
    async with Fencepost(database.url) as fp:
        broker = Broker(adapter_for(NOWHERE, Promise.NOTHING), desk.Strength())
        orders = Orders(fp, {BROKER: broker}, OrdersSettings(order_key=order_key, sending=False))
        for key, account, symbol in (("1", "a", "X"), ("2", "a", "X"), ("3", "a", "Y"), ("4", "b", "X")):
            await orders.place(request(key, account=account, symbol=symbol))

    assert [taken.idempotency_key for taken in market.take()] == at_once
