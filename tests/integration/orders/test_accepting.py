"""A key is one order: a repeat is answered, another content refused, and nothing reopens it."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.errors import InvalidInput, Refusal
from fencepost.testing import Clock
from fencepost_orders import _order_calls as order_calls
from tests.integration.orders.env import RESULT, OrdersEnv


def test_an_accepted_order_is_shown_under_the_documented_names(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted("01JABC", trace_id="trace-1", meta={"source": "desk"})

    (row,) = market.rows(
        "select id, idempotency_key, request_json, request_digest, status, retry_count, next_attempt_at,"
        " last_error, created_at, updated_at from fencepost.outbox_orders"
    )
    assert row["id"] == order_id
    assert row["idempotency_key"] == "01JABC"
    assert row["request_json"]["qty"] == "10000"
    assert row["request_json"]["limit_price"] == "145.001"
    assert row["request_digest"].startswith("sha256:")
    assert (row["status"], row["retry_count"], row["last_error"]) == ("queued", 0, None)
    assert row["created_at"] == row["updated_at"] == row["next_attempt_at"] == clock.now()
    (ledger,) = market.rows("select * from fencepost.idempo_ledger")
    assert ledger["request_digest"] == row["request_digest"]
    assert ledger["result_digest"] is None
    assert ledger["expires_at"] == clock.now() + timedelta(hours=1)
    assert market.steps(order_id) == [(None, "queued", None)]


def test_an_order_is_accepted_with_the_callers_rows_or_not_at_all(market: OrdersEnv) -> None:
    with market.connection.transaction(force_rollback=True):
        market.accepted("lost")

    assert market.rows("select 1 from fencepost.outbox_orders") == []
    assert market.accept("lost").is_new


def test_a_repeat_answers_the_first_order(market: OrdersEnv) -> None:
    first = market.accept("again")

    repeats = [market.accept("again") for _ in range(9)]

    assert {repeat.outcome for repeat in repeats} == {"replay"}
    assert {repeat.order_id for repeat in repeats} == {first.order_id}
    assert len(market.rows("select 1 from fencepost.outbox_messages")) == 1


def test_a_repeat_is_answered_also_after_the_orders_own_time(market: OrdersEnv, clock: Clock) -> None:
    """Its sender may have heard nothing of the first, which was sent in time. A new one is refused."""
    expires_at = clock.now() + timedelta(seconds=2)
    first = market.accept("again", expires_at=expires_at)
    market.settle(market.take_one(), "sent")
    clock.advance(2)

    assert market.accept("again", expires_at=expires_at).order_id == first.order_id
    with pytest.raises(InvalidInput) as refused:
        market.accept("new", expires_at=expires_at)
    assert refused.value.field == "expires_at"
    assert len(market.rows("select 1 from fencepost.idempo_ledger")) == 1


def test_another_trace_is_the_same_order_and_another_price_is_not(market: OrdersEnv) -> None:
    market.accepted("again", trace_id="first")

    assert market.accept("again", trace_id="second").outcome == "replay"
    assert market.accept("again", limit_price="145.0010").outcome == "replay"
    assert market.accept("again", limit_price="145.002").outcome == "mismatch"


def test_a_key_that_is_being_accepted_is_in_flight(
    market: OrdersEnv, connect: Callable[[], OrdersEnv]
) -> None:
    other = connect()
    with market.connection.transaction():
        market.accepted("mine")
        answer = other.accept("mine")

    assert answer.outcome == "in_flight"
    refusal = answer.refusal("mine")
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "in_flight"
    assert other.accept("mine").outcome == "replay"


def test_pruning_never_reopens_a_key(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted("old", keep_seconds=3600)
    market.settle(market.take_one(), "sent")

    clock.advance(3599)
    assert market.accept("old").outcome == "replay"
    assert market.run(order_calls.prune(60, 10)) == 0, "it may still be repeated"
    clock.advance(2)
    assert market.run(order_calls.prune(60, 10)) == 1

    assert market.run(order_calls.get(order_id=order_id)) is None
    assert market.accept("old").outcome == "too_old"
    assert market.accept("old", qty=1).outcome == "mismatch"
    assert market.rows("select 1 from fencepost.exec_result") == []


def test_a_live_order_is_not_pruned(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted("held", keep_seconds=1)
    clock.advance(1_000_000)

    assert market.run(order_calls.prune(60, 10)) == 0
    assert market.status(order_id) == "queued"


def test_the_result_of_the_broker_is_kept_and_its_digest_too(market: OrdersEnv) -> None:
    market.accepted("done")
    market.settle(market.take_one(), "sent", result={**RESULT, "fills": [{"qty": "5"}], "body": {"raw": 1}})

    (result,) = market.rows("select * from fencepost.exec_result")
    assert (result["broker_order_id"], result["fills"], result["body"]) == (
        "brk-1",
        [{"qty": "5"}],
        {"raw": 1},
    )
    (ledger,) = market.rows("select result_digest from fencepost.idempo_ledger")
    assert ledger["result_digest"] == RESULT["digest"]


def test_the_application_cannot_write_around_the_functions(market: OrdersEnv) -> None:
    for statement in (
        "delete from fencepost.orders_idempotency_key",
        "update fencepost.orders_order set final_status = 'sent'",
        "insert into fencepost.orders_halt values ('acme', 'main', now(), 'me', 'why')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            market.connection.execute(statement)


@pytest.mark.parametrize(
    "digest",
    [
        "sha256:" + "0" * 63,
        "sha256:" + "0" * 65,
        "sha256:" + "0" * 63 + "G",
        "sha256:" + "0" * 63 + "A",
        "sha256:" + "0" * 63 + "\n",
        "sha256:" + "0" * 62 + "é",
        "sha512:" + "0" * 64,
        "0" * 71,
        "",
    ],
)
def test_the_table_itself_refuses_what_is_no_digest(
    market: OrdersEnv, database: Database, digest: str
) -> None:
    market.accepted()
    with database.connect_admin() as admin, pytest.raises(psycopg.errors.CheckViolation):
        admin.execute("update fencepost.orders_order set request_digest = %s", (digest,))
