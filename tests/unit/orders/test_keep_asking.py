"""A question places nothing: an order is asked about before it is parked, and afterwards; and no word of a
broker holds anything up without a bound."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from fencepost.backoff import Backoff
from fencepost_orders._fill_source import Followed
from fencepost_orders._fill_tracker import FollowPolicy, heard
from fencepost_orders._order_source import OrderSettlement, TakenOrder
from fencepost_orders._outcome import Policy, answered, found
from fencepost_orders._resend import Decision, Next, keep_asking, when_parked, when_used_up
from fencepost_orders.broker import (
    AnswerVerdict,
    BrokerOrder,
    Code,
    Declaration,
    FoundOrder,
    LookupFinding,
    LookupScope,
    Meaning,
    Promise,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
POLICY = Policy(retry_max=3, backoff=Backoff(jitter=0))
SHIPPED = Declaration(Promise.WHILE_OPEN, LookupScope.ALL)
TAKEN = TakenOrder(
    *(5, 3, "main/USDJPY", {"qty": "1"}, "key-1", "main", None, 0, 1, NOW, None, NOW, NOW, NOW, "BROKER_5XX")
)
LIVE = BrokerOrder("key-1", "b-1", "accepted")
ABSENT = FoundOrder(LookupFinding.ABSENT)


def asked(
    answer: FoundOrder, after: float, declared: Declaration = SHIPPED, **fields: Any
) -> OrderSettlement:
    taken = replace(TAKEN, unknown_since=NOW, state="unknown", **fields)
    return found(taken, answer, declared, POLICY, NOW + timedelta(seconds=after))


def test_an_order_that_is_not_there_is_asked_about_for_a_minute_and_then_parked() -> None:
    at = 0.0
    asks: list[float] = []
    while (settled := asked(ABSENT, at)).outcome == "unknown":
        assert settled.delay_seconds is not None
        asks.append(at)
        at += settled.delay_seconds
    assert asks == [0, 2, 4, 8, 16, 32]
    assert at == 60
    assert (settled.outcome, settled.code, settled.delay_seconds) == ("parked", "BROKER_5XX", 300)


def test_the_minute_begins_when_the_outcome_became_unknown() -> None:
    stuck: dict[str, Any] = {
        "stamped_at": NOW - timedelta(minutes=10),
        "open_since": NOW - timedelta(minutes=10),
    }
    assert asked(ABSENT, 1, **stuck).outcome == "unknown"
    assert asked(ABSENT, 60, **stuck).outcome == "parked"
    unsaid = replace(TAKEN, state="unknown")
    assert found(unsaid, ABSENT, SHIPPED, POLICY, NOW + timedelta(seconds=1)).outcome == "unknown"
    assert found(unsaid, ABSENT, SHIPPED, POLICY, NOW + timedelta(seconds=61)).outcome == "parked"


def test_an_order_that_appears_late_is_sent_whenever_it_is_seen() -> None:
    shown = FoundOrder(LookupFinding.FOUND, LIVE)
    assert asked(shown, 5).outcome == "sent"
    parked = replace(TAKEN, unknown_since=NOW, state="parked")
    late = found(parked, shown, SHIPPED, POLICY, NOW + timedelta(days=3))
    assert (late.outcome, late.result["broker_order_id"] if late.result else None) == ("sent", "b-1")
    rejected = FoundOrder(LookupFinding.FOUND, replace(LIVE, live=False))
    assert found(parked, rejected, SHIPPED, POLICY, NOW + timedelta(days=3)).outcome == "dead"


@pytest.mark.parametrize("lookup", LookupScope)
@pytest.mark.parametrize("promise", Promise)
@pytest.mark.parametrize("valid_seconds", [None, 5.0])
@pytest.mark.parametrize("finding", [LookupFinding.ABSENT, LookupFinding.NO_ANSWER, LookupFinding.LIMITED])
@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize("expired", [False, True])
def test_what_is_parked_is_never_sent_again_by_itself(
    lookup: LookupScope,
    promise: Promise,
    valid_seconds: float | None,
    finding: LookupFinding,
    retries: int,
    expired: bool,
) -> None:
    window = 10_000.0 if promise is Promise.WINDOW else 0.0
    declared = Declaration(promise, lookup, window, valid_seconds)
    parked = replace(
        TAKEN, state="parked", retry_count=retries, expires_at=NOW if expired else None, unknown_since=NOW
    )
    settled = found(parked, FoundOrder(finding), declared, POLICY, NOW + timedelta(seconds=100))
    if settled.outcome == "dead":
        assert settled.fate == "none"
        assert (finding, lookup, valid_seconds) == (LookupFinding.ABSENT, LookupScope.ALL, 5.0), (
            "only with the proof"
        )
        assert expired or retries
    else:
        assert (settled.outcome, settled.code, settled.delay_seconds) == ("parked", "BROKER_5XX", 300)


def test_a_broker_that_cannot_be_asked_is_not_waited_for() -> None:
    declared = Declaration(Promise.NOTHING, LookupScope.NONE)
    assert asked(FoundOrder(LookupFinding.NO_ANSWER), 0, declared).outcome == "parked"


@pytest.mark.parametrize(("decision", "lookup"), list(product(Decision, LookupScope)))
def test_nothing_but_parking_is_put_off(decision: Decision, lookup: LookupScope) -> None:
    step = Next(decision, why="so")
    declared = Declaration(Promise.NOTHING, lookup)
    for seconds in (0.0, 30.0, 59.9, 60.0, 99.0):
        after = keep_asking(declared, step, seconds, ask_seconds=60, first_seconds=2)
        if decision is Decision.PARK and lookup is not LookupScope.NONE and seconds < 60:
            assert (after.decision, after.why) == (Decision.ASK, "so")
            assert after.wait_seconds == max(2, min(seconds, 60 - seconds))
        else:
            assert after == step


@pytest.mark.parametrize("decision", Decision)
def test_after_the_last_retry_and_while_parked_nothing_is_sent(decision: Decision) -> None:
    step = Next(decision, why="so")
    sends = {Decision.RESEND, Decision.RESEND_PROVED}
    assert when_used_up(step).decision not in sends
    assert when_parked(step).decision in {Decision.SENT, Decision.DEAD, Decision.PARK}
    if decision not in sends:
        assert when_used_up(step) == step


@pytest.mark.parametrize(
    ("told", "waits"),
    [(0.0, 0.0), (7.0, 7.0), (300.0, 300.0), (301.0, 300.0), (86_400.0, 300.0), (None, 2.0)],
)
def test_no_retry_after_is_longer_than_its_bound(told: float | None, waits: float) -> None:
    limited = AnswerVerdict(Meaning.LIMITED, Code.RATE_LIMITED, retry_after_seconds=told)
    assert answered(TAKEN, limited, SHIPPED, POLICY).delay_seconds == waits
    question = FoundOrder(LookupFinding.LIMITED, code=Code.RATE_LIMITED, retry_after_seconds=told)
    assert asked(question, 1).delay_seconds == waits
    followed = Followed(5, 3, {}, "key-1", "main", None, 1, NOW, NOW, NOW)
    policy = FollowPolicy(Backoff(2.0, 300.0, jitter=0))
    assert heard(followed, question, SHIPPED, policy).delay_seconds == waits


def test_the_bound_is_a_setting() -> None:
    limited = AnswerVerdict(Meaning.LIMITED, Code.RATE_LIMITED, retry_after_seconds=3600)
    longer = replace(POLICY, retry_after_max_seconds=900)
    assert answered(TAKEN, limited, SHIPPED, longer).delay_seconds == 900


def test_refused_credentials_end_the_order_or_hold_it() -> None:
    refused = AnswerVerdict(Meaning.REFUSED, Code.UNAUTHORIZED, "401: expired")
    ended = answered(TAKEN, refused, SHIPPED, POLICY)
    assert ended == OrderSettlement(
        5, 3, "dead", "not_this", Code.UNAUTHORIZED, "401: expired", health="unauthorized"
    )
    held = answered(TAKEN, refused, SHIPPED, replace(POLICY, unauthorized="hold"))
    assert held == replace(ended, outcome="queued")
