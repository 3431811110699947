"""Types of orders through the whole service: placed in the broker's own words, or refused before anything is
stored."""

import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput, NotFound
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders.broker import Promise
from fencepost_orders.testing.broker import HostileBroker
from tests.integration.orders.broker_env import floor_with, open_floor
from tests.integration.orders.dialects import AlpacaDialect


async def test_a_stop_limit_order_reaches_the_broker_as_one(database: Database) -> None:
    with HostileBroker(Promise.WHILE_OPEN, dialect=AlpacaDialect()) as broker:
        async with open_floor(database.url, AlpacaBroker("key", "secret", base_url=broker.url)) as floor:
            order_id = await floor.place("stop", stop_price="144.5", limit_price="144", time_in_force="GTC")
            await floor.until_status(order_id, "sent")
        (placed,) = broker.orders
    assert placed.request["type"] == "stop_limit"
    assert (placed.request["stop_price"], placed.request["limit_price"]) == ("144.5", "144")
    assert placed.request["time_in_force"] == "gtc"


async def test_an_order_that_the_adapter_cannot_place_is_refused_and_not_stored(database: Database) -> None:
    with HostileBroker(Promise.FOREVER) as broker:
        async with floor_with(database.url, broker) as floor:
            with pytest.raises(InvalidInput, match="takes no stop orders"):
                await floor.place("stop", stop_price="144.5")
            with pytest.raises(NotFound):
                await floor.orders.get(key="stop")
        assert broker.orders == []
