"""Takes are fenced, keys keep their order, and an order is dead only when nothing is open about it."""

from collections.abc import Callable

import pytest

from fencepost.errors import AlreadyFinished, InFlight, Mismatch, NotFound
from fencepost.errors import Duplicate as DuplicateRefusal
from fencepost.testing import Clock
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from tests.integration.orders.env import BROKER, RESULT, OrdersEnv, request


def test_a_take_stamps_the_request_and_leaves_it_open(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted()

    taken = market.take_one()

    assert taken.stamped_at == taken.open_since == clock.now()
    assert market.get(order_id)["status"] == "sending"
    assert market.steps(order_id)[-1] == ("queued", "sending", None)


def test_a_sent_order_ends_with_its_broker_id(market: OrdersEnv) -> None:
    order_id = market.accepted()

    assert market.settle(market.take_one(), "sent").state == "sent"

    found = market.get(order_id)
    assert (found["status"], found["broker_order_id"], found["open_since"]) == ("sent", "brk-1", None)
    assert market.steps(order_id)[-1] == ("sending", "sent", None)


def test_a_late_settlement_meets_another_take_and_is_refused(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted()
    late = market.take_one("slow")
    clock.advance(61)
    assert market.run(order_source.expire_takes(BROKER, 10)) == [order_id]

    assert market.settle(late, "sent", "slow").refusal == "stale_attempt"
    assert market.status(order_id) == "unknown"


def test_a_settlement_after_the_end_says_so(market: OrdersEnv) -> None:
    market.accepted()
    taken = market.take_one()
    market.settle(taken, "sent")

    assert market.settle(taken, "sent").refusal == "already_finished"
    assert market.settle(taken, "failed").refusal == "already_finished"


def test_a_silent_sender_leaves_an_unknown_order_that_is_not_sent(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted()
    market.take_one()
    clock.advance(61)
    market.run(order_source.expire_takes(BROKER, 10))

    assert market.take() == []
    (asked,) = market.ask()
    assert asked.id == order_id
    assert asked.open_since is not None
    assert market.steps(order_id)[-1] == ("sending", "unknown", "UNKNOWN")


def test_a_refusal_of_a_first_request_is_dead(market: OrdersEnv) -> None:
    order_id = market.accepted()

    settled = market.settle(market.take_one(), "dead", fate="not_this", code="BAD_REQUEST")

    assert settled.state == "dead"
    assert market.get(order_id)["last_error"] == "BAD_REQUEST"


def test_a_refusal_behind_an_open_request_is_unknown_and_not_dead(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted()
    market.settle(market.take_one(), "unknown", code="BROKER_5XX")
    clock.advance(1)
    (asked,) = market.ask()
    market.settle(asked, "queued", "asker-1")
    again = market.take_one()
    assert again.open_since is not None
    assert again.open_since < again.stamped_at

    settled = market.settle(again, "dead", fate="not_this", code="BAD_REQUEST")

    assert settled.state == "unknown", "the first request may live at the broker"
    assert market.status(order_id) == "unknown"


def test_with_the_proof_that_none_arrived_it_is_dead(market: OrdersEnv) -> None:
    order_id = market.accepted()
    market.settle(market.take_one(), "unknown")
    (asked,) = market.ask()

    assert market.settle(asked, "dead", "asker-1", fate="none", code="EXPIRED").state == "dead"
    assert market.get(order_id)["open_since"] is None


def test_a_request_that_did_not_leave_is_open_no_more(market: OrdersEnv) -> None:
    order_id = market.accepted()

    market.settle(market.take_one(), "failed", fate="not_this", code="NETWORK_TIMEOUT", delay_seconds=2)

    found = market.get(order_id)
    assert (found["status"], found["open_since"], found["last_error"]) == ("failed", None, "NETWORK_TIMEOUT")


def test_retries_are_counted_and_a_forgiven_one_is_not(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted()
    market.settle(market.take_one(), "failed", fate="not_this", delay_seconds=2)
    assert market.take() == []
    clock.advance(2)
    assert market.take_one().retry_count == 1
    (taken,) = market.rows("select id, take from fencepost.outbox_messages")
    again = order_source.OrderSettlement(
        taken["id"], taken["take"], "queued", fate="not_this", code="RATE_LIMITED"
    )
    market.run(order_source.settle(BROKER, "worker-1", [again]))

    assert market.get(order_id)["retry_count"] == 0
    assert market.take_one().retry_count == 1


@pytest.mark.parametrize("held", ["unknown", "parked"])
def test_an_unsure_head_holds_its_own_key_only(market: OrdersEnv, held: order_source.Outcome) -> None:
    head = market.accepted(symbol="USDJPY")
    market.settle(market.take_one(), held)
    behind = market.accepted(symbol="USDJPY")
    other = market.accepted(symbol="EURUSD")

    assert [taken.id for taken in market.take()] == [other]

    market.run(operator_calls.resolve(head, held, "dead", "ann", "not at the broker"))
    assert [taken.id for taken in market.take()] == [behind]


def test_a_definitive_refusal_frees_its_key(market: OrdersEnv) -> None:
    market.accepted(symbol="USDJPY")
    behind = market.accepted(symbol="USDJPY")
    market.settle(market.take_one(), "dead", fate="not_this", code="BAD_REQUEST")

    assert [taken.id for taken in market.take()] == [behind]


def test_a_sent_head_frees_its_key_in_a_batch(market: OrdersEnv) -> None:
    heads = [market.accepted(symbol=f"S{number}") for number in range(5)]
    tails = [market.accepted(symbol=f"S{number}") for number in range(5)]
    taken = market.take()
    assert [one.id for one in taken] == heads

    settled = market.run(
        order_source.settle(
            BROKER,
            "worker-1",
            [
                order_source.OrderSettlement(one.id, one.take, "sent", result={"digest": "sha256:x"})
                for one in taken
            ],
        )
    )

    assert {answer.state for answer in settled} == {"sent"}
    assert [one.id for one in market.take()] == tails


def test_an_order_that_is_being_accepted_while_its_head_is_settled_is_sent_next(
    market: OrdersEnv, connect: Callable[[], OrdersEnv]
) -> None:
    market.accepted("head")
    head, other = market.take_one(), connect()
    with other.connection.transaction():
        behind = other.accepted("behind")
        assert market.settle(head, "sent").refusal is None
        assert market.take() == [], "it is not known yet whether it will be there"
    assert [taken.id for taken in market.take()] == [behind]


def test_an_order_is_settled_by_its_own_broker_only(market: OrdersEnv) -> None:
    market.declare("other")
    market.accepted()
    taken = market.take_one()
    sent = order_source.OrderSettlement(taken.id, taken.take, "sent", result=RESULT)
    (answer,) = market.run(order_source.settle("other", "worker-1", [sent]))
    assert answer.refusal == "not_found"
    assert market.status(taken.id) == "sending"


def test_only_one_of_two_workers_gets_an_order(market: OrdersEnv, connect: Callable[[], OrdersEnv]) -> None:
    ids = [market.accepted(symbol=f"S{number}") for number in range(20)]
    other = connect()

    mine, theirs = market.take("mine", limit=15), other.take("theirs", limit=15)

    assert sorted(one.id for one in (*mine, *theirs)) == ids


def test_a_queued_order_can_be_cancelled_and_is_never_sent(market: OrdersEnv) -> None:
    order_id = market.accepted()

    market.run(operator_calls.cancel(order_id, "ann", "changed my mind"))

    found = market.get(order_id)
    assert (found["status"], found["last_error"], found["retry_count"]) == ("dead", "CANCELLED", 0)
    assert market.take() == []
    with pytest.raises(AlreadyFinished):
        market.run(operator_calls.cancel(order_id, "ann", "again"))


def test_an_order_that_is_being_sent_cannot_be_cancelled_here(market: OrdersEnv) -> None:
    order_id = market.accepted()
    taken = market.take_one()
    with pytest.raises(InFlight):
        market.run(operator_calls.cancel(order_id, "ann", "stop"))
    market.settle(taken, "unknown")
    with pytest.raises(InFlight):
        market.run(operator_calls.cancel(order_id, "ann", "stop"))
    with pytest.raises(NotFound):
        market.run(operator_calls.cancel(999_999, "ann", "stop"))


def test_a_person_resolves_what_they_saw_and_not_what_it_became(market: OrdersEnv) -> None:
    order_id = market.accepted()
    market.settle(market.take_one(), "parked", code="UNKNOWN")

    with pytest.raises(Mismatch):
        market.run(operator_calls.resolve(order_id, "unknown", "dead", "ann", "looked"))
    result = {"broker_order_id": "brk-7", "status": "filled", "digest": "sha256:" + "b" * 64}
    market.run(operator_calls.resolve(order_id, "parked", "sent", "ann", "it is there", result=result))

    assert market.get(order_id)["broker_order_id"] == "brk-7"
    assert market.run(order_calls.history(order_id))[-1]["actor"] == "ann"


def test_a_reconciler_at_work_is_refused_when_a_person_was_quicker(market: OrdersEnv) -> None:
    order_id = market.accepted()
    market.settle(market.take_one(), "unknown")
    (asked,) = market.ask()
    market.run(operator_calls.resolve(order_id, "unknown", "dead", "ann", "not there"))

    assert market.settle(asked, "sent", "asker-1").refusal == "already_finished"


def test_a_resend_is_a_new_order_linked_to_the_old_one_and_happens_once(market: OrdersEnv) -> None:
    order_id = market.accepted("first")
    market.settle(market.take_one(), "parked", code="UNKNOWN")
    again = request("first-again")

    new_id = market.run(
        operator_calls.resend(order_id, "parked", again, "main/USDJPY", "ann", "the broker never had it")
    )

    assert market.get(order_id)["status"] == "dead"
    assert market.get(order_id)["last_error"] == "RESENT"
    assert market.get(order_id)["resent_as"] == new_id
    assert market.get(new_id)["resend_of"] == order_id
    assert market.take_one().id == new_id
    with pytest.raises(DuplicateRefusal):
        market.run(operator_calls.resend(order_id, "dead", request("third"), "main/USDJPY", "bob", "me too"))


def test_after_a_restore_everything_live_is_asked_about_first(market: OrdersEnv) -> None:
    sending, queued = market.accepted(symbol="A"), market.accepted(symbol="B")
    market.take(limit=1)
    parked = market.accepted(symbol="C")
    market.settle(next(one for one in market.take() if one.id == parked), "parked")

    assert market.run(operator_calls.recover(BROKER, "ann")) == 2

    assert [market.status(one) for one in (sending, queued, parked)] == ["unknown", "unknown", "parked"]
    assert market.take() == []
