"""`fencepost orders`, as a person and as a script call it."""

from collections.abc import Callable

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost_orders import _change_source as change_source
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from tests.integration.cli.conftest import Answer
from tests.integration.orders.env import RESULT, OrdersEnv

Fencepost = Callable[..., Answer]


@pytest.fixture
def fencepost(subcommand: Callable[[str], Fencepost]) -> Fencepost:
    """`fencepost("list")` is `fencepost orders list`."""
    return subcommand("orders")


def test_a_parked_order_is_listed_shown_with_its_history_and_resolved(
    fencepost: Fencepost, market: OrdersEnv
) -> None:
    order_id = market.accepted("parked-1", trace_id="trace-9")
    market.settle(market.take_one(), "parked", code="NETWORK_TIMEOUT", detail="no answer")

    assert [row["id"] for row in fencepost("list", "--status", "parked", "--json").json] == [order_id]
    assert "BUY 10000 USDJPY @ 145.001" in fencepost("list").out
    shown = fencepost("show", str(order_id))
    assert "sending -> parked  NETWORK_TIMEOUT no answer" in shown.out
    assert "trace-9" in shown.out

    done = fencepost("resolve", str(order_id), "sent", "--broker-order-id", "b-9", "--reason", "seen there")
    assert done.code == ExitCode.OK
    shown = fencepost("show", str(order_id), "--json").json
    assert (shown["status"], shown["broker_order_id"]) == ("sent", "b-9")
    assert shown["history"][-1]["detail"] == "seen there"


def test_a_decision_about_another_state_is_refused(fencepost: Fencepost, market: OrdersEnv) -> None:
    order_id = market.accepted()
    refused = fencepost("resolve", str(order_id), "dead", "--reason", "why not")
    assert refused.code == ExitCode.PROBLEM
    assert market.status(order_id) == "queued"


def test_a_resend_makes_a_new_order_and_asks_for_a_reason(fencepost: Fencepost, market: OrdersEnv) -> None:
    order_id = market.accepted()
    market.settle(market.take_one(), "dead", fate="not_this", code="BAD_REQUEST")

    assert fencepost("resend", str(order_id)).code != ExitCode.OK, "no reason was given"
    done = fencepost("resend", str(order_id), "--reason", "the account is funded now", "--actor", "ann")

    assert done.code == ExitCode.OK
    new = market.take_one()
    assert f"resent as {new.id}" in done.out
    assert market.get(new.id)["resend_of"] == order_id
    assert fencepost("resend", str(order_id), "--reason", "again").code == ExitCode.PROBLEM


def test_the_kill_switch_is_shown(fencepost: Fencepost, market: OrdersEnv) -> None:
    market.accepted()
    assert fencepost("halt", "acme", "--reason", "wrong prices").code == ExitCode.OK
    assert "HALTED" in fencepost("brokers").out
    assert market.take() == []
    assert fencepost("halt", "acme", "--account", "main", "--reason", "also this").code == ExitCode.OK
    fencepost("resume", "acme", "--reason", "right prices")
    assert market.take() == []
    fencepost("resume", "acme", "--account", "main", "--reason", "right prices")
    assert len(market.take()) == 1


def test_a_queued_order_is_cancelled_and_an_unknown_id_is_not_found(
    fencepost: Fencepost, market: OrdersEnv
) -> None:
    order_id = market.accepted()
    assert fencepost("cancel", str(order_id), "--reason", "too late").code == ExitCode.OK
    assert market.get(order_id)["last_error"] == "CANCELLED"
    assert fencepost("show", "999999").code == ExitCode.NOT_FOUND
    assert fencepost("cancel", "999999", "--reason", "x").code == ExitCode.PROBLEM


def test_every_decision_has_an_answer_for_machines(fencepost: Fencepost, market: OrdersEnv) -> None:
    why = ("--reason", "a script says so", "--json")
    order_id = market.accepted("first")
    market.settle(market.take_one(), "dead", fate="not_this", code="BAD_REQUEST")
    resent = fencepost("resend", str(order_id), *why).json
    assert resent["id"] == order_id
    assert market.get(resent["resent_as"])["resend_of"] == order_id

    market.settle(market.take_one(), "parked", code="NETWORK_TIMEOUT")
    resolved = fencepost("resolve", str(resent["resent_as"]), "dead", *why).json
    assert resolved == {"id": resent["resent_as"], "status": "dead"}

    queued = market.accepted("second")
    assert fencepost("cancel", str(queued), *why).json == {"id": queued, "status": "dead"}
    assert market.status(queued) == "dead"

    assert fencepost("halt", "acme", *why).json == {"broker": "acme", "account": None, "halted": True}
    assert fencepost("resume", "acme", "--account", "main", *why).json == {
        "broker": "acme",
        "account": "main",
        "halted": False,
    }


@pytest.mark.parametrize("verb", ["halt", "resume"])
def test_the_kill_switch_refuses_names_that_no_caller_knows(
    fencepost: Fencepost, market: OrdersEnv, verb: str
) -> None:
    market.accepted()
    market.take_one()
    wrong = fencepost(verb, "amce", "--reason", "stop")
    assert (wrong.code, "Unknown broker 'amce'. Known: acme." in wrong.err) == (ExitCode.NOT_FOUND, True)
    slip = fencepost(verb, "acme", "--account", "mian", "--reason", "stop")
    assert (slip.code, "Unknown account 'mian'. Known: main." in slip.err) == (ExitCode.NOT_FOUND, True)


def test_a_pause_is_shown_and_resuming_lifts_it(fencepost: Fencepost, market: OrdersEnv) -> None:
    market.accepted()
    market.settle(
        market.take_one(),
        "queued",
        fate="not_this",
        code="RATE_LIMITED",
        health="limited",
        delay_seconds=200,
    )
    assert "sending paused until 2030-01-01T12:03:20" in fencepost("brokers").out
    assert "(Retry-After)" in fencepost("brokers").out
    fencepost("resume", "acme", "--reason", "they say it is fine")
    assert "paused" not in fencepost("brokers").out


def test_refused_credentials_are_shown_with_whether_the_broker_answers(
    fencepost: Fencepost, market: OrdersEnv
) -> None:
    market.run(operator_calls.declare_broker("acme", operator_calls.BrokerLimits(), can_ask=True))
    order_id = market.accepted()
    market.settle(
        market.take_one(),
        "dead",
        fate="not_this",
        code="UNAUTHORIZED",
        detail='401: {"message": "expired"}',
        health="unauthorized",
    )
    assert "HALTED by fencepost: UNAUTHORIZED" in fencepost("brokers").out
    assert "has not answered a query since" in fencepost("brokers").out
    market.run(order_source.settle_probe("acme", "ok"))
    assert "answers questions since" in fencepost("brokers").out
    assert 'last_answer:      401: {"message": "expired"}' in fencepost("show", str(order_id)).out


def test_limits_of_an_account_are_set_shown_and_removed(fencepost: Fencepost, market: OrdersEnv) -> None:
    why = ("--reason", "desk rules", "--actor", "ann")
    done = fencepost("limit", "acme", "main", "--qty-max", "500", "--day-zone", "Asia/Tokyo", *why)
    assert done.code == ExitCode.OK
    assert "qty_max 500" in fencepost("limits").out
    assert "by ann" in fencepost("limits", "acme").out
    assert market.accept(qty="501").outcome == "over_limit"
    assert fencepost("limit", "acme", "main", "--qty-max", "many", *why).code != ExitCode.OK
    assert fencepost("limit", "acne", "main", "--qty-max", "1", *why).code == ExitCode.NOT_FOUND
    assert fencepost("limit", "acme", "main", *why).code == ExitCode.OK
    assert fencepost("limits", "--json").json == []


def test_an_order_is_cancelled_and_replaced_at_the_broker(fencepost: Fencepost, market: OrdersEnv) -> None:
    market.run(change_source.declare_abilities("acme", can_cancel=True, can_replace=True))
    first, second = market.accepted(symbol="A"), market.accepted(symbol="B")
    for taken in market.take():
        market.settle(taken, "sent", result={**RESULT, "open": True})
    why = ("--reason", "cheaper", "--actor", "ann")
    refused = fencepost("replace", str(first), "--qty", "many", *why)
    assert refused.code != ExitCode.OK
    assert fencepost("replace", str(first), "--limit-price", "144.50", *why).code == ExitCode.OK
    assert "replace limit_price 144.5 queued" in fencepost("show", str(first)).out
    assert "asked to cancel" in fencepost("cancel", str(second), "--at-broker", *why).out
    halted = fencepost("halt", "acme", "--cancel-open", *why, "--json").json
    assert halted["cancelled"] == {"dead": 0, "requested": 1, "left_open": 0}
    assert {change.kind for change in market.run(change_source.take("acme", "w", 60, 10))} == {"cancel"}
