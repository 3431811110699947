"""A broker that is described in a file: its words for ours, and what it says about an order."""

import json
from datetime import UTC, datetime

import pytest

from fencepost.errors import SettingsError
from fencepost.http_client import Reply
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._oanda import OandaBroker
from fencepost_orders._resend import may_repeat
from fencepost_orders.broker import BrokerOrder, Code, Declaration, Meaning, OutgoingOrder, Promise
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import (
    Fields,
    HttpBrokerConfig,
    Rule,
    body_of,
    by_status,
    json_text,
    moment,
    order_of,
    with_secrets,
)

PLAIN = HttpBrokerConfig(base_url="http://broker", promise=Promise.FOREVER)


def test_a_description_that_is_wrong_is_said_by_its_place() -> None:
    with pytest.raises(SettingsError, match="The broker's base_url is wrong"):
        HttpBrokerConfig.of({"base_url": "ftp://broker", "promise": "forever"})
    assert HttpBrokerConfig.of({"base_url": "http://broker", "promise": "forever"}) == PLAIN


def test_an_order_is_sent_in_the_brokers_words() -> None:
    told = PLAIN.model_copy(
        update={"body": {"side": "intent", "size": "qty", "note": "memo"}, "values": {"intent": {"BUY": "b"}}}
    )

    assert body_of(told, {"intent": "BUY", "qty": "3"}) == {"side": "b", "size": "3"}
    assert body_of(told, {"intent": "SELL", "qty": "3"})["side"] == "SELL", "a value without a word of theirs"
    assert body_of(PLAIN, {"qty": "3"}) == {"qty": "3"}


def test_an_answer_is_read_where_the_description_says() -> None:
    deep = PLAIN.model_copy(update={"fields": Fields(status="order.state", client_id="order.ref.ours")})

    found = order_of(deep, {"order": {"state": "open", "ref": {"ours": 7}}, "fills": "none"})

    assert found is not None
    assert (found.client_id, found.is_open, list(found.fills)) == ("7", True, [])
    assert order_of(deep, {"order": "gone"}) is None
    assert order_of(deep, ["no order"]) is None


def test_a_time_needs_a_zone_and_loses_its_nanoseconds() -> None:
    assert moment("2030-01-01T12:00:00.123456789+00:00") == datetime(2030, 1, 1, 12, 0, 0, 123456, UTC)
    assert moment("2030-01-01T12:00:00") is None
    assert moment("noon") is None
    assert moment(12) is None


def test_a_rule_fits_its_own_status_and_text_and_no_other() -> None:
    plain, worded = (
        Rule(status=409, meaning=Meaning.REFUSED),
        Rule(status=409, contains="twice", meaning=Meaning.DUPLICATE),
    )
    assert [plain.fits(Reply(status, {}, b"twice")) for status in (408, 409, 410)] == [False, True, False]
    assert [worded.fits(Reply(409, {}, body)) for body in (b"once", b"not twice")] == [False, True]
    assert not worded.fits(Reply(422, {}, b"twice"))


ORDER = BrokerOrder("key-1", "b-1", "accepted")


@pytest.mark.parametrize(
    ("status", "order", "meaning", "code"),
    [
        (199, ORDER, Meaning.UNKNOWN, Code.UNKNOWN),
        (200, ORDER, Meaning.ACCEPTED, None),
        (200, None, Meaning.UNKNOWN, Code.UNKNOWN),
        (299, ORDER, Meaning.ACCEPTED, None),
        (300, ORDER, Meaning.UNKNOWN, Code.UNKNOWN),
        (399, None, Meaning.UNKNOWN, Code.UNKNOWN),
        (400, None, Meaning.REFUSED, Code.BAD_REQUEST),
        (425, None, Meaning.UNKNOWN, Code.NETWORK_TIMEOUT),
        (499, None, Meaning.REFUSED, Code.BAD_REQUEST),
        (500, None, Meaning.UNKNOWN, Code.BROKER_5XX),
        (599, None, Meaning.UNKNOWN, Code.BROKER_5XX),
        (600, None, Meaning.UNKNOWN, Code.UNKNOWN),
    ],
)
def test_what_a_status_says_alone(
    status: int, order: BrokerOrder | None, meaning: Meaning, code: Code | None
) -> None:
    said = by_status(Reply(status, {"retry-after": "7"}, b"so"), order)

    assert (said.meaning, said.code, said.order, said.retry_after_seconds) == (meaning, code, order, 7)
    assert said.detail == (None if meaning is Meaning.ACCEPTED else f"{status}: so")


def test_a_caller_that_may_not_repeat_is_told_no() -> None:
    assert may_repeat(Declaration(Promise.NOTHING), 0) is False


def described(**more: object) -> HttpBrokerConfig:
    return HttpBrokerConfig.of({"base_url": "http://broker", "promise": "forever", **more})


ASKED = {"symbol": "USDJPY", "qty": "10000", "limit_price": "145.0010000000000000001", "intent": "BUY"}


def test_amounts_are_sent_as_numbers_digit_by_digit() -> None:
    told = described(numbers=["qty", "limit_price"])
    text = json_text(body_of(told, {**ASKED, "meta": {"note": 'a "b"', "list": [1, None, True, 0.5]}}))
    assert '"qty": 10000,' in text
    assert '"limit_price": 145.0010000000000000001' in text
    assert json.loads(text)["meta"] == {"note": 'a "b"', "list": [1, None, True, 0.5]}
    assert json.loads(json_text(body_of(PLAIN, ASKED)))["qty"] == "10000", "text unless it is asked for"


def test_a_body_has_constants_and_any_depth() -> None:
    told = described(
        body={
            "order.units": "qty",
            "order.legs.1.name": "symbol",
            "order.legs.0.side": "intent",
            "px": "limit_price",
        },
        constants={"order.type": "LIMIT", "order.legs.0.ratio": 1, "tags": ["a", {"b": None}], "live": False},
        numbers=["qty"],
        values={"intent": {"BUY": "b"}},
    )
    assert json.loads(json_text(body_of(told, ASKED))) == {
        "order": {"units": 10000, "legs": [{"side": "b", "ratio": 1}, {"name": "USDJPY"}], "type": "LIMIT"},
        "px": "145.0010000000000000001",
        "tags": ["a", {"b": None}],
        "live": False,
    }
    market = {name: value for name, value in ASKED.items() if name != "limit_price"}
    assert "px" not in body_of(told, market)
    assert body_of(described(constants={"source.name": "us"}), {"qty": "1"}) == {
        "qty": "1",
        "source": {"name": "us"},
    }


def test_what_an_order_does_not_have_leaves_no_gap_in_a_list() -> None:
    told = described(body={"prices.0": "limit_price", "prices.1": "qty"})
    assert body_of(told, {"qty": "1"}) == {"prices": ["1"]}


@pytest.mark.parametrize(
    ("described_as", "why"),
    [
        ({"body": {"a": "qty", "a.b": "symbol"}}, "a.b is nested below"),
        ({"body": {"a.b": "symbol", "a": "qty"}}, "a has a value, and"),
        ({"body": {"a": "qty"}, "constants": {"a": 1}}, "in common"),
        ({"numbers": ["symbol"]}, "numbers"),
        ({"credentials": {"TOKEN": "not a variable"}}, "credentials"),
    ],
)
def test_a_body_that_cannot_be_written_down_is_refused_at_the_start(
    described_as: dict[str, object], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        described(**described_as)


def test_two_brokers_share_a_description_and_not_a_login() -> None:
    environ = {"LIVE_TOKEN": "one", "PAPER_TOKEN": "two", "TOKEN": "three"}
    headers = {"Authorization": "Bearer ${TOKEN}"}
    for variable, secret in (("LIVE_TOKEN", "one"), ("PAPER_TOKEN", "two")):
        assert with_secrets(headers, environ, {"TOKEN": variable}) == {"Authorization": f"Bearer {secret}"}
    assert with_secrets(headers, environ)["Authorization"] == "Bearer three"
    with pytest.raises(SettingsError, match="OTHER is not set"):
        with_secrets(headers, environ, {"TOKEN": "OTHER"})
    told = described(headers=headers, credentials={"TOKEN": "LIVE_TOKEN"})
    request = HttpBroker(told, environ=environ).request(OutgoingOrder("k", ASKED, datetime.now(UTC)))
    assert request.headers["Authorization"] == "Bearer one"


def test_the_shipped_adapters_name_their_credentials_too() -> None:
    alpaca = AlpacaBroker.from_env(
        credentials={"key_id": "K2", "secret_key": "S2"}, environ={"K2": "id", "S2": "secret"}
    )
    assert alpaca.declaration.promise is Promise.WHILE_OPEN
    OandaBroker.from_env(credentials={"token": "T2"}, environ={"T2": "token"})
    with pytest.raises(SettingsError, match="S2"):
        AlpacaBroker.from_env(credentials={"key_id": "K2", "secret_key": "S2"}, environ={"K2": "id"})
    with pytest.raises(SettingsError, match="T2"):
        OandaBroker.from_env(credentials={"token": "T2"}, environ={"OANDA_API_TOKEN": "other"})
    with pytest.raises(SettingsError, match="credentials may have token"):
        OandaBroker.from_env(credentials={"key": "T2"}, environ={"OANDA_API_TOKEN": "other"})
