"""A broker that is described in a file: its words for ours, and what it says about an order."""

from datetime import UTC, datetime

import pytest

from fencepost.errors import SettingsError
from fencepost.orders.broker import Promise
from fencepost.orders.http_rules import Fields, HttpBrokerConfig, body_of, moment, order_of

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
