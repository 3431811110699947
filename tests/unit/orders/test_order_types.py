"""Stop and stop-limit orders, times in force, extended hours: what adapters take, and how they say it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fencepost.errors import InvalidInput, SettingsError
from fencepost_orders._alpaca import AlpacaBroker, alpaca_order
from fencepost_orders._oanda import OandaBroker, oanda_order
from fencepost_orders.broker import Declaration, OutgoingOrder, Promise
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig, body_of
from fencepost_orders.request import OrderRequest, OrderType, type_of

ALPACA = AlpacaBroker("key", "secret").declaration
OANDA = OandaBroker("token").declaration
PLAIN = Declaration(Promise.FOREVER)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def order(**fields: Any) -> OrderRequest:
    return OrderRequest.of(
        {"idempotency_key": "k", "broker": "b", "symbol": "USDJPY", "intent": "BUY", "qty": "10", **fields}
    )


def outgoing(**fields: Any) -> OutgoingOrder:
    return OutgoingOrder("k", order(**fields).document(), NOON)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, OrderType.MARKET),
        ({"limit_price": "145"}, OrderType.LIMIT),
        ({"stop_price": "144"}, OrderType.STOP),
        ({"stop_price": "144", "limit_price": "143"}, OrderType.STOP_LIMIT),
    ],
)
def test_the_prices_say_which_type_an_order_has(fields: dict[str, Any], expected: OrderType) -> None:
    assert type_of(order(**fields).document()) is expected


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"stop_price": "0"}, "stop_price"),
        ({"stop_price": 1.5}, "stop_price"),
        ({"time_in_force": "GTD"}, "good_until"),
        ({"good_until": NOON.isoformat()}, "good_until"),
        ({"time_in_force": "GTD", "good_until": "2030-01-01T12:00:00"}, "good_until"),
        ({"extended_hours": "perhaps"}, "extended_hours"),
        ({"time_in_force": "NEVER"}, "time_in_force"),
    ],
)
def test_a_wrong_order_is_refused_with_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        order(**fields)
    assert caught.value.field == field


def test_an_order_without_the_new_fields_has_the_digest_that_it_always_had() -> None:
    assert set(order(limit_price="145").document()) == {
        *("idempotency_key", "broker", "account", "symbol", "intent", "qty", "limit_price"),
        *("time_in_force", "meta"),
    }
    assert order(stop_price="144").digest() != order().digest()
    assert order(extended_hours=True).digest() != order().digest()


@pytest.mark.parametrize(
    ("declared", "fields", "field"),
    [
        (PLAIN, {"stop_price": "144"}, "stop_price"),
        (PLAIN, {"stop_price": "144", "limit_price": "143"}, "stop_price"),
        (PLAIN, {"time_in_force": "OPG"}, "time_in_force"),
        (PLAIN, {"limit_price": "145", "extended_hours": True}, "extended_hours"),
        (ALPACA, {"stop_price": "144", "time_in_force": "IOC"}, "time_in_force"),
        (ALPACA, {"time_in_force": "GTD", "good_until": NOON.isoformat()}, "time_in_force"),
        (ALPACA, {"extended_hours": True}, "extended_hours"),
        (ALPACA, {"limit_price": "1", "time_in_force": "FOK", "extended_hours": True}, "extended_hours"),
        (OANDA, {"stop_price": "144", "limit_price": "143"}, "stop_price"),
        (OANDA, {"limit_price": "145", "extended_hours": True}, "extended_hours"),
        (OANDA, {"limit_price": "145", "time_in_force": "CLS"}, "time_in_force"),
    ],
)
def test_what_an_adapter_cannot_place_is_refused_with_the_field_and_what_it_can(
    declared: Declaration, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput, match="llowed") as caught:
        declared.orders.check(order(**fields))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("declared", "fields"),
    [
        (PLAIN, {}),
        (PLAIN, {"limit_price": "1", "time_in_force": "FOK"}),
        (ALPACA, {"stop_price": "144", "limit_price": "143", "time_in_force": "GTC"}),
        (ALPACA, {"limit_price": "1", "extended_hours": True}),
        (ALPACA, {"time_in_force": "CLS"}),
        (OANDA, {"stop_price": "144", "time_in_force": "GTD", "good_until": NOON.isoformat()}),
    ],
)
def test_what_an_adapter_can_place_passes(declared: Declaration, fields: dict[str, Any]) -> None:
    declared.orders.check(order(**fields))


def test_alpaca_is_told_stops_times_and_extended_hours() -> None:
    said = alpaca_order(outgoing(stop_price="144.5", limit_price="144", time_in_force="GTC"))
    assert (said["type"], said["stop_price"], said["limit_price"]) == ("stop_limit", "144.5", "144")
    assert alpaca_order(outgoing(stop_price="144.5"))["type"] == "stop"
    assert alpaca_order(outgoing(time_in_force="OPG"))["time_in_force"] == "opg"
    assert alpaca_order(outgoing(limit_price="1", extended_hours=True))["extended_hours"] is True
    assert "extended_hours" not in alpaca_order(outgoing(limit_price="1"))


def test_oanda_is_told_stops_and_the_end_of_an_order() -> None:
    said = oanda_order(outgoing(stop_price="144.5", time_in_force="GTD", good_until=NOON.isoformat()))
    assert (said["type"], said["price"], said["timeInForce"]) == ("STOP", "144.5", "GTD")
    assert said["gtdTime"] == "2030-01-01T12:00:00+00:00"


def described(**fields: Any) -> HttpBrokerConfig:
    return HttpBrokerConfig.of({"base_url": "http://nowhere", "promise": "forever", **fields})


def test_a_described_broker_takes_what_its_description_declares() -> None:
    usual = HttpBroker(described()).declaration.orders
    with pytest.raises(InvalidInput, match="Allowed here: limit, market"):
        usual.check(order(stop_price="144"))
    wide = described(
        order_types=["market", "limit", "stop"], times_in_force=["DAY", "OPG"], extended_hours=True
    )
    orders = HttpBroker(wide).declaration.orders
    orders.check(order(stop_price="144", time_in_force="OPG", extended_hours=True))
    with pytest.raises(InvalidInput, match="DAY, OPG"):
        orders.check(order(time_in_force="GTC"))


def test_a_described_body_has_the_type_of_the_order_in_the_brokers_words() -> None:
    config = described(
        order_types=["market", "stop"],
        body={"kind": "type", "px": "stop_price", "n": "qty"},
        numbers=["stop_price"],
        values={"type": {"stop": "STP"}},
    )
    said = body_of(config, order(stop_price="144.5").document())
    assert (said["kind"], str(said["px"]), said["n"]) == ("STP", "144.5", "10")


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"order_types": ["stop"]}, "stop_price"),
        ({"extended_hours": True}, "extended_hours"),
        ({"times_in_force": ["GTD"]}, "good_until"),
    ],
)
def test_a_body_that_would_drop_what_is_declared_is_refused(fields: dict[str, Any], missing: str) -> None:
    """Without its stop price a stop order would be a market order."""
    with pytest.raises(SettingsError, match=missing):
        described(body={"n": "qty", "limit": "limit_price", "tif": "time_in_force"}, **fields)
