"""What an answer about an order that the broker has leads to."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost.backoff import Backoff
from fencepost_orders._alpaca import read_order
from fencepost_orders._fill_source import Followed
from fencepost_orders._fill_tracker import FollowPolicy, heard
from fencepost_orders._oanda import created_order
from fencepost_orders.broker import (
    BrokerOrder,
    Code,
    Declaration,
    FoundOrder,
    LookupFinding,
    LookupScope,
    Promise,
)
from fencepost_orders.http_rules import HttpBrokerConfig, order_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SEEING = Declaration(Promise.NOTHING)
POLICY = FollowPolicy(Backoff(1.0, 300.0, jitter=0), most_seconds=86_400)
FOLLOWED = Followed(7, 2, {}, "key-1", "main", "brk-1", 3, NOON, NOON, NOON + timedelta(seconds=5))


def order(**fields: Any) -> BrokerOrder:
    return replace(BrokerOrder("key-1", "brk-1", "accepted", is_open=True), **fields)


def test_an_open_order_is_asked_about_again_and_later_each_time() -> None:
    waits = [
        heard(
            replace(FOLLOWED, asks=asks), FoundOrder(LookupFinding.FOUND, order()), SEEING, POLICY
        ).delay_seconds
        for asks in (1, 2, 3, 20)
    ]
    assert waits == [1, 2, 4, 300]


@pytest.mark.parametrize(
    "ended", [order(status="filled", is_open=False), order(status="rejected", live=False)]
)
def test_an_order_that_is_over_is_stored_and_followed_no_more(ended: BrokerOrder) -> None:
    follow_up = heard(FOLLOWED, FoundOrder(LookupFinding.FOUND, ended), SEEING, POLICY)

    assert follow_up.over
    assert follow_up.result["status"] == ended.status
    assert follow_up.result["open"] is False


@pytest.mark.parametrize(
    "answer",
    [
        FoundOrder(LookupFinding.FOUND, order(client_id="somebody-elses", is_open=False)),
        FoundOrder(LookupFinding.ABSENT),
        FoundOrder(LookupFinding.NO_ANSWER, code=Code.BROKER_5XX),
    ],
)
def test_what_is_no_word_about_this_order_changes_nothing(answer: FoundOrder) -> None:
    follow_up = heard(FOLLOWED, answer, SEEING, POLICY)

    assert (follow_up.result, follow_up.over, follow_up.delay_seconds) == (None, False, 4)


def test_a_limit_says_itself_how_long_to_wait() -> None:
    follow_up = heard(FOLLOWED, FoundOrder(LookupFinding.LIMITED, retry_after_seconds=17), SEEING, POLICY)

    assert (follow_up.delay_seconds, follow_up.health, follow_up.over) == (17, "ask_limited", False)


def test_a_caller_that_sees_open_orders_only_has_said_the_end_when_it_sees_none() -> None:
    open_only = Declaration(Promise.WHILE_OPEN, LookupScope.OPEN)

    assert heard(FOLLOWED, FoundOrder(LookupFinding.ABSENT), open_only, POLICY).over
    assert not heard(FOLLOWED, FoundOrder(LookupFinding.NO_ANSWER), open_only, POLICY).over


def test_a_broker_that_cannot_be_asked_is_not() -> None:
    assert heard(
        FOLLOWED, FoundOrder(LookupFinding.NO_ANSWER), Declaration(Promise.NOTHING, LookupScope.NONE), POLICY
    ).over


def test_an_order_without_an_end_is_given_up_some_day() -> None:
    old = replace(FOLLOWED, asked_at=NOON + timedelta(seconds=86_401))

    assert heard(old, FoundOrder(LookupFinding.FOUND, order()), SEEING, POLICY).over


@pytest.mark.parametrize(
    ("status", "is_open"),
    [("new", True), ("partially_filled", True), ("held", True), ("filled", False), ("canceled", False)],
)
def test_alpacas_final_statuses_end_the_questions(status: str, *, is_open: bool) -> None:
    read = read_order({"id": "1", "status": status})
    assert read is not None
    assert read.is_open == is_open


def test_an_order_that_oanda_filled_at_once_is_over() -> None:
    created = {"orderCreateTransaction": {"id": "1"}}
    pending, filled = (
        created_order(created),
        created_order({**created, "orderFillTransaction": {"units": "1"}}),
    )
    assert pending is not None
    assert filled is not None
    assert (pending.is_open, filled.is_open) == (True, False)


def test_a_described_broker_says_in_which_statuses_an_order_is_open() -> None:
    config = HttpBrokerConfig(
        base_url="http://nowhere", promise=Promise.NOTHING, final_statuses=frozenset({"gone"})
    )
    words = ("working", "gone", "filled")
    found = [order_of(config, {"status": word, "broker_order_id": "b"}) for word in words]
    assert [one is not None and one.is_open for one in found] == [True, False, True]
