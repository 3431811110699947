"""Questions go on: about parked orders, through a pause of sending, and as the only probe of a broker."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput, NotFound, StaleAttempt
from fencepost.testing import Clock
from fencepost_orders import _fill_source as fill_source
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from fencepost_orders._order_source import OrderSettlement
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import Promise
from fencepost_orders.testing._broker_book import Book, BookOrder
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_dialect import Dialect, Said
from fencepost_orders.testing.broker_faults import BrokerFaults
from tests.integration.orders.broker_env import MARGIN_SECONDS, floor_with, open_floor
from tests.integration.orders.env import BROKER, OrdersEnv
from tests.integration.orders.test_real_brokers import BOTH, Make
from tests.waiting_for import found

ALWAYS = 100.0


def broker_row(market: OrdersEnv) -> dict[str, Any]:
    (row,) = market.run(operator_calls.brokers())
    return row


def ask(market: OrdersEnv, owner: str = "asker-1", *, parked: bool = True) -> list[order_source.TakenOrder]:
    return market.run(order_source.take_unknown(BROKER, owner, 60, 10, parked=parked))


def park(market: OrdersEnv, **fields: Any) -> int:
    order_id = market.accepted(**fields)
    market.settle(market.take_one(), "unknown", code="BROKER_5XX")
    (taken,) = ask(market)
    market.settle(taken, "parked", "asker-1", code="BROKER_5XX", delay_seconds=300)
    return order_id


# What is parked.


def test_a_parked_order_is_asked_about_when_its_time_has_come_and_an_answer_moves_it_on(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id = park(market)
    assert ask(market) == []
    clock.advance(300)
    assert ask(market, parked=False) == [], "who cannot ask does not take it"
    (taken,) = ask(market)
    assert (taken.id, taken.state, taken.asks) == (order_id, "parked", 2)
    assert market.status(order_id) == "parked"
    assert market.settle(taken, "sent", "asker-1").state == "sent"
    assert market.steps(order_id)[-1] == ("parked", "sent", None)


def test_a_question_that_brings_nothing_new_writes_no_line_and_comes_again(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id = park(market)
    lines = market.steps(order_id)
    for _ in range(5):
        clock.advance(300)
        (taken,) = ask(market)
        market.settle(taken, "parked", "asker-1", code="BROKER_5XX", detail="not there", delay_seconds=300)
    assert market.steps(order_id) == lines
    assert market.get(order_id)["asks"] == 6


def test_an_asker_of_a_parked_order_that_dies_leaves_it_to_the_next(market: OrdersEnv, clock: Clock) -> None:
    park(market)
    clock.advance(300)
    (first,) = ask(market, "asker-1")
    assert ask(market, "asker-2") == []
    clock.advance(61)
    (second,) = ask(market, "asker-2")
    assert second.take == first.take + 1
    assert market.settle(first, "sent", "asker-1").refusal == StaleAttempt.reason
    assert market.settle(second, "sent", "asker-2").state == "sent"


def test_an_operators_decision_wins_over_a_query_in_progress(market: OrdersEnv, clock: Clock) -> None:
    order_id = park(market)
    clock.advance(300)
    (taken,) = ask(market)
    market.run(operator_calls.resolve(order_id, "parked", "dead", "ann", "the desk says no"))
    assert market.settle(taken, "sent", "asker-1").refusal is not None
    assert market.status(order_id) == "dead"


def test_parked_orders_leave_room_for_unknown_ones(market: OrdersEnv, clock: Clock) -> None:
    for number in range(8):
        park(market, symbol=f"P{number}")
    clock.advance(300)
    unknown = [market.accepted(symbol=f"U{number}") for number in range(8)]
    for taken in market.take(limit=8):
        market.settle(taken, "unknown", code="BROKER_5XX")
    taken_ids = [one.id for one in ask(market)]
    assert len(taken_ids) == 10
    assert len(set(taken_ids) & set(unknown)) == 5


def test_since_when_an_order_is_unknown_is_known(market: OrdersEnv, clock: Clock) -> None:
    began = clock.now()
    order_id = market.accepted()
    market.take_one()
    clock.advance(61)
    assert market.run(order_source.expire_takes(BROKER, 10)) == [order_id]
    (taken,) = ask(market)
    assert taken.unknown_since == began + timedelta(seconds=61)
    clock.advance(5)
    market.settle(taken, "unknown", "asker-1", code="BROKER_5XX")
    assert ask(market)[0].unknown_since == began + timedelta(seconds=61), "a question does not begin it anew"


@BOTH
async def test_one_503_and_an_order_that_is_accepted_late_end_as_sent(
    database: Database, make: Make, dialect: Any
) -> None:
    """The broker shows it only when it has been asked for some time: within the minute nothing is parked."""
    with HostileBroker(
        Promise.WHILE_OPEN, dialect=dialect, faults=BrokerFaults(accept_late=ALWAYS), late_seconds=None
    ) as broker:
        settings = OrdersSettings(margin_seconds=MARGIN_SECONDS, ask_lease_seconds=5)
        async with open_floor(database.url, make(broker.url, None), settings=settings) as floor:
            order_id = await floor.place("late", account="101-1")
            await floor.until("asked more than once", lambda found: found["asks"] >= 3, order_id)
            assert (await floor.orders.get(order_id=order_id))["status"] == "unknown"
            await asyncio.to_thread(broker.quiet)
            await floor.until_status(order_id, "sent")
            steps = await floor.steps(order_id)
        assert broker.client_ids() == {"late"}
    assert not [step for step in steps if step[1] == "parked"]


@BOTH
async def test_an_order_that_is_accepted_after_it_was_parked_is_found(
    database: Database, make: Make, dialect: Any
) -> None:
    with HostileBroker(
        Promise.WHILE_OPEN, dialect=dialect, faults=BrokerFaults(accept_late=ALWAYS), late_seconds=None
    ) as broker:
        settings = OrdersSettings(
            margin_seconds=MARGIN_SECONDS, ask_lease_seconds=5, ask_seconds=0, parked_ask_seconds=0.05
        )
        async with open_floor(database.url, make(broker.url, None), settings=settings) as floor:
            order_id = await floor.place("later", account="101-1")
            await floor.until_status(order_id, "parked")
            await floor.until("asked while parked", lambda found: found["asks"] >= 3, order_id)
            await asyncio.to_thread(broker.quiet)
            await floor.until_status(order_id, "sent")
            page = floor.fp.metrics.page().body.decode()
        assert broker.client_ids() == {"later"}
    assert 'fencepost_orders_sends_total{outcome="parked"} 1.0' in page, "a question is no parking"


# Retry-After.


def limited(market: OrdersEnv, delay_seconds: float = 200) -> None:
    market.settle(
        market.take(limit=1)[0],
        "queued",
        fate="not_this",
        code="RATE_LIMITED",
        health="limited",
        delay_seconds=delay_seconds,
    )


def test_a_pause_of_sending_does_not_hold_up_questions(market: OrdersEnv, clock: Clock) -> None:
    unsure = market.accepted()
    market.settle(market.take_one(), "unknown")
    market.accepted(symbol="EURUSD")
    limited(market)
    assert market.take() == []
    clock.advance(1)
    assert [one.id for one in ask(market)] == [unsure]
    row = broker_row(market)
    assert row["paused_until"] is not None
    assert row["ask_paused_until"] is None


def test_a_limited_question_pauses_both(market: OrdersEnv, clock: Clock) -> None:
    market.accepted()
    market.accepted(symbol="EURUSD")
    first, second = market.take()
    market.settle(first, "unknown")
    market.settle(second, "failed", fate="not_this", delay_seconds=0)
    (taken,) = ask(market)
    market.settle(taken, "unknown", "asker-1", code="RATE_LIMITED", health="ask_limited", delay_seconds=20)
    assert broker_row(market)["ask_paused_until"] is not None
    clock.advance(19)
    assert (ask(market), market.take()) == ([], [])
    clock.advance(2)
    assert (len(ask(market)), len(market.take())) == (1, 1)


def test_resuming_lifts_the_pause_and_what_waited_is_due(market: OrdersEnv, clock: Clock) -> None:
    market.accepted()
    limited(market)
    assert market.take() == []
    market.run(operator_calls.resume(BROKER, None, "ann", "they say it is fine"))
    assert broker_row(market)["paused_until"] is None
    clock.advance(1)
    assert len(market.take()) == 1


async def test_a_day_of_retry_after_is_cut_to_the_bound(database: Database) -> None:
    settings = OrdersSettings(margin_seconds=MARGIN_SECONDS, ask_seconds=0, retry_after_max_seconds=30)
    with HostileBroker(
        Promise.NOTHING, faults=BrokerFaults(limit=ALWAYS), retry_after_seconds=86_400
    ) as broker:
        async with floor_with(database.url, broker, settings=settings) as floor:
            order_id = await floor.place("patient")
            found = await floor.until("limited", lambda one: one["last_error"] == "RATE_LIMITED", order_id)
            (row,) = await floor.orders.brokers()
    with database.connect() as connection:
        waits = connection.execute(
            "select %s::timestamptz - %s::timestamptz < '31 seconds', %s::timestamptz is not null",
            (found["next_attempt_at"], found["updated_at"], row["paused_until"]),
        ).fetchone()
    assert waits == (True, True)


# Refused credentials.


def refuse(*taken: order_source.TakenOrder, outcome: order_source.Outcome = "dead") -> list[OrderSettlement]:
    return [
        OrderSettlement(
            one.id, one.take, outcome, "not_this", "UNAUTHORIZED", "401: expired", health="unauthorized"
        )
        for one in taken
    ]


def test_refused_credentials_end_one_order_halt_the_broker_and_the_others_wait(
    market: OrdersEnv, clock: Clock
) -> None:
    ids = [market.accepted(symbol=f"S{number}") for number in range(25)]
    under_way = market.take(limit=10)
    answers = market.run(order_source.settle(BROKER, "worker-1", refuse(*under_way[:4])))
    assert [answer.state for answer in answers] == ["dead", "queued", "queued", "queued"]
    row = broker_row(market)
    assert (row["halted_by"], row["halted_code"]) == ("fencepost", "UNAUTHORIZED")
    assert "401: expired" in str(row["halted_reason"])
    late = market.run(order_source.settle(BROKER, "worker-1", refuse(*under_way[4:])))
    assert {answer.state for answer in late} == {"queued"}
    assert [market.status(one) for one in ids].count("dead") == 1
    clock.advance(3600)
    assert market.take(limit=100) == [], "no order is risked to try it"

    market.run(operator_calls.resume(BROKER, None, "ann", "a new key"))
    again = market.take(limit=100)
    assert len(again) == 24
    assert {one.retry_count for one in again} == {0}
    row = broker_row(market)
    assert (row["halted_at"], row["halted_code"], row["breaker"]) == (None, None, "closed")


def test_the_one_that_would_be_dead_behind_an_open_request_is_asked_about(
    market: OrdersEnv, clock: Clock
) -> None:
    order_id = market.accepted()
    market.settle(market.take_one(), "unknown")
    market.settle(ask(market)[0], "failed", "asker-1")
    clock.advance(1)
    (taken,) = market.take()
    (answer,) = market.run(order_source.settle(BROKER, "worker-1", refuse(taken)))
    assert answer.state == "unknown"
    assert broker_row(market)["halted_code"] == "UNAUTHORIZED"
    assert market.status(order_id) == "unknown"


def test_held_instead_of_ended_it_waits_with_the_others(market: OrdersEnv) -> None:
    order_id = market.accepted()
    (answer,) = market.run(
        order_source.settle(BROKER, "worker-1", refuse(market.take_one(), outcome="queued"))
    )
    assert answer.state == "queued"
    assert broker_row(market)["halted_code"] == "UNAUTHORIZED"
    assert market.take() == []
    market.run(operator_calls.resume(BROKER, None, "ann", "a new key"))
    assert market.take_one().id == order_id


def test_a_broker_that_a_person_halted_keeps_their_reason(market: OrdersEnv) -> None:
    market.accepted()
    taken = market.take_one()
    market.run(operator_calls.halt(BROKER, None, "ann", "prices are wrong"))
    market.run(order_source.settle(BROKER, "worker-1", refuse(taken)))
    row = broker_row(market)
    assert row["halted_by"] == "ann"
    assert str(row["halted_reason"]).startswith("prices are wrong; UNAUTHORIZED")


def test_halt_and_end_are_one_transaction(market: OrdersEnv) -> None:
    order_id = market.accepted()
    taken = market.take_one()
    with market.connection.transaction(force_rollback=True):
        market.run(order_source.settle(BROKER, "worker-1", refuse(taken)))
        assert broker_row(market)["halted_code"] == "UNAUTHORIZED"
    assert market.status(order_id) == "sending"
    assert broker_row(market)["halted_at"] is None


def test_a_question_tries_a_halted_broker_and_says_that_it_answers(market: OrdersEnv, clock: Clock) -> None:
    market.declare(rate_per_second=1e6, burst=1e6, open_seconds=10)
    market.run(
        operator_calls.declare_broker(BROKER, operator_calls.BrokerLimits(open_seconds=10), can_ask=True)
    )
    market.accepted("first")
    market.accepted("second", symbol="EURUSD")
    market.run(order_source.settle(BROKER, "worker-1", refuse(market.take(limit=1)[0])))
    assert market.run(order_source.take_probe(BROKER)) is None
    clock.advance(10)
    probed = market.run(order_source.take_probe(BROKER))
    assert probed is not None
    assert probed.outgoing().client_id == "second"
    assert market.run(order_source.take_probe(BROKER)) is None, "one at a time"
    market.run(order_source.settle_probe(BROKER, "failed"))
    assert broker_row(market)["answered_at"] is None
    clock.advance(10)
    assert market.run(order_source.take_probe(BROKER)) is not None
    market.run(order_source.settle_probe(BROKER, "ok"))
    row = broker_row(market)
    assert row["answered_at"] is not None
    assert row["halted_at"] is not None, "a person resumes"
    assert market.take() == []


def test_a_breaker_that_failures_opened_is_closed_by_a_question_and_not_tried_by_an_order(
    market: OrdersEnv, clock: Clock
) -> None:
    limits = operator_calls.BrokerLimits(rate_per_second=1e6, burst=1e6, failures_max=1, open_seconds=10)
    market.run(operator_calls.declare_broker(BROKER, limits, can_ask=True))
    market.accepted(symbol="A")
    market.accepted(symbol="B")
    market.settle(market.take(limit=1)[0], "failed", fate="not_this", health="failed", delay_seconds=600)
    clock.advance(10)
    assert broker_row(market)["breaker"] == "half_open"
    assert market.take() == []
    assert market.run(order_source.take_probe(BROKER)) is not None
    market.run(order_source.settle_probe(BROKER, "ok"))
    assert broker_row(market)["breaker"] == "closed"
    assert len(market.take()) == 1


def test_a_broker_for_which_nothing_waits_is_not_tried(market: OrdersEnv, clock: Clock) -> None:
    market.run(
        operator_calls.declare_broker(
            BROKER, operator_calls.BrokerLimits(failures_max=1, open_seconds=10), can_ask=True
        )
    )
    market.accepted()
    market.settle(market.take_one(), "dead", fate="not_this", health="failed")
    clock.advance(10)
    assert market.run(order_source.take_probe(BROKER)) is None


class ExpiredKey(Dialect):
    """Refuses every request of either kind with a 401."""

    expired = True
    refused_orders = 0

    def placed(self, order: BookOrder) -> Said:
        self.refused_orders += self.expired
        return (401, {"error": "the key has expired"}) if self.expired else super().placed(order)

    def answer(self, path: str, book: Book) -> Said:
        return (401, {"error": "the key has expired"}) if self.expired else super().answer(path, book)


async def test_an_expired_key_ends_one_order_until_a_person_resumes(database: Database) -> None:
    dialect = ExpiredKey()
    with HostileBroker(Promise.NOTHING, dialect=dialect) as broker:
        limits = operator_calls.BrokerLimits(rate_per_second=1e6, burst=1e6, open_seconds=0.1)
        async with floor_with(database.url, broker, limits=limits) as floor:
            ids = await floor.place_many(f"k{number}" for number in range(25))
            await found("it is halted", floor.orders.brokers, lambda rows: rows[0]["halted_code"] is not None)
            for order_id in ids:
                await floor.until_status(order_id, "queued", "dead")
            refused = dialect.refused_orders
            await floor.orders.maintain()
            page = floor.fp.metrics.page().body.decode()
            assert 'fencepost_orders_unauthorized{channel="acme"} 1.0' in page
            # The dialect refused what the book had taken.
            broker.book.forget_all()
            dialect.expired = False
            await found("it answers", floor.orders.brokers, lambda rows: rows[0]["answered_at"] is not None)
            states = [(await floor.orders.get(order_id=one))["status"] for one in ids]
            assert sorted(states) == ["dead"] + ["queued"] * 24
            assert broker.orders == []
            await floor.orders.resume("acme", None, "ann", "a new key")
            for order_id, state in zip(ids, states, strict=True):
                if state == "queued":
                    await floor.until_status(order_id, "sent")
        assert len(broker.orders) == 24
        assert broker.doubled() == []
    assert 1 <= refused <= 25


# What a person says.


def test_an_order_resolved_as_sent_is_followed(market: OrdersEnv, clock: Clock) -> None:
    order_id = park(market)
    result = operator_calls.result_by_hand("ann", "brk-7")
    market.run(
        operator_calls.resolve(order_id, "parked", "sent", "ann", "seen in the blotter", result=result)
    )
    assert market.get(order_id)["result"]["is_followed"] is True
    clock.advance(1)
    (followed,) = market.run(fill_source.take(BROKER, 60, 10))
    assert (followed.id, followed.broker_order_id) == (order_id, "brk-7")
    bare = park(market, symbol="EURUSD")
    market.run(operator_calls.resolve(bare, "parked", "sent", "ann", "seen in the blotter"))
    clock.advance(1)
    assert [one.id for one in market.run(fill_source.take(BROKER, 60, 10))] == [bare]


def test_the_kill_switch_refuses_a_broker_and_an_account_that_no_caller_knows(market: OrdersEnv) -> None:
    market.accepted(account="main")
    market.accepted(account="never-sent", symbol="EURUSD")
    for switch in (operator_calls.halt, operator_calls.resume):
        with pytest.raises(NotFound) as caught:
            market.run(switch("amce", None, "ann", "stop"))
        assert (caught.value.noun, caught.value.seen["known"]) == ("broker", [BROKER])
        with pytest.raises(NotFound):
            market.run(switch("amce", "main", "ann", "stop"))
        with pytest.raises(NotFound) as caught:
            market.run(switch(BROKER, "mian", "ann", "stop"))
        assert (caught.value.noun, caught.value.subject) == ("account", "mian")
        market.run(switch(BROKER, "never-sent", "ann", "stop"))
    market.settle(market.take(limit=1)[0], "sent")
    market.run(operator_calls.halt(BROKER, "main", "ann", "its only order has ended"))
    market.run(operator_calls.resume(BROKER, "main", "ann", "go on"))


def test_a_key_that_begins_as_ours_do_is_refused(market: OrdersEnv) -> None:
    order_id = market.accepted()
    with pytest.raises(InvalidInput) as caught:
        market.accept(f"resend-of-{order_id}")
    assert caught.value.field == "idempotency_key"
    market.settle(market.take_one(), "dead", fate="not_this")
    old = market.get(order_id)
    new_id = market.run(operator_calls.resend_of(old, "dead", lambda request: request.symbol, "ann", "again"))
    assert market.get(new_id)["idempotency_key"] == f"resend-of-{order_id}"
    with pytest.raises(InvalidInput):
        market.accept(f"resend-of-{order_id}")
