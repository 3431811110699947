"""Every settlement as a whole: what becomes of the order, what is proved, what is kept, how long to wait."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fencepost.backoff import Backoff
from fencepost_orders._order_source import OrderSettlement, TakenOrder
from fencepost_orders._outcome import (
    DETAIL_CHARACTERS_MAX,
    RESULT_CHARACTERS_MAX,
    Policy,
    answered,
    found,
    health_of,
    hold_back,
    maybe_sent,
    not_sent,
    outgoing,
    result_of,
)
from fencepost_orders.broker import (
    AnswerVerdict,
    BrokerOrder,
    Code,
    Declaration,
    FoundOrder,
    LookupFinding,
    LookupScope,
    Meaning,
    OutgoingOrder,
    Promise,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
POLICY = Policy(retry_max=3, backoff=Backoff(jitter=0), margin_seconds=1, ask_seconds=0)
PROVABLE = Declaration(Promise.NOTHING, request_valid_seconds=10)
FOREVER = Declaration(Promise.FOREVER)
SILENT = Declaration(Promise.FOREVER, LookupScope.NONE)
BLIND = Declaration(Promise.NOTHING, LookupScope.OPEN)
TAKEN = TakenOrder(
    *(5, 3, "main/USDJPY", {"qty": "1"}, "key-1", "main", None, 0, 1, NOW, None, NOW, NOW, NOW, None)
)
LIVE = BrokerOrder("key-1", "b-1", "accepted")
REJECTED = BrokerOrder("key-1", "b-1", "no\0money", live=False)
OTHERS = BrokerOrder("key-2", "b-2", "accepted")
NAMELESS = BrokerOrder(None, "b-3", "accepted")


def said(outcome: Any, **how: Any) -> OrderSettlement:
    return OrderSettlement(5, 3, outcome, **how)


ANOTHER = said("unknown", code=Code.UNKNOWN, detail="the answer echoes another key", health="failed")
SENT = said("sent", result=result_of(LIVE), health="ok")
KNOWN = said("sent", code=Code.CONFLICT_PROCESSED, result=result_of(LIVE), health="ok")
UNPLACED = replace(
    said("dead", fate="not_this", code=Code.BAD_REQUEST, detail="no\ufffdmoney", health="ok"),
    result=result_of(REJECTED),
)


@pytest.mark.parametrize(
    ("verdict", "declared", "expected"),
    [
        (AnswerVerdict(Meaning.ACCEPTED, order=LIVE), PROVABLE, SENT),
        (
            AnswerVerdict(Meaning.ACCEPTED, order=NAMELESS),
            PROVABLE,
            replace(SENT, result=result_of(NAMELESS)),
        ),
        (AnswerVerdict(Meaning.ACCEPTED, order=REJECTED), PROVABLE, UNPLACED),
        (AnswerVerdict(Meaning.ACCEPTED, order=OTHERS), PROVABLE, ANOTHER),
        (
            AnswerVerdict(Meaning.ACCEPTED),
            PROVABLE,
            said("unknown", code=Code.UNKNOWN, detail="the answer cannot be read", health="failed"),
        ),
        (
            AnswerVerdict(Meaning.UNKNOWN, Code.BROKER_5XX, "500: oh\0"),
            PROVABLE,
            said("unknown", code=Code.BROKER_5XX, detail="500: oh\ufffd", health="failed"),
        ),
        (AnswerVerdict(Meaning.DUPLICATE, order=LIVE), PROVABLE, KNOWN),
        (
            AnswerVerdict(Meaning.DUPLICATE, order=NAMELESS, detail="409: known"),
            PROVABLE,
            said("unknown", code=Code.CONFLICT_PROCESSED, detail="409: known", health="ok"),
        ),
        (
            AnswerVerdict(Meaning.DUPLICATE),
            PROVABLE,
            said("unknown", code=Code.CONFLICT_PROCESSED, health="ok"),
        ),
        (
            AnswerVerdict(Meaning.DUPLICATE, order=NAMELESS),
            SILENT,
            said("unknown", code=Code.CONFLICT_PROCESSED, health="ok"),
        ),
        (
            AnswerVerdict(Meaning.REFUSED, detail="400: no"),
            PROVABLE,
            said("dead", fate="not_this", code=Code.BAD_REQUEST, detail="400: no", health="ok"),
        ),
        (
            AnswerVerdict(Meaning.REFUSED, Code.UNAUTHORIZED),
            PROVABLE,
            said("dead", fate="not_this", code=Code.UNAUTHORIZED, health="unauthorized"),
        ),
        (
            AnswerVerdict(Meaning.LIMITED, detail="429"),
            PROVABLE,
            said(
                "queued", fate="not_this", code=Code.RATE_LIMITED, detail="429", delay_seconds=2.0,
                health="limited",
            ),
        ),
        (
            AnswerVerdict(Meaning.LIMITED, retry_after_seconds=0.0),
            PROVABLE,
            said("queued", fate="not_this", code=Code.RATE_LIMITED, delay_seconds=0.0, health="limited"),
        ),
    ],
)  # fmt: skip
def test_an_answer_settles_the_order_so_and_not_otherwise(
    verdict: AnswerVerdict, declared: Declaration, expected: OrderSettlement
) -> None:
    assert answered(TAKEN, verdict, declared, POLICY) == expected


def test_a_word_about_a_lost_request_is_believed_where_nothing_can_be_looked_at() -> None:
    repeat = replace(TAKEN, open_since=NOW - SECOND, last_error="NETWORK_TIMEOUT")
    known = replace(KNOWN, detail="409: known", result=result_of(BrokerOrder("key-1", None, "duplicate")))
    verdict = AnswerVerdict(Meaning.DUPLICATE, order=NAMELESS, detail="409: known")
    assert answered(repeat, verdict, SILENT, POLICY) == known


@pytest.mark.parametrize("retries", range(5))
def test_what_did_not_arrive_is_tried_as_often_as_allowed(retries: int) -> None:
    taken = replace(TAKEN, retry_count=retries)
    expected = said("dead", fate="not_this", code=Code.NETWORK_TIMEOUT, detail="no way", health="failed")
    if retries < 3:
        expected = replace(expected, outcome="failed", delay_seconds=2.0 ** (retries + 1))
    assert not_sent(taken, "no way", POLICY) == expected
    stale = answered(taken, AnswerVerdict(Meaning.STALE, detail="no way"), PROVABLE, POLICY)
    assert stale == expected
    assert answered(taken, AnswerVerdict(Meaning.STALE), PROVABLE, POLICY) == replace(
        expected, detail="too late"
    )


def test_what_is_said_is_kept_up_to_a_length() -> None:
    long = "x" * DETAIL_CHARACTERS_MAX
    assert maybe_sent(TAKEN, Code.UNKNOWN, long).detail == long
    assert maybe_sent(TAKEN, Code.UNKNOWN, long + "y").detail == long
    assert maybe_sent(TAKEN, Code.UNKNOWN, "naïve 日本").detail == "naïve 日本"


def asked(
    answer: FoundOrder, declared: Declaration, age: float, *, open_age: float | None = None, **fields: Any
) -> OrderSettlement:
    """The broker was asked so many seconds after the last request was stamped."""
    at = NOW + age * SECOND
    open_since = None if open_age is None else at - open_age * SECOND
    return found(replace(TAKEN, open_since=open_since, **fields), answer, declared, POLICY, at)


ABSENT, NO_ANSWER = FoundOrder(LookupFinding.ABSENT), FoundOrder(LookupFinding.NO_ANSWER)
NOT_THERE = "not found, and the request can no longer arrive"
REFUSES = "the broker refuses a second order with this client id"


def test_an_absence_is_waited_for_and_then_a_proof() -> None:
    early = asked(ABSENT, PROVABLE, 10.5)
    assert early == said(
        "unknown", code=Code.UNKNOWN, detail="the request may still arrive", delay_seconds=0.5, health="ok"
    )
    assert asked(ABSENT, PROVABLE, -5).delay_seconds == 11, (
        "a question before the stamp is one of that moment"
    )
    proved = asked(ABSENT, PROVABLE, 11, last_error="BROKER_5XX")
    assert proved == said(
        "failed", fate="none", code="BROKER_5XX", detail=NOT_THERE, delay_seconds=2.0, health="ok"
    )
    assert asked(ABSENT, PROVABLE, 11, retry_count=2).delay_seconds == 8.0
    over = asked(ABSENT, PROVABLE, 11, retry_count=3, last_error="BROKER_5XX")
    assert over == said("dead", fate="none", code="BROKER_5XX", detail="no retries are left", health="ok")


def test_a_repeat_that_the_broker_refuses_needs_no_proof() -> None:
    again = asked(ABSENT, FOREVER, 0)
    assert again == said("failed", detail=REFUSES, delay_seconds=2.0, health="ok")
    assert asked(ABSENT, FOREVER, 0, retry_count=3) == said(
        "parked", code=Code.UNKNOWN, detail="no retries are left", delay_seconds=300.0, health="ok"
    )
    window = Declaration(Promise.WINDOW, LookupScope.OPEN, window_seconds=20, request_valid_seconds=10)
    assert asked(ABSENT, window, 0, open_age=8.9).outcome == "failed"
    assert asked(ABSENT, window, 0, open_age=9).outcome == "parked"
    assert asked(ABSENT, window, 8.9).outcome == "failed", "the only request is the open one"
    assert asked(ABSENT, window, 9).outcome == "parked"


def test_what_no_caller_can_prove_is_parked_with_why_it_became_unknown() -> None:
    why = "the broker cannot say that it does not have the order"
    parked = said("parked", code=Code.UNKNOWN, detail=why, delay_seconds=300.0, health="ok")
    assert asked(ABSENT, BLIND, 99) == parked
    told = replace(ABSENT, detail="404: no such order")
    assert asked(told, BLIND, 99) == replace(parked, detail=f"{why} (404: no such order)")
    assert asked(ABSENT, BLIND, 99, last_error="BROKER_5XX").code == "BROKER_5XX"
    assert asked(replace(ABSENT, code=Code.BAD_REQUEST), BLIND, 99, last_error="X").code == Code.BAD_REQUEST


def test_no_answer_is_asked_for_again_as_the_broker_or_the_backoff_says() -> None:
    silence = asked(NO_ANSWER, PROVABLE, 11, asks=3)
    assert silence == said(
        "unknown", code=Code.UNKNOWN, detail="the broker did not answer the query", delay_seconds=8.0
    )
    told = replace(NO_ANSWER, code=Code.BROKER_5XX, detail="503\0", retry_after_seconds=0.0)
    assert asked(told, PROVABLE, 11) == said(
        "unknown", code=Code.BROKER_5XX, detail="503\ufffd", delay_seconds=0.0, health="failed"
    )
    limited = asked(FoundOrder(LookupFinding.LIMITED), FOREVER, 11)
    assert limited == said(
        "unknown",
        code=Code.UNKNOWN,
        detail="the broker limits queries",
        delay_seconds=2.0,
        health="ask_limited",
    )


def test_what_the_broker_has_is_sent_or_was_rejected() -> None:
    there = asked(FoundOrder(LookupFinding.FOUND, LIVE), PROVABLE, 0, last_error="BROKER_5XX")
    assert there == said("sent", detail="found at the broker", result=result_of(LIVE), health="ok")
    repeated = asked(FoundOrder(LookupFinding.FOUND, NAMELESS), PROVABLE, 0, last_error="CONFLICT_PROCESSED")
    assert (repeated.outcome, repeated.code) == ("sent", Code.CONFLICT_PROCESSED)
    rejected = asked(FoundOrder(LookupFinding.FOUND, REJECTED), PROVABLE, 0)
    assert rejected == said(
        "dead",
        fate="none",
        code=Code.BAD_REQUEST,
        detail="the broker has it, and rejected it",
        result=result_of(REJECTED),
        health="ok",
    )
    other = asked(FoundOrder(LookupFinding.FOUND, OTHERS), BLIND, 0)
    assert (other.outcome, other.code, other.health) == ("parked", Code.UNKNOWN, "failed")


@pytest.mark.parametrize(("left", "over"), [(-1, True), (0, True), (1, False)])
def test_an_order_whose_own_time_is_over_is_not_sent_again(left: int, over: bool) -> None:
    expires_at = NOW + (11 + left) * SECOND
    proved = asked(ABSENT, PROVABLE, 11, expires_at=expires_at)
    assert (proved.outcome, proved.code) == (("dead", "EXPIRED") if over else ("failed", None))
    assert proved.detail == ("expired, and it never arrived" if over else NOT_THERE)
    unproved = asked(ABSENT, FOREVER, 11, expires_at=expires_at)
    assert unproved.outcome == ("parked" if over else "failed")
    held = hold_back(PROVABLE, replace(TAKEN, expires_at=expires_at), POLICY, NOW + 11 * SECOND)
    late = said("dead", fate="not_this", code="EXPIRED", detail="it expired before it could be sent")
    assert held == (late if over else None)


def test_an_open_request_is_asked_about_before_the_next() -> None:
    ask = said(
        "unknown",
        fate="not_this",
        code=Code.UNKNOWN,
        detail="an earlier request is open: query the broker first",
    )
    window = Declaration(Promise.WINDOW, window_seconds=20, request_valid_seconds=10)
    for declared, age, expected in (
        (PROVABLE, 0, None),
        (PROVABLE, 1, ask),
        (FOREVER, 1, None),
        (window, 8, None),
        (window, 9, ask),
    ):
        taken = replace(TAKEN, open_since=NOW - age * SECOND)
        assert hold_back(declared, taken, POLICY, NOW + 60 * SECOND) == expected
    assert hold_back(PROVABLE, replace(TAKEN, open_since=None), POLICY, NOW) is None


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (FoundOrder(LookupFinding.FOUND, LIVE), "ok"),
        (ABSENT, "ok"),
        (FoundOrder(LookupFinding.LIMITED), "ask_limited"),
        (NO_ANSWER, None),
        (replace(NO_ANSWER, code=Code.BROKER_5XX), "failed"),
    ],
)
def test_what_an_answer_says_about_the_broker_itself(answer: FoundOrder, health: str | None) -> None:
    assert health_of(answer) == health


def test_an_order_leaves_with_its_stamp_and_its_first_open_request() -> None:
    earlier = NOW - SECOND
    assert outgoing(replace(TAKEN, open_since=earlier)) == OutgoingOrder(
        "key-1", {"qty": "1"}, NOW, "main", earlier
    )


def test_what_is_kept_of_an_order() -> None:
    full = BrokerOrder(
        "key-1", "b-1", "open", True, NOW, [{"qty": Decimal("1.50")}], {"x": [1, None, True]}, is_open=True
    )
    kept = result_of(full)
    digest = kept.pop("digest")
    assert kept == {
        "broker_order_id": "b-1",
        "status": "open",
        "accepted_at": NOW.isoformat(),
        "fills": [{"qty": "1.5"}],
        "body": {"x": [1, None, True]},
        "open": True,
    }
    assert digest != result_of(replace(full, status="closed"))["digest"]
    assert result_of(replace(full, live=False))["open"] is False
    assert result_of(replace(full, is_open=False))["open"] is False
    assert result_of(NAMELESS)["accepted_at"] is None


def test_an_answer_is_kept_whole_up_to_a_length_and_then_its_names_alone() -> None:
    def filled(characters: int) -> BrokerOrder:
        return replace(LIVE, body={"x": "y" * characters})

    def is_whole(order: BrokerOrder) -> bool:
        return bool(result_of(order)["body"] == order.body)

    fits = max(n for n in range(RESULT_CHARACTERS_MAX - 300, RESULT_CHARACTERS_MAX) if is_whole(filled(n)))
    whole = len('{"accepted_at":null,"body":{"x":""},"broker_order_id":"b-1","fills":[],"status":"accepted"}')
    assert fits + whole == RESULT_CHARACTERS_MAX
    cut = result_of(replace(filled(20_000), broker_order_id="b" * 300, status="s" * 256, fills=[1]))
    assert (cut["broker_order_id"], cut["status"], cut["fills"]) == ("b" * 256, "s" * 256, [])
    assert cut["body"] == {"omitted": "it was too large to be stored"}
    assert result_of(replace(filled(20_000), broker_order_id=None))["broker_order_id"] is None
