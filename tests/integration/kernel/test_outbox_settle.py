"""How a delivery ends, and who may say so."""

from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller, refusal_counts

TAKE = "select * from fencepost.outbox_take('orders', %s, '30 seconds', 10)"
SETTLE = "select fencepost.outbox_settle(%s, %s, %s, %s)"
SETTLE_ALL = "select * from fencepost.outbox_settle_many(%s, %s, %s, %s)"
RESOLVE = "select fencepost.outbox_resolve(%s, %s, %s, 'carol', 'looked at it')"


def put(caller: Caller, key: str | None = None) -> int:
    message_id: int = caller.value("select fencepost.outbox_put('orders', %s, '{}')", key)
    return message_id


def taken(caller: Caller, key: str | None = None) -> int:
    message_id = put(caller, key)
    caller.execute(TAKE, "relay-1")
    return message_id


def message(caller: Caller, message_id: int) -> dict[str, Any]:
    return caller.row("select * from fencepost.outbox_messages where id = %s", message_id)


@pytest.mark.parametrize("outcome", ["sent", "dead"])
def test_a_settled_message_keeps_what_is_known_of_its_delivery(
    app: Caller, clock: Clock, outcome: str
) -> None:
    message_id = taken(app)
    clock.advance(5)

    app.execute(
        "select fencepost.outbox_settle(%s, 1, 'relay-1', %s, 'why', null, '{\"broker\": 7}')",
        message_id,
        outcome,
    )

    settled = message(app, message_id)
    assert (settled["state"], settled["settled_at"]) == (outcome, clock.now())
    assert (settled["attempts"], settled["take"], settled["owner"]) == (1, 1, "relay-1")
    assert (settled["result"], settled["last_error"]) == ({"broker": 7}, "why")


def test_a_failed_delivery_is_due_again_after_its_delay(app: Caller, clock: Clock) -> None:
    message_id = taken(app)
    app.execute(
        "select fencepost.outbox_settle(%s, 1, 'relay-1', 'failed', 'refused', '1 minute')", message_id
    )
    assert app.rows(TAKE, "relay-1") == []
    clock.advance(60)

    again = app.row(TAKE, "relay-2")

    assert (again["take"], again["attempts"], again["last_error"]) == (2, 2, "refused")


def test_a_delivery_that_never_began_costs_no_attempt(app: Caller, clock: Clock) -> None:
    message_id = taken(app)

    app.execute(SETTLE, message_id, 1, "relay-1", "queued")

    assert message(app, message_id)["attempts"] == 0
    assert app.row(TAKE, "relay-1")["attempts"] == 1


def test_an_unknown_delivery_is_taken_to_be_reconciled_and_stays_unknown(app: Caller, clock: Clock) -> None:
    message_id = taken(app)
    app.execute(
        "select fencepost.outbox_settle(%s, 1, 'relay-1', 'unknown', 'timeout', '1 minute')", message_id
    )
    reconcile = "select * from fencepost.outbox_take('orders', 'judge-1', '30 seconds', 10, true)"
    assert app.rows(reconcile) == []
    clock.advance(60)
    assert app.rows(TAKE, "relay-1") == [], "it is not sent again before it is known"

    mine = app.row(reconcile)

    assert (mine["id"], mine["take"], mine["attempts"], mine["last_error"]) == (message_id, 2, 1, "timeout")
    assert message(app, message_id)["state"] == "unknown"
    assert app.rows(reconcile) == []
    clock.advance(30)
    assert app.row(reconcile)["take"] == 3, "a reconciler that dies leaves it unknown"
    app.execute(SETTLE, message_id, 3, "judge-1", "sent")
    assert message(app, message_id)["state"] == "sent"


def test_a_parked_message_waits_for_a_person(app: Caller, clock: Clock) -> None:
    message_id = taken(app)
    app.execute(SETTLE, message_id, 1, "relay-1", "parked")
    clock.advance(86400)

    assert app.rows(TAKE, "relay-1") == []
    assert app.rows("select * from fencepost.outbox_take('orders', 'j', '30 s', 10, true)") == []
    assert app.column("select fencepost.outbox_expire('orders', 'queued', 10)") == []


@pytest.mark.parametrize(
    ("reason", "take", "owner"),
    [
        ("stale_attempt", 0, "relay-1"),
        ("stale_attempt", 2, "relay-1"),
        ("not_owner", 1, "relay-2"),
        ("not_owner", 1, None),
    ],
)
def test_no_caller_but_the_taker_settles(
    app: Caller, clock: Clock, reason: str, take: int, owner: str | None
) -> None:
    message_id = taken(app)

    refused = app.refused(reason, SETTLE, message_id, take, owner, "sent")

    assert (refused.noun, refused.subject) == ("outbox", str(message_id))
    assert refused.attempted == {"take": take, "owner": owner, "outcome": "sent"}
    assert (refused.seen["state"], refused.seen["take"], refused.seen["owner"]) == ("sending", 1, "relay-1")
    assert message(app, message_id)["state"] == "sending"


def test_a_settled_message_is_not_settled_again(app: Caller, clock: Clock) -> None:
    message_id = taken(app)
    app.execute(SETTLE, message_id, 1, "relay-1", "sent")

    refused = app.refused("already_finished", SETTLE, message_id, 1, "relay-1", "dead")

    assert refused.seen == {"state": "sent", "take": 1, "settled_at": clock.now().isoformat()}
    assert app.refused("not_found", SETTLE, 999, 1, "relay-1", "sent").seen == {}
    assert refusal_counts(app) == {"already_finished": 1, "not_found": 1}


def test_a_taker_past_its_time_may_settle_while_no_caller_took_since(app: Caller, clock: Clock) -> None:
    message_id = taken(app)
    clock.advance(3600)

    app.execute(SETTLE, message_id, 1, "relay-1", "sent")

    assert message(app, message_id)["state"] == "sent"


@pytest.mark.parametrize("state", ["unknown", "parked"])
def test_no_owner_settles_what_waits_for_an_operator(app: Caller, clock: Clock, state: str) -> None:
    message_id = taken(app)
    app.execute(SETTLE, message_id, 1, "relay-1", state)

    assert app.refused("not_owner", SETTLE, message_id, 1, None, "sent").seen["state"] == state
    assert app.rows(SETTLE_ALL, [message_id], [1], None, ["sent"]) == [
        {"id": message_id, "refusal": "not_owner"}
    ]


def test_no_owner_settles_out_of_order(app: Caller, clock: Clock) -> None:
    put(app, "AAPL")
    behind = put(app, "AAPL")

    app.refused("not_owner", SETTLE, behind, 0, None, "sent")


def test_no_take_is_no_key_to_a_settlement(app: Caller, clock: Clock) -> None:
    message_id = put(app)

    app.invalid("take", SETTLE, message_id, None, None, "sent")
    app.invalid("takes", SETTLE_ALL, [message_id], [None], None, ["sent"])


def test_many_are_settled_and_one_refusal_spoils_no_other(app: Caller, clock: Clock) -> None:
    plain, keyed, failed, stale = put(app), put(app, "AAPL"), put(app), put(app)
    app.execute(TAKE, "relay-1")
    other = put(app)
    app.execute(TAKE, "relay-2")

    answers = app.rows(
        """select * from fencepost.outbox_settle_many(
             %s, %s, 'relay-1', %s, %s,
             '{null, null, 1 minute, null, null, null}'::interval[], %s::jsonb[])""",
        [plain, keyed, failed, stale, other, 999],
        [1, 1, 1, 7, 1, 1],
        ["sent", "dead", "failed", "sent", "sent", "sent"],
        [None, "no", "later", None, None, None],
        ['{"n": 1}', None, None, None, None, None],
    )

    assert sorted((answer["id"], answer["refusal"]) for answer in answers) == [
        (plain, None),
        (keyed, None),
        (failed, None),
        (stale, "stale_attempt"),
        (other, "not_owner"),
        (999, "not_found"),
    ]
    assert [message(app, known)["state"] for known in (plain, keyed, failed, stale, other)] == [
        "sent", "dead", "failed", "sending", "sending",
    ]  # fmt: skip
    assert message(app, plain)["result"] == {"n": 1}
    assert refusal_counts(app) == {"stale_attempt": 1, "not_owner": 1, "not_found": 1}
    assert app.column("select subject from fencepost.refusals order by refusal_id") == [
        str(stale), str(other), "999",
    ]  # fmt: skip


def test_held_messages_are_settled_many_at_once_and_each_counts_its_attempt(
    app: Caller, clock: Clock
) -> None:
    ids = [put(app), put(app, "AAPL"), put(app)]

    with app.transaction():
        held = app.rows("select id, take from fencepost.outbox_hold('orders', 10)")
        takes = [row["take"] for row in held]
        app.execute(SETTLE_ALL, [row["id"] for row in held], takes, None, ["sent", "sent", "failed"])

    assert [message(app, known)["attempts"] for known in ids] == [1, 1, 1]


def test_a_result_too_large_settles_nothing_of_the_batch(app: Caller, clock: Clock) -> None:
    ids = [taken(app), taken(app)]

    app.invalid(
        "result",
        """select fencepost.outbox_settle_many(
             %s, '{1, 1}', 'relay-1', '{sent, sent}', null, null, %s::jsonb[])""",
        ids,
        ["1", f'"{"x" * 70_000}"'],
    )

    assert [message(app, known)["state"] for known in ids] == ["sending", "sending"]


@pytest.mark.parametrize("outcome", ["queued", "unknown"])
def test_a_silent_taker_loses_its_delivery_after_the_grace(app: Caller, clock: Clock, outcome: str) -> None:
    message_id = taken(app)
    expire = "select fencepost.outbox_expire('orders', %s, 10, '10 seconds')"
    clock.advance(39)
    assert app.column(expire, outcome) == []
    clock.advance(1)

    assert app.column(expire, outcome) == [message_id]

    assert message(app, message_id)["state"] == outcome
    app.refused("stale_attempt", SETTLE, message_id, 1, "relay-1", "sent")
    event = app.row("select event, actor, token, detail from fencepost.events")
    assert event == {"event": "expired", "actor": "relay-1", "token": 1, "detail": {"to": outcome}}


def test_a_caller_that_asks_about_an_unknown_message_is_no_silent_taker_and_may_be_followed(
    app: Caller, clock: Clock
) -> None:
    message_id = taken(app)
    app.execute(SETTLE, message_id, 1, "relay-1", "unknown")
    ask = "select id from fencepost.outbox_take('orders', %s, '30 seconds', 10, true)"
    assert app.column(ask, "relay-1") == [message_id]
    assert app.column(ask, "relay-2") == [], "relay-1 asks"
    clock.advance(31)

    assert app.column("select fencepost.outbox_expire('orders', 'queued', 10)") == []
    assert app.column(ask, "relay-2") == [message_id]


@pytest.mark.parametrize("outcome", ["sent", "dead", "queued", "parked"])
def test_a_person_decides_about_what_waits_for_them(app: Caller, clock: Clock, outcome: str) -> None:
    head, behind = put(app, "AAPL"), put(app, "AAPL")
    app.execute(TAKE, "relay-1")
    app.execute(SETTLE, head, 1, "relay-1", "unknown")

    app.execute(RESOLVE, head, "unknown", outcome)

    assert message(app, head)["state"] == outcome
    expected = {"sent": [behind], "dead": [behind], "queued": [head], "parked": []}[outcome]
    assert [row["id"] for row in app.rows(TAKE, "relay-1")] == expected
    event = app.row("select actor, detail from fencepost.events where event = 'resolved'")
    assert event == {"actor": "carol", "detail": {"from": "unknown", "to": outcome, "note": "looked at it"}}


def test_a_person_is_told_when_the_state_is_not_the_one_they_saw(app: Caller, clock: Clock) -> None:
    message_id = taken(app)

    refused = app.refused("mismatch", RESOLVE, message_id, "parked", "dead")
    assert (refused.attempted["expected"], refused.seen["state"]) == ("parked", "sending")

    app.execute(SETTLE, message_id, 1, "relay-1", "sent")
    app.refused("already_finished", RESOLVE, message_id, "parked", "dead")
    app.refused("not_found", RESOLVE, 999, "parked", "dead")


def test_a_message_of_a_service_is_decided_about_where_it_belongs(
    app: Caller, database: Database, clock: Clock
) -> None:
    with database.connect_admin() as admin:
        row = admin.execute("select fencepost._outbox_put('orders:acme', null, '{}', '{}', null)").fetchone()
    assert row is not None

    with pytest.raises(psycopg.Error, match="is a message of orders: decide about it there"):
        app.execute(RESOLVE, row[0], "queued", "dead")


def test_a_reconciler_is_refused_after_a_person_has_decided(app: Caller, clock: Clock) -> None:
    message_id = taken(app)
    app.execute(SETTLE, message_id, 1, "relay-1", "unknown")
    app.execute("select fencepost.outbox_take('orders', 'judge-1', '30 seconds', 1, true)")

    app.execute(RESOLVE, message_id, "unknown", "queued")

    app.refused("stale_attempt", SETTLE, message_id, 2, "judge-1", "sent")


def test_a_message_called_unknown_behind_its_head_waits_for_its_turn(app: Caller, clock: Clock) -> None:
    head, behind = put(app, "AAPL"), put(app, "AAPL")
    app.execute(TAKE, "relay-1")
    app.execute(RESOLVE, behind, "queued", "unknown")
    reconcile = "select id from fencepost.outbox_take('orders', 'judge-1', '30 seconds', 10, true)"
    assert app.column(reconcile) == []

    app.execute(SETTLE, head, 1, "relay-1", "sent")

    assert app.column(reconcile) == [behind]


def test_settled_messages_are_forgotten_after_their_time_oldest_first(app: Caller, clock: Clock) -> None:
    old, older_but_open, young = taken(app), taken(app), taken(app)
    app.execute(SETTLE, old, 1, "relay-1", "sent")
    clock.advance(1)
    app.execute(SETTLE, young, 1, "relay-1", "dead")
    clock.advance(3600)

    assert app.value("select fencepost.outbox_prune('1 hour', 10)") == 1

    assert app.column("select id from fencepost.outbox_messages order by id") == [older_but_open, young]
