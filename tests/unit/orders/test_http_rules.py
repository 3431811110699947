"""A broker that is described in a file: its words for ours, and what it says about an order."""

from datetime import UTC, datetime

import pytest

from fencepost.errors import SettingsError
from fencepost.orders.broker import BrokerOrder, Code, Declaration, Meaning, Promise
from fencepost.orders.http_rules import (
    Fields,
    HttpBrokerConfig,
    Rule,
    body_of,
    by_status,
    moment,
    order_of,
)
from fencepost.orders.resend import may_repeat
from fencepost.outbox.http import Reply

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


def test_whoever_may_not_repeat_is_told_no() -> None:
    assert may_repeat(Declaration(Promise.NOTHING), 0) is False
