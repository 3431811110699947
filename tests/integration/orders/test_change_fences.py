"""What the database decides about a change: who may settle it, and when it may be called refused."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.errors import InFlight, InvalidInput, Mismatch
from fencepost.testing import Clock
from fencepost_orders import _change_source as change_source
from fencepost_orders import _fill_source as fill_source
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import limits as account_limits
from fencepost_orders import operator_calls
from fencepost_orders._change_source import ChangeSettlement, TakenChange
from fencepost_orders._fill_source import FollowUp
from fencepost_orders.limits import AccountLimits
from tests.integration.orders.env import BROKER, RESULT, OrdersEnv

OPEN: dict[str, Any] = {**RESULT, "open": True}
CANCELLED: dict[str, Any] = {
    **RESULT,
    "status": "cancelled",
    "digest": "sha256:" + "c" * 64,
    "open": False,
}
REPLACEMENT: dict[str, Any] = {
    "broker_order_id": "brk-2",
    "status": "accepted",
    "fills": [],
    "digest": "sha256:" + "d" * 64,
    "open": True,
}


@pytest.fixture
def market(market: OrdersEnv) -> OrdersEnv:
    market.run(change_source.declare_abilities(BROKER, can_cancel=True, can_replace=True))
    return market


def open_order(market: OrdersEnv, key: str | None = None, **fields: Any) -> int:
    order_id = market.accepted(key, **fields)
    (taken,) = [one for one in market.take() if one.id == order_id]
    market.settle(taken, "sent", result=OPEN)
    return order_id


def replace(market: OrdersEnv, order_id: int, key: str = "r1", **changes: Any) -> int:
    wanted = changes or {"qty": "7"}
    return market.run(change_source.replace_order(order_id, key, wanted, "ann", "cheaper")).change_id


def cancel(market: OrdersEnv, order_id: int, key: str = "c1") -> str:
    return market.run(change_source.cancel(order_id, key, "ann", "not wanted"))


def take(market: OrdersEnv, owner: str = "w") -> list[TakenChange]:
    return market.run(change_source.take(BROKER, owner, 60, 10))


def take_one(market: OrdersEnv, owner: str = "w") -> TakenChange:
    (taken,) = take(market, owner)
    return taken


def settle(market: OrdersEnv, taken: TakenChange, outcome: Any, **how: Any) -> tuple[Any, Any]:
    (settled,) = market.run(
        change_source.settle(BROKER, "w", [ChangeSettlement(taken.id, taken.take, outcome, **how)])
    )
    return settled.state, settled.refusal


def change_of(market: OrdersEnv, order_id: int, number: int = 0) -> dict[str, Any]:
    changes: list[dict[str, Any]] = market.get(order_id)["changes"]
    return changes[number]


def test_a_worker_that_stood_still_cannot_settle_what_another_asked_about(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id = open_order(market)
    cancel(market, order_id)
    late = take_one(market, "late")
    assert (late.state, late.requests) == ("sending", 1)
    assert take(market) == []
    clock.advance(61)
    asked = take_one(market, "next")
    assert (asked.state, asked.requests) == ("unknown", 1), "it is asked about, and not sent again"
    assert settle(market, late, "done", fate="none", result=CANCELLED) == (None, "stale_attempt")
    assert settle(market, asked, "done", fate="none", result=CANCELLED) == ("done", None)
    assert settle(market, asked, "done", fate="none", result=CANCELLED) == (None, "already_finished")
    found = market.get(order_id)
    assert (found["status"], found["result"]["status"]) == ("sent", "cancelled")
    assert not found["result"]["is_followed"]
    assert change_of(market, order_id)["state"] == "done"


def lose_then_refuse(market: OrdersEnv, clock: Clock) -> tuple[int, Any]:
    """A request whose worker stood still and may send it yet, and another that the broker refused."""
    order_id = open_order(market)
    replace(market, order_id)
    take_one(market, "stands still")
    clock.advance(61)
    settle(market, take_one(market), "again", delay_seconds=0)
    again = take_one(market)
    assert (again.state, again.requests) == ("sending", 2)
    return order_id, settle(market, again, "refused", fate="not_this", code="BAD_REQUEST")


def test_a_change_is_refused_only_when_no_request_can_take_effect_any_more(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id, settled = lose_then_refuse(market, clock)
    assert settled == ("unknown", None)
    assert change_of(market, order_id)["open_since"] is not None
    # The end of the order is the proof.
    filled = {**CANCELLED, "status": "filled"}
    ended = settle(market, take_one(market), "refused", fate="none", code="TOO_LATE", result=filled)
    assert ended == ("refused", None)
    assert market.get(order_id)["result"]["status"] == "filled"


def test_without_the_look_at_earlier_requests_a_change_would_be_refused_that_may_take_effect(
    database: Database, market: OrdersEnv, clock: Clock
) -> None:
    """The planted bug."""
    with database.connect_admin() as admin:
        row = admin.execute("select pg_get_functiondef('fencepost.orders_change_settle'::regproc)").fetchone()
        assert row is not None
        wrong = str(row[0]).replace("v_outcome = 'refused' and v_open is not null", "false")
        assert wrong != row[0]
        admin.execute(wrong.encode())
    order_id, settled = lose_then_refuse(market, clock)
    assert settled == ("refused", None)
    # The order is open, and the request that was never accounted for may still replace it: no worker looks.
    assert market.get(order_id)["result"]["is_followed"]
    clock.advance(3600)
    assert take(market) == []


def test_a_refused_request_ends_the_change_when_it_was_the_only_one(market: OrdersEnv) -> None:
    order_id = open_order(market)
    replace(market, order_id)
    refused = settle(market, take_one(market), "refused", fate="not_this", code="BAD_REQUEST")
    assert refused == ("refused", None)
    assert market.get(order_id)["result"]["is_followed"]
    assert replace(market, order_id, "r2"), "another may be asked for"


def test_a_replacement_moves_the_order_and_refuses_older_words_about_it(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id = open_order(market)
    clock.advance(2)
    (follow,) = market.run(fill_source.take(BROKER, 60, 10))
    replace(market, order_id, qty="7")
    sent = take_one(market)
    settle(market, sent, "asking")
    done = settle(market, take_one(market), "done", fate="none", result=REPLACEMENT, replaced=CANCELLED)
    assert done == ("done", None)
    old = FollowUp(follow.id, follow.take, {**CANCELLED, "status": "replaced"}, over=True)
    (late,) = market.run(fill_source.settle(BROKER, "w", [old]))
    assert late.refusal == "stale_attempt"
    found = market.get(order_id)
    assert (found["broker_order_id"], found["terms"]["qty"]) == ("brk-2", "7")
    assert found["result"]["is_followed"]
    clock.advance(2)
    (next_one,) = market.run(fill_source.take(BROKER, 60, 10))
    assert (next_one.broker_order_id, next_one.idempotency_key) == ("brk-2", sent.client_id)
    assert next_one.request["qty"] == "7"
    replace(market, order_id, "r2", limit_price="140")
    assert take_one(market).request["qty"] == "7", "the next one begins with the terms of this one"


def test_a_cancel_takes_the_place_of_a_replacement_that_has_not_left(market: OrdersEnv) -> None:
    order_id = open_order(market)
    replace(market, order_id)
    assert cancel(market, order_id) == "requested"
    assert cancel(market, order_id) == "replay"
    with pytest.raises(Mismatch):
        cancel(market, order_id, "r1")
    with pytest.raises(InFlight):
        cancel(market, order_id, "c2")
    assert change_of(market, order_id)["state"] == "refused"
    assert take_one(market).kind == "cancel"
    with pytest.raises(InFlight):
        replace(market, order_id, "r2")


def test_a_cancel_that_meets_our_replacement_goes_on_with_it_and_nothing_is_replaced_again(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id = open_order(market)
    replace(market, order_id)
    sent = take_one(market)
    cancel(market, order_id)
    cancelling = take_one(market)
    assert settle(market, cancelling, "replaced", fate="none") == ("queued", None)
    assert settle(market, sent, "again") == ("unknown", None), "what is to be cancelled is not replaced"
    by_kind = {one.kind: one for one in take(market)}
    assert by_kind["cancel"].broker_order_id == "brk-1"
    assert settle(market, by_kind["replace"], "done", fate="none", result=REPLACEMENT) == ("done", None)
    assert settle(market, by_kind["cancel"], "replaced", fate="none") == ("queued", None)
    assert take_one(market).broker_order_id == "brk-2"


def test_a_cancel_is_not_done_while_the_order_may_have_been_replaced(market: OrdersEnv, clock: Clock) -> None:
    """Some brokers show a replaced order as cancelled; its replacement is open."""
    order_id = open_order(market)
    replace(market, order_id)
    replacing = take_one(market)
    cancel(market, order_id)
    cancelling = take_one(market)
    assert settle(market, cancelling, "done", fate="none", result=CANCELLED) == ("unknown", None)
    assert market.get(order_id)["result"]["is_followed"]
    clock.advance(1)
    cancelling = take_one(market)
    assert settle(market, replacing, "done", fate="none", result=REPLACEMENT) == ("done", None)
    # It was asked about the order before it.
    assert settle(market, cancelling, "done", fate="none", result=CANCELLED) == ("unknown", None)
    clock.advance(1)
    last = take_one(market)
    assert last.broker_order_id == "brk-2"
    over = {**CANCELLED, "broker_order_id": "brk-2"}
    assert settle(market, last, "done", fate="none", result=over) == ("done", None)


def test_a_word_about_the_order_before_its_replacement_is_refused_also_when_its_row_was_gone(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id = open_order(market)
    clock.advance(2)
    (stalled,) = market.run(fill_source.take(BROKER, 60, 10))
    replace(market, order_id)
    replacing = take_one(market)
    clock.advance(61)
    (follow,) = market.run(fill_source.take(BROKER, 60, 10))
    gone = FollowUp(follow.id, follow.take, {**CANCELLED, "status": "replaced"}, over=True)
    market.run(fill_source.settle(BROKER, "w", [gone]))
    asked = take_one(market)
    assert asked.take > replacing.take
    settle(market, asked, "done", fate="none", result=REPLACEMENT)
    clock.advance(2)
    (next_one,) = market.run(fill_source.take(BROKER, 60, 10))
    assert next_one.take != stalled.take
    (late,) = market.run(fill_source.settle(BROKER, "w", [FollowUp(stalled.id, stalled.take, OPEN)]))
    assert late.refusal == "stale_attempt"
    assert market.get(order_id)["broker_order_id"] == "brk-2"


def test_a_cancel_of_an_order_that_another_party_replaced_is_refused(market: OrdersEnv) -> None:
    order_id = open_order(market)
    cancel(market, order_id)
    replaced = {**CANCELLED, "status": "replaced"}
    settled = settle(market, take_one(market), "replaced", fate="none", code="REPLACED", result=replaced)
    assert settled == ("refused", None)
    assert market.get(order_id)["result"]["status"] == "replaced"


@pytest.mark.parametrize("account", [None, "main"])
def test_the_kill_switch_holds_replacements_and_lets_cancels_pass(
    market: OrdersEnv, clock: Clock, account: str | None
) -> None:
    replaced, cancelled = open_order(market, symbol="A"), open_order(market, symbol="B")
    replace(market, replaced)
    cancel(market, cancelled)
    market.run(operator_calls.halt(BROKER, account, "ann", "stop"))
    assert [one.order_id for one in take(market)] == [cancelled]
    market.run(operator_calls.resume(BROKER, account, "ann", "go"))
    clock.advance(2)
    assert [one.order_id for one in take(market)] == [replaced]


def test_a_change_of_an_order_that_never_came_to_the_broker_ends_with_it(
    market: OrdersEnv, clock: Clock
) -> None:
    in_flight = market.accepted()
    taken = market.take_one()
    assert cancel(market, in_flight) == "requested"
    assert take(market) == [], "the broker does not have it yet"
    market.settle(taken, "failed", fate="not_this", delay_seconds=60)
    assert market.run(change_source.sweep(10)) == 1
    assert market.status(in_flight) == "dead"
    assert change_of(market, in_flight)["state"] == "done"
    assert market.steps(in_flight)[-2] == ("failed", "dead", "CANCELLED")


def test_the_terms_of_a_replacement_are_held_to_the_limits_and_only_what_they_add_counts(
    market: OrdersEnv,
) -> None:
    limits = AccountLimits(qty_max=Decimal(10), day_notional_max=Decimal(1100))
    market.run(account_limits.set_limits(BROKER, "main", limits, "ann", "rules"))
    order_id = open_order(market, qty="8", limit_price="100")
    with pytest.raises(InvalidInput, match="qty_max"):
        replace(market, order_id, "a", qty="11")
    with pytest.raises(InvalidInput, match="day_notional_max"):
        replace(market, order_id, "b", qty="10", limit_price="111")
    replace(market, order_id, "c", qty="10")
    (row,) = market.run(account_limits.listing(BROKER))
    assert row["today"] == [{"account": "main", "orders": 1, "notional": 1000}]


def test_after_a_restore_every_change_is_asked_about_before_it_is_sent(market: OrdersEnv) -> None:
    order_id = open_order(market)
    replace(market, order_id)
    market.run(operator_calls.recover(BROKER, "ann"))
    assert take_one(market).state == "unknown"


def test_an_order_with_an_open_change_is_not_pruned_and_its_changes_go_with_it(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id = open_order(market)
    cancel(market, order_id)
    sent = take_one(market)
    clock.advance(2)
    (follow,) = market.run(fill_source.take(BROKER, 60, 10))
    market.run(fill_source.settle(BROKER, "w", [FollowUp(follow.id, follow.take, CANCELLED, over=True)]))
    clock.advance(86_400)
    assert market.run(order_calls.prune(60, 10)) == 0
    settle(market, take_one(market), "done", fate="none", result=CANCELLED)
    assert market.run(order_calls.prune(60, 10)) == 1
    assert market.rows("select 1 from fencepost.orders_changes") == []
    assert sent.order_id == order_id


def test_a_change_while_a_broker_pauses_is_spent_from_its_throttle(market: OrdersEnv, clock: Clock) -> None:
    ids = [open_order(market, symbol=f"S{number}") for number in range(4)]
    for order_id in ids:
        cancel(market, order_id)
    market.declare(rate_per_second=0.001, burst=3)
    assert len(take(market)) == 3


WRONG: list[tuple[str, Callable[[OrdersEnv], Any]]] = [
    ("outcomes", lambda m: settle(m, take_one(m), "maybe")),
    ("results", lambda m: settle(m, take_one(m), "done")),
    ("fates", lambda m: settle(m, take_one(m), "asking", fate="perhaps")),
    ("key", lambda m: m.run(change_source.cancel(1, "", "ann", "why"))),
    ("reason", lambda m: m.run(change_source.cancel(1, "k", "ann", ""))),
]


@pytest.mark.parametrize(("field", "call"), WRONG, ids=[field for field, _ in WRONG])
def test_wrong_arguments_are_named(market: OrdersEnv, field: str, call: Callable[[OrdersEnv], Any]) -> None:
    cancel(market, open_order(market))
    with pytest.raises(InvalidInput) as caught:
        call(market)
    assert caught.value.field == field
