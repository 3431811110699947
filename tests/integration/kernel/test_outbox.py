"""Messages are delivered in the order of their key; a key that is held up holds up no other."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller, refusal_counts
from tests.integration.kernel.overlap import begun, wait_until_blocked, wait_until_gone

TAKE = "select * from fencepost.outbox_take('orders', %s, '30 seconds', %s)"
SETTLE = "select fencepost.outbox_settle(%s, %s, %s, %s)"


def put(caller: Caller, key: str | None, payload: str = "{}") -> int:
    message_id: int = caller.value("select fencepost.outbox_put('orders', %s, %s)", key, payload)
    return message_id


def take(caller: Caller, owner: str = "relay-1", limit: int = 10) -> list[dict[str, Any]]:
    return caller.rows(TAKE, owner, limit)


def taken_ids(caller: Caller, owner: str = "relay-1") -> list[int]:
    return [message["id"] for message in take(caller, owner)]


def state_of(caller: Caller, message_id: int) -> str:
    state: str = caller.value("select state from fencepost.outbox_messages where id = %s", message_id)
    return state


def test_a_put_is_queued_in_the_callers_transaction(app: Caller, clock: Clock) -> None:
    app.execute("begin")
    put(app, "AAPL")
    app.execute("rollback")
    kept = app.value("select fencepost.outbox_put('orders', 'AAPL', '{\"n\": 1}', '{\"h\": 2}')")

    assert app.row("select * from fencepost.outbox_messages") == {
        "id": kept,
        "channel": "orders",
        "key": "AAPL",
        "state": "queued",
        "ready": True,
        "payload": {"n": 1},
        "headers": {"h": 2},
        "created_at": clock.now(),
        "not_before": clock.now(),
        "attempts": 0,
        "take": 0,
        "owner": None,
        "taken_until": None,
        "settled_at": None,
        "result": None,
        "last_error": None,
    }


def test_a_take_leases_what_is_due_under_a_new_token(app: Caller, clock: Clock) -> None:
    message_id = put(app, None, '{"n": 1}')

    (message,) = take(app)

    assert message == {
        "id": message_id,
        "key": None,
        "payload": {"n": 1},
        "headers": {},
        "attempts": 1,
        "take": 1,
        "created_at": clock.now(),
        "taken_until": clock.now() + timedelta(seconds=30),
        "last_error": None,
    }
    assert state_of(app, message_id) == "sending"
    assert take(app, "relay-2") == []


def test_a_message_is_not_due_before_its_time(app: Caller, clock: Clock) -> None:
    later = clock.now() + timedelta(seconds=60)
    app.execute("select fencepost.outbox_put('orders', null, '{}', '{}', %s)", later)
    assert take(app) == []

    clock.advance(60)

    assert len(take(app)) == 1


def test_a_take_takes_at_most_its_limit_of_its_channel(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.outbox_put('other', null, '{}')")
    for _ in range(3):
        put(app, None)

    assert len(take(app, limit=2)) == 2
    assert len(take(app, limit=2)) == 1


def test_only_the_first_of_a_key_is_taken_until_it_is_settled(app: Caller, clock: Clock) -> None:
    first, second, other = put(app, "AAPL"), put(app, "AAPL"), put(app, "MSFT")
    assert taken_ids(app) == [first, other]
    assert taken_ids(app) == []

    app.execute(SETTLE, first, 1, "relay-1", "sent")

    assert taken_ids(app) == [second]


@pytest.mark.parametrize("outcome", ["failed", "unknown", "parked", "queued"])
def test_an_unsettled_head_holds_its_own_key_and_no_other(app: Caller, clock: Clock, outcome: str) -> None:
    head, behind = put(app, "AAPL"), put(app, "AAPL")
    take(app)
    app.execute("select fencepost.outbox_settle(%s, 1, 'relay-1', %s, 'why', '1 minute')", head, outcome)
    other = put(app, "MSFT")

    assert taken_ids(app) == [other]
    assert state_of(app, behind) == "queued"
    assert put(app, "AAPL") not in taken_ids(app)


@pytest.mark.parametrize("outcome", ["sent", "dead"])
def test_a_settled_head_frees_its_key(app: Caller, clock: Clock, outcome: str) -> None:
    head, behind = put(app, "AAPL"), put(app, "AAPL")
    take(app)

    app.execute(SETTLE, head, 1, "relay-1", outcome)

    assert taken_ids(app) == [behind]


def test_puts_of_one_key_follow_each_other(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    first, second = connect(), connect()
    first.execute("begin")
    head = put(first, "AAPL")

    with begun(second, "select fencepost.outbox_put('orders', 'AAPL', '2') as id") as behind:
        wait_until_blocked(admin, second)
        assert put(app, "MSFT") == head + 1, "another key does not wait"
        first.execute("commit")
        later = behind.result()[0]["id"]

    assert later > head
    assert app.column("select id from fencepost.outbox_messages where ready") == [head, head + 1]


def test_a_put_under_way_while_the_head_is_settled_is_found_by_the_next_take(
    app: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    head = put(app, "AAPL")
    take(app)
    writer = connect()
    writer.execute("begin")
    behind = put(writer, "AAPL")
    app.execute(SETTLE, head, 1, "relay-1", "sent")

    assert taken_ids(app) == []
    writer.execute("commit")
    assert taken_ids(app) == [behind]


def test_a_noted_key_stays_noted_while_its_put_is_open(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    head = put(app, "AAPL")
    take(app)
    writer = connect()
    writer.execute("begin")
    put(writer, "AAPL")
    app.execute(SETTLE, head, 1, "relay-1", "sent")
    take(app)
    assert admin.value("select count(*) from fencepost.outbox_unpromoted") == 1
    writer.execute("rollback")
    after = put(app, "AAPL")

    assert taken_ids(app) == [after]
    assert admin.value("select count(*) from fencepost.outbox_unpromoted") == 0


def test_many_are_put_in_the_order_of_their_arrays(app: Caller, clock: Clock) -> None:
    ids = app.column(
        "select fencepost.outbox_put_many('orders', %s, %s::jsonb[], %s::jsonb[])",
        ["AAPL", None, "AAPL", "MSFT"],
        ["1", "2", "3", "4"],
        ['{"h": 1}', None, None, None],
    )

    messages = app.rows("select id, key, payload, headers, ready from fencepost.outbox_messages order by id")
    assert [message["id"] for message in messages] == ids == sorted(ids)
    assert [message["payload"] for message in messages] == [1, 2, 3, 4]
    assert [message["headers"] for message in messages] == [{"h": 1}, {}, {}, {}]
    assert [message["ready"] for message in messages] == [True, True, False, True]


def test_many_without_keys_are_all_ready(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.outbox_put_many('orders', null, '{1, 2}'::jsonb[])")

    assert len(take(app)) == 2


def test_many_behind_a_head_wait_for_it(app: Caller, clock: Clock) -> None:
    head = put(app, "AAPL")
    app.execute("select fencepost.outbox_put_many('orders', '{AAPL}', '{1}'::jsonb[])")

    assert taken_ids(app) == [head]


@pytest.mark.parametrize(
    "begin", ["begin isolation level repeatable read", "begin isolation level serializable"]
)
@pytest.mark.parametrize(
    "again",
    [
        "select fencepost.outbox_put('orders', 'AAPL', '2')",
        "select fencepost.outbox_put_many('orders', '{AAPL, AAPL}', '{2, 3}'::jsonb[])",
    ],
    ids=["one", "many"],
)
def test_an_old_snapshot_does_not_break_the_order(
    app: Caller, connect: Callable[[], Caller], clock: Clock, begin: Any, again: Any
) -> None:
    writer = connect()
    writer.execute(begin)
    writer.execute("select count(*) from fencepost.outbox_messages")
    head = put(app, "AAPL", "1")
    behind = writer.column(again)
    writer.execute("commit")

    assert taken_ids(app) == [head]
    app.execute(SETTLE, head, 1, "relay-1", "sent")
    assert taken_ids(app) == behind[:1]


def test_held_messages_come_back_when_the_holder_dies(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    message_id = put(app, None)
    holder = connect()
    holder.execute("begin")
    held = holder.row("select * from fencepost.outbox_hold('orders', 10)")
    assert held["id"] == message_id
    assert (held["attempts"], held["take"]) == (0, 0)
    assert app.rows("select * from fencepost.outbox_hold('orders', 10)") == []

    holder.close()
    wait_until_gone(admin, holder.pid)

    with app.transaction():
        assert app.column("select id from fencepost.outbox_hold('orders', 10)") == [message_id]
        app.execute(SETTLE, message_id, 0, None, "sent")
    assert state_of(app, message_id) == "sent"


def test_a_hold_promotes_what_was_noted(app: Caller, connect: Callable[[], Caller], clock: Clock) -> None:
    head = put(app, "AAPL")
    take(app)
    writer = connect()
    writer.execute("begin")
    behind = put(writer, "AAPL")
    app.execute(SETTLE, head, 1, "relay-1", "sent")
    writer.execute("commit")

    assert app.column("select id from fencepost.outbox_hold('orders', 10)") == [behind]


def test_takes_are_renewed_each_under_its_token(app: Caller, clock: Clock) -> None:
    mine, stale, theirs, gone = (put(app, None) for _ in range(4))
    take(app, limit=3)
    app.execute(SETTLE, stale, 1, "relay-1", "queued")
    app.execute(SETTLE, theirs, 1, "relay-1", "queued")
    app.execute("select fencepost.outbox_take('orders', 'relay-2', '30 seconds', 10)")
    clock.advance(20)

    answers = app.rows(
        "select * from fencepost.outbox_renew(%s, %s, 'relay-1', '1 minute')",
        [theirs, mine, stale, 999],
        [2, 1, 1, 1],
    )

    assert answers == [
        {"id": mine, "taken_until": clock.now() + timedelta(seconds=60), "refusal": None},
        {"id": stale, "taken_until": None, "refusal": "stale_attempt"},
        {"id": theirs, "taken_until": None, "refusal": "not_owner"},
        {"id": 999, "taken_until": None, "refusal": "not_found"},
    ]
    assert refusal_counts(app) == {"stale_attempt": 1, "not_owner": 1, "not_found": 1}
    assert gone in app.column("select id from fencepost.outbox_messages where owner = 'relay-2'")
    seen = app.value("select seen from fencepost.refusals where reason = 'not_owner'")
    assert (seen["owner"], seen["take"], seen["state"]) == ("relay-2", 2, "sending")
