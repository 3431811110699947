"""What counts as an acceptance: the broker showed our key or gave its own id. Everything else is asked
about."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from fencepost.backoff import Backoff
from fencepost.errors import SettingsError
from fencepost.http_client import Reply, Request
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._oanda import OandaBroker
from fencepost_orders._order_source import OrderSettlement, TakenOrder
from fencepost_orders._outcome import Policy, answered, found, outgoing, with_answer
from fencepost_orders.broker import (
    AnswerVerdict,
    BrokerAdapter,
    BrokerOrder,
    Code,
    Declaration,
    FoundOrder,
    LookupFinding,
    LookupScope,
    Meaning,
    Promise,
)
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig, order_of
from tests.unit.fuzz.test_broker_answers import Said

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
POLICY = Policy(backoff=Backoff(jitter=0))
TAKEN = TakenOrder(
    *(5, 3, "main/USDJPY", {"qty": "1"}, "key-1", "main", None, 0, 1, NOW, None, NOW, NOW, NOW, None)
)
PLAIN = HttpBrokerConfig(base_url="http://broker", promise=Promise.NOTHING)


def plain(**described: Any) -> BrokerAdapter:
    config = HttpBrokerConfig.of({"base_url": "http://broker", "promise": "nothing", **described})
    return HttpBroker(config, client=Said(Reply(200)))


def alpaca() -> BrokerAdapter:
    return AlpacaBroker("key", "secret", client=Said(Reply(200)))


def oanda() -> BrokerAdapter:
    return OandaBroker("token", client=Said(Reply(200)))


def settle(adapter: BrokerAdapter, status: int, body: object, taken: TakenOrder = TAKEN) -> OrderSettlement:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = Reply(status, {}, raw)
    verdict = with_answer(adapter.classify(outgoing(taken), reply), reply)
    return answered(taken, verdict, adapter.declaration, POLICY)


KEYS: list[Any] = [None, "", "key-1", "another"]
IDS: list[Any] = [None, "", 0, "brk-1", 17, False, {}]
STATUSES: list[Any] = [None, "accepted", "ACCEPTED", "error", "Error", "queued-for-review", "Rejected", 3]


@pytest.mark.parametrize(("key", "order_id"), list(product(KEYS, IDS)))
def test_a_2xx_is_an_acceptance_when_it_shows_our_key_or_an_id_and_nothing_else_is(
    key: Any, order_id: Any
) -> None:
    adapter = plain()
    for status in STATUSES:
        body = {"idempotency_key": key, "broker_order_id": order_id, "status": status, "message": "so"}
        settled = settle(adapter, 200, body)
        word = status.lower() if isinstance(status, str) else None
        has_id = order_id in ("brk-1", 17)
        shows = key == "key-1" or (not key and has_id)
        if word is None:
            # Without a status both must be there: an error may carry an id that is not an order's.
            shows = key == "key-1" and has_id
        if word == "rejected":
            expected = "unknown" if key == "another" else "dead"
        else:
            expected = "sent" if shows and word != "error" else "unknown"
        assert settled.outcome == expected, status
        if expected == "sent":
            assert settled.result is not None
            assert settled.result["open"] is True, "no status that is not declared is an end"
        if expected == "unknown":
            assert settled.fate == "unproved", status


def test_an_error_in_a_200_is_asked_about() -> None:
    settled = settle(plain(), 200, {"status": "error", "message": "insufficient funds"})
    assert (settled.outcome, settled.code) == ("unknown", Code.UNKNOWN)
    assert settled.detail is not None
    assert "insufficient funds" in settled.detail


ALPACAS = {"id": "904837e3", "client_order_id": "key-1", "status": "new"}
CREATED = {"id": "17", "clientExtensions": {"id": "key-1"}, "time": "2030-01-01T12:00:00Z"}


@pytest.mark.parametrize(
    ("adapter", "status", "body", "outcome"),
    [
        (alpaca(), 200, ALPACAS, "sent"),
        (alpaca(), 200, {**ALPACAS, "client_order_id": None}, "sent"),
        (alpaca(), 200, {**ALPACAS, "id": None}, "sent"),
        (alpaca(), 200, {**ALPACAS, "id": None, "client_order_id": None}, "unknown"),
        (alpaca(), 200, {**ALPACAS, "id": "", "client_order_id": ""}, "unknown"),
        (alpaca(), 200, {**ALPACAS, "client_order_id": "another"}, "unknown"),
        (alpaca(), 200, {**ALPACAS, "status": "REJECTED"}, "dead"),
        (alpaca(), 200, {"status": "error", "message": "insufficient funds"}, "unknown"),
        (alpaca(), 200, {"code": 40310000, "message": "insufficient buying power"}, "unknown"),
        (oanda(), 201, {"orderCreateTransaction": CREATED}, "sent"),
        (oanda(), 201, {"orderCreateTransaction": {**CREATED, "id": None}}, "sent"),
        (oanda(), 201, {"orderCreateTransaction": {**CREATED, "clientExtensions": None}}, "sent"),
        (oanda(), 201, {"orderCreateTransaction": {"id": None}}, "unknown"),
        (oanda(), 201, {"orderCreateTransaction": {**CREATED, "clientExtensions": {"id": "x"}}}, "unknown"),
        (oanda(), 201, {"errorMessage": "Insufficient margin"}, "unknown"),
        (oanda(), 200, {"orderCreateTransaction": CREATED}, "unknown"),
    ],
)
def test_what_the_shipped_adapters_take_for_an_acceptance(
    adapter: BrokerAdapter, status: int, body: object, outcome: str
) -> None:
    assert settle(adapter, status, body).outcome == outcome


@pytest.mark.parametrize(
    ("order", "outcome"),
    [
        (BrokerOrder("key-1", None, "odd"), "sent"),
        (BrokerOrder(None, "brk-1", "odd"), "sent"),
        (BrokerOrder(None, None, "accepted"), "unknown"),
        (BrokerOrder("", "", "accepted"), "unknown"),
        (BrokerOrder("another", "brk-1", "accepted"), "unknown"),
    ],
)
def test_an_adapter_of_your_own_is_held_to_the_same_rule(order: BrokerOrder, outcome: str) -> None:
    declared = Declaration(Promise.FOREVER)
    assert answered(TAKEN, AnswerVerdict(Meaning.ACCEPTED, order=order), declared, POLICY).outcome == outcome
    shown = found(TAKEN, FoundOrder(LookupFinding.FOUND, order), Declaration(Promise.NOTHING), POLICY, NOW)
    assert shown.outcome == outcome


@pytest.mark.parametrize(
    ("status", "live", "is_open"),
    [
        ("accepted", True, True),
        ("Partially_Filled", True, True),
        ("filled", True, False),
        ("FILLED", True, False),
        (" Cancelled ", True, False),
        ("canceled", True, False),
        ("expired", True, False),
        ("rejected", False, False),
        ("REJECTED", False, False),
        ("pending_review", True, True),
    ],
)
def test_statuses_are_compared_without_case_and_an_undeclared_one_is_open(
    status: str, live: bool, is_open: bool
) -> None:
    order = order_of(PLAIN, {"status": status, "broker_order_id": "b-1"})
    assert order is not None
    assert (order.live, order.is_open, order.status) == (live, is_open, status)


def test_a_description_declares_its_own_words_in_any_case() -> None:
    config = HttpBrokerConfig.of(
        {
            "base_url": "http://b",
            "promise": "nothing",
            "rejected_statuses": ["DENIED", "Failed"],
            "open_statuses": ["Working", "done"],
            "final_statuses": ["Complete", "DONE"],
        }
    )

    def read(status: str) -> tuple[bool, bool] | None:
        order = order_of(config, {"status": status, "broker_order_id": "b"})
        return None if order is None else (order.live, order.is_open)

    assert read("denied") == (False, False)
    assert read("failed") == (False, False), "what is declared is not an error"
    assert read("working") == (True, True)
    assert read("done") == (True, True), "open is said by name, so it is open"
    assert read("complete") == (True, False)
    assert read("rejected") == (True, True), "not declared, so open"
    assert read("ERROR") is None
    with pytest.raises(SettingsError, match=r"open_statuses.*denied"):
        HttpBrokerConfig.of(
            {
                "base_url": "http://b",
                "promise": "nothing",
                "rejected_statuses": ["denied"],
                "open_statuses": ["Denied"],
            }
        )


@pytest.mark.parametrize(
    ("state", "is_open"),
    [("PENDING", True), ("pending", True), ("FILLED", False), ("cancelled", False), ("NEW_STATE", True)],
)
async def test_a_state_that_oanda_does_not_document_is_open(state: str, is_open: bool) -> None:
    body = {"order": {"id": "17", "state": state, "clientExtensions": {"id": "key-1"}}}
    adapter = OandaBroker("token", client=Said(Reply(200, {}, json.dumps(body).encode())))
    answer = await adapter.find_order(outgoing(TAKEN))
    assert answer.order is not None
    assert answer.order.is_open is is_open


# A refusal that may mean "already there".
CONFLICT = {"error": "market closed"}
SHOWN = {"idempotency_key": "key-1", "broker_order_id": "brk-1", "status": "accepted"}
ECHOED = {**SHOWN, "broker_order_id": ""}
PROMISES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "while_open": {},
    "window": {"window_seconds": 60, "request_valid_seconds": 5},
    "forever": {},
}
FIRST = TAKEN
REPEATED = replace(TAKEN, open_since=NOW - timedelta(seconds=10), last_error=Code.NETWORK_TIMEOUT)
CONFLICTED = replace(REPEATED, last_error=Code.CONFLICT_PROCESSED)
LONG_AGO = replace(REPEATED, open_since=NOW - timedelta(seconds=600))


@pytest.mark.parametrize("lookup", ["all", "open", None])
@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize(
    ("taken", "body"),
    list(
        product((FIRST, REPEATED, CONFLICTED, LONG_AGO), (CONFLICT, SHOWN, {**SHOWN, "broker_order_id": ""}))
    ),
)
def test_a_409_is_sent_only_when_it_shows_our_order_or_answers_a_repeat_of_a_lost_request(
    lookup: str | None, promise: str, taken: TakenOrder, body: dict[str, str]
) -> None:
    seen = {"find_path": None} if lookup is None else {"lookup": lookup}
    settled = settle(plain(promise=promise, **PROMISES[promise], **seen), 409, body, taken)
    is_unique = promise == "forever" or (promise == "window" and taken is not LONG_AGO)
    is_repeat = taken is REPEATED or taken is LONG_AGO
    shows = body is SHOWN
    cannot_look = lookup is None
    expected = "sent" if shows or (cannot_look and is_unique and is_repeat) else "unknown"
    assert (settled.outcome, settled.code) == (expected, Code.CONFLICT_PROCESSED)
    assert settled.detail is not None
    assert settled.detail.startswith("409: ")


def test_the_first_409_at_a_broker_that_shows_and_promises_nothing_waits_for_a_person() -> None:
    blind = plain(find_path=None)
    first = settle(blind, 409, CONFLICT)
    assert first.outcome == "unknown"
    asked = found(TAKEN, FoundOrder(LookupFinding.NO_ANSWER), blind.declaration, POLICY, NOW)
    assert asked.outcome == "parked"
    assert blind.declaration.lookup is LookupScope.NONE


@pytest.mark.parametrize("status", [300, 400, 401, 403, 404, 408, 409, 422, 429, 500, 503])
@pytest.mark.parametrize("adapter", [plain(), alpaca(), oanda()], ids=["http", "alpaca", "oanda"])
def test_the_body_of_an_answer_that_is_no_success_is_kept(adapter: BrokerAdapter, status: int) -> None:
    settled = settle(adapter, status, {"reason": "market closed", "password": "hunter2"})
    assert settled.detail is not None
    assert f"{status}: " in settled.detail
    assert "market closed" in settled.detail
    assert "hunter2" not in settled.detail


def test_what_is_kept_of_a_body_has_a_bound_and_says_that_it_was_cut() -> None:
    settled = settle(plain(), 400, b"x" * 100_000)
    assert settled.detail is not None
    assert len(settled.detail) <= 1000
    assert settled.detail.endswith("(100000 bytes in all)")
    assert len(settled.detail) > 800


def test_a_secret_that_the_broker_repeats_is_not_kept() -> None:
    asked = Request("POST", "http://b/orders", {"Authorization": "Bearer very-secret-token"})
    reply = Reply(400, {}, b"no such token: very-secret-token", asked)
    verdict = with_answer(AnswerVerdict(Meaning.REFUSED), reply)
    assert verdict.detail is not None
    assert "very-secret-token" not in verdict.detail


def test_an_adapter_that_says_nothing_about_a_refusal_has_its_body_kept() -> None:
    reply = Reply(418, {}, b"short and stout")
    assert with_answer(AnswerVerdict(Meaning.REFUSED), reply).detail == "418: short and stout"
    assert with_answer(AnswerVerdict(Meaning.REFUSED, detail="mine"), reply).detail == "mine"
    assert with_answer(AnswerVerdict(Meaning.ACCEPTED), Reply(200, {}, b"fine")).detail is None


@pytest.mark.parametrize(("status", "finding"), [(404, "absent"), (429, "limited"), (403, "no_answer")])
@pytest.mark.parametrize("kind", ["http", "alpaca", "oanda"])
async def test_the_body_of_an_answer_to_a_question_is_kept(status: int, finding: str, kind: str) -> None:
    client = Said(Reply(status, {}, b'{"message": "who asks"}'))
    made: dict[str, BrokerAdapter] = {
        "http": HttpBroker(PLAIN, client=client),
        "alpaca": AlpacaBroker("key", "secret", client=client),
        "oanda": OandaBroker("token", client=client),
    }
    adapter = made[kind]
    order = replace(outgoing(TAKEN), broker_order_id="7")
    answer = await adapter.find_order(order)
    assert answer.finding == finding
    assert answer.detail == f'{status}: {{"message": "who asks"}}'
    if status == 403:
        assert answer.code is Code.UNAUTHORIZED
