"""What answers mean: from a reply to a settlement."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from fencepost.backoff import Backoff
from fencepost.errors import SettingsError
from fencepost.http_client import Reply
from fencepost.kernel.call import document
from fencepost_orders._order_source import OrderSettlement, TakenOrder
from fencepost_orders._outcome import Policy, answered, found, hold_back, not_sent, outgoing, result_of
from fencepost_orders._sender import OrderSender
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
from fencepost_orders.http_rules import HttpBrokerConfig, classified, with_secrets

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
CONFIG = HttpBrokerConfig(base_url="http://broker", promise=Promise.NOTHING, request_valid_seconds=10)
POLICY = Policy(backoff=Backoff(jitter=0), ask_seconds=0)
ORDER = {"broker_order_id": "b-1", "status": "accepted", "idempotency_key": "key-1"}


def taken(**fields: Any) -> TakenOrder:
    defaults: dict[str, Any] = {
        "id": 1,
        "take": 1,
        "order_key": "main/USDJPY",
        "request": {},
        "idempotency_key": "key-1",
        "account": "main",
        "trace_id": None,
        "retry_count": 0,
        "asks": 1,
        "created_at": NOW,
        "expires_at": None,
        "stamped_at": NOW,
        "open_since": NOW,
        "taken_until": NOW + timedelta(seconds=60),
        "last_error": None,
    }
    return TakenOrder(**{**defaults, **fields})


def settle(status: int, body: object = ORDER, headers: dict[str, str] | None = None) -> OrderSettlement:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = Reply(status, headers or {}, raw)
    return answered(taken(), classified(CONFIG, reply), CONFIG.declaration, POLICY)


@pytest.mark.parametrize(
    ("status", "body", "outcome", "fate", "code"),
    [
        (200, ORDER, "sent", "unproved", None),
        (201, ORDER, "sent", "unproved", None),
        (409, ORDER, "sent", "unproved", Code.CONFLICT_PROCESSED),
        (409, {}, "unknown", "unproved", Code.CONFLICT_PROCESSED),
        (400, {}, "dead", "not_this", Code.BAD_REQUEST),
        (404, {}, "dead", "not_this", Code.BAD_REQUEST),
        (422, {}, "dead", "not_this", Code.BAD_REQUEST),
        (401, {}, "dead", "not_this", Code.UNAUTHORIZED),
        (403, {}, "dead", "not_this", Code.UNAUTHORIZED),
        (429, {}, "queued", "not_this", Code.RATE_LIMITED),
        (408, {}, "unknown", "unproved", Code.NETWORK_TIMEOUT),
        (500, {}, "unknown", "unproved", Code.BROKER_5XX),
        (503, {}, "unknown", "unproved", Code.BROKER_5XX),
        (200, b"<html>", "unknown", "unproved", Code.UNKNOWN),
        (200, b"", "unknown", "unproved", Code.UNKNOWN),
        (200, [], "unknown", "unproved", Code.UNKNOWN),
        (302, {}, "unknown", "unproved", Code.UNKNOWN),
        (200, {**ORDER, "idempotency_key": "another"}, "unknown", "unproved", Code.UNKNOWN),
        (200, {**ORDER, "status": "rejected"}, "dead", "not_this", Code.BAD_REQUEST),
    ],
)
def test_an_answer_means(status: int, body: object, outcome: str, fate: str, code: Code | None) -> None:
    settled = settle(status, body)
    assert (settled.outcome, settled.fate, settled.code) == (outcome, fate, code)


def test_whatever_a_broker_says_can_be_stored() -> None:
    odd = BrokerOrder("key-1", "b\0", "acc\ud800epted", body={"no\0te": ["\0", Decimal("1.50"), None]})
    kept = result_of(odd)
    assert (kept["broker_order_id"], kept["status"]) == ("b\ufffd", "acc?epted")
    assert kept["body"] == {"no\ufffdte": ["\ufffd", "1.5", None]}
    document("result", kept)
    large = result_of(BrokerOrder("key-1", "b" * 90_000, "accepted", body={"x": "y" * 500_000}))
    assert len(json.dumps(large)) < 2000
    garbled = settle(500, b"\0\xff\xfe")
    assert garbled.detail is not None
    assert "\0" not in garbled.detail
    assert settle(200, b'{"status": NaN}').outcome == "unknown"


def test_a_429_waits_as_it_is_told_in_either_form() -> None:
    assert settle(429, {}, {"retry-after": "7"}).delay_seconds == 7
    past = settle(429, {}, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert past.delay_seconds == 0
    assert settle(429, {}, {"retry-after": "soon"}).delay_seconds == 2


def test_a_brokers_own_rule_speaks_before_the_status() -> None:
    config = HttpBrokerConfig.of(
        {
            "base_url": "http://b",
            "promise": "forever",
            "rules": [
                {"status": 422, "contains": "must be unique", "meaning": "duplicate"},
                {"status": 409, "meaning": "refused", "code": "BAD_REQUEST"},
            ],
        }
    )
    assert classified(config, Reply(422, {}, b'{"message": "must be unique"}')).meaning is Meaning.DUPLICATE
    assert classified(config, Reply(422, {}, b"{}")).meaning is Meaning.REFUSED
    assert classified(config, Reply(409, {}, b"{}")).meaning is Meaning.REFUSED


def test_a_request_that_came_too_late_is_made_again() -> None:
    settled = answered(taken(), AnswerVerdict(Meaning.STALE), CONFIG.declaration, POLICY)
    assert (settled.outcome, settled.fate, settled.code) == ("failed", "not_this", Code.NETWORK_TIMEOUT)


def test_a_request_that_did_not_leave_is_tried_again_then_dead() -> None:
    waits = [not_sent(taken(retry_count=count), "refused", POLICY) for count in range(9)]
    assert [settled.delay_seconds for settled in waits[:8]] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert {settled.outcome for settled in waits[:8]} == {"failed"}
    assert waits[8].outcome == "dead"


def test_jitter_stays_within_a_tenth() -> None:
    backoff = Backoff()
    assert backoff.seconds(1, 0.0) == pytest.approx(1.8)
    assert backoff.seconds(1, 1.0) == pytest.approx(2.2)
    assert backoff.seconds(50, 0.5) == 256


def asked(
    finding: LookupFinding, declared: Declaration, after_seconds: float, **fields: Any
) -> OrderSettlement:
    return found(
        taken(**fields), FoundOrder(finding), declared, POLICY, NOW + timedelta(seconds=after_seconds)
    )


def test_a_proved_absence_is_sent_again_with_backoff_and_then_dead() -> None:
    declared = CONFIG.declaration
    again = asked(LookupFinding.ABSENT, declared, 12, retry_count=1)
    assert (again.outcome, again.fate, again.delay_seconds) == ("failed", "none", 4)
    over = asked(LookupFinding.ABSENT, declared, 12, retry_count=8, last_error="BROKER_5XX")
    assert (over.outcome, over.fate, over.code) == ("dead", "none", "BROKER_5XX")


def test_an_unproved_repeat_ends_with_a_person() -> None:
    declared = Declaration(Promise.FOREVER)
    again = asked(LookupFinding.ABSENT, declared, 0)
    assert (again.outcome, again.fate) == ("failed", "unproved")
    assert asked(LookupFinding.ABSENT, declared, 0, retry_count=8).outcome == "parked"


def test_an_expired_order_ends_instead_of_being_sent() -> None:
    ended = asked(LookupFinding.ABSENT, CONFIG.declaration, 12, expires_at=NOW)
    assert (ended.outcome, ended.fate, ended.code) == ("dead", "none", "EXPIRED")


def test_an_early_absence_waits_for_the_end_of_the_validity() -> None:
    waiting = asked(LookupFinding.ABSENT, CONFIG.declaration, 4)
    assert (waiting.outcome, waiting.delay_seconds) == ("unknown", 7)


def test_an_order_that_the_broker_has_is_sent_or_was_rejected() -> None:
    def said(order: BrokerOrder, **fields: Any) -> OrderSettlement:
        return found(taken(**fields), FoundOrder(LookupFinding.FOUND, order), CONFIG.declaration, POLICY, NOW)

    sent = said(BrokerOrder("key-1", "b-1", "accepted"), last_error=Code.CONFLICT_PROCESSED)
    assert (sent.outcome, sent.code) == ("sent", Code.CONFLICT_PROCESSED)
    assert said(BrokerOrder("key-1", "b-1", "accepted")).code is None
    dead = said(BrokerOrder("key-1", "b-1", "rejected", live=False))
    assert (dead.outcome, dead.fate, dead.code) == ("dead", "none", Code.BAD_REQUEST)


def test_what_cannot_be_proved_waits_for_a_person() -> None:
    parked = asked(LookupFinding.ABSENT, Declaration(Promise.NOTHING), 12, last_error="BROKER_5XX")
    assert (parked.outcome, parked.code) == ("parked", "BROKER_5XX")


def test_a_broker_that_limits_questions_says_when_to_ask_again() -> None:
    limited = FoundOrder(LookupFinding.LIMITED, retry_after_seconds=9)
    assert found(taken(), limited, CONFIG.declaration, POLICY, NOW).delay_seconds == 9


def test_an_order_leaves_as_it_was_taken() -> None:
    order = outgoing(taken(request={"qty": "1"}))
    assert (order.client_id, order.document) == ("key-1", {"qty": "1"})


def test_an_answer_about_another_order_is_no_answer() -> None:
    answer = FoundOrder(LookupFinding.FOUND, BrokerOrder("another", "b-2", "accepted"))
    settled = found(taken(), answer, CONFIG.declaration, POLICY, NOW + timedelta(seconds=99))
    assert settled.outcome == "unknown"


def test_an_open_request_holds_the_next_back_unless_the_broker_refuses_doubles() -> None:
    earlier = taken(open_since=NOW - timedelta(seconds=100))
    held = hold_back(CONFIG.declaration, earlier, POLICY, NOW)
    assert held is not None
    assert (held.outcome, held.fate) == ("unknown", "not_this")
    assert hold_back(CONFIG.declaration, taken(), POLICY, NOW) is None
    assert hold_back(Declaration(Promise.FOREVER), earlier, POLICY, NOW) is None
    window = Declaration(Promise.WINDOW, window_seconds=105, request_valid_seconds=10)
    assert hold_back(window, earlier, POLICY, NOW) is not None, "it would arrive after the window's end"
    wider = Declaration(Promise.WINDOW, window_seconds=112, request_valid_seconds=10)
    assert hold_back(wider, earlier, POLICY, NOW) is None


class Unasked:
    """A broker that nothing must be sent to."""

    declaration = Declaration(Promise.FOREVER)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def test_a_worker_that_stood_still_sends_nothing_after_the_orders_own_time() -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    late = taken(expires_at=long_ago, stamped_at=long_ago, open_since=long_ago)
    settled = await OrderSender(cast("Any", Unasked()), POLICY).deliver(late)
    assert (settled.outcome, settled.fate, settled.code) == ("dead", "not_this", "EXPIRED")
    in_time = taken(expires_at=NOW + timedelta(seconds=1))
    assert hold_back(CONFIG.declaration, in_time, POLICY, NOW) is None


def test_a_duplicate_of_a_lost_request_at_a_broker_that_shows_nothing_is_taken_at_its_word() -> None:
    config = HttpBrokerConfig(base_url="http://b", find_path=None, promise=Promise.FOREVER)
    assert config.declaration.lookup is LookupScope.NONE
    said = classified(config, Reply(409, {}, b""))
    first = answered(taken(), said, config.declaration, POLICY)
    assert (first.outcome, first.code) == ("unknown", Code.CONFLICT_PROCESSED)
    lost = taken(open_since=NOW - timedelta(seconds=5), last_error=Code.NETWORK_TIMEOUT)
    repeated = answered(lost, said, config.declaration, POLICY)
    assert (repeated.outcome, repeated.code) == ("sent", Code.CONFLICT_PROCESSED)


def test_secrets_come_from_the_environment_or_are_asked_for_by_name() -> None:
    assert with_secrets({"A": "Bearer ${TOKEN}"}, {"TOKEN": "s"}) == {"A": "Bearer s"}
    with pytest.raises(SettingsError, match="TOKEN"):
        with_secrets({"A": "${TOKEN}"}, {})
