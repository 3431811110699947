"""A request takes effect once, and its repeat gets the first answer."""

from collections.abc import Callable
from typing import LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller, refusal_counts
from tests.integration.kernel.overlap import begun, wait_until_blocked

CLAIM = "select outcome, response from fencepost.claim('player:7', %s, %s)"


def test_the_first_claim_goes_on(app: Caller, clock: Clock) -> None:
    assert app.row("select * from fencepost.claim('player:7', 'req-1')") == {
        "outcome": "claimed",
        "response": None,
        "claimed_at": clock.now(),
    }


def test_a_repeat_gets_the_response_that_was_stored_with_the_claim(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.claim('player:7', 'req-1', 'd1', '{\"coins\": 5}')")
    first_at = clock.now()
    clock.advance(10)

    assert app.row("select * from fencepost.claim('player:7', 'req-1', 'd1')") == {
        "outcome": "replay",
        "response": {"coins": 5},
        "claimed_at": first_at,
    }
    assert refusal_counts(app) == {}


def test_a_repeat_gets_the_response_that_was_remembered(app: Caller) -> None:
    with app.transaction():
        app.execute("select fencepost.claim('player:7', 'req-1', 'd1')")
        app.execute("select fencepost.remember('player:7', 'req-1', '[1, 2]')")

    assert app.row(CLAIM, "req-1", "d1") == {"outcome": "replay", "response": [1, 2]}


def test_a_repeat_without_a_stored_response_is_a_duplicate(app: Caller) -> None:
    app.execute(CLAIM, "req-1", "d1")

    assert app.row(CLAIM, "req-1", "d1") == {"outcome": "duplicate", "response": None}
    assert refusal_counts(app) == {"duplicate": 1}


@pytest.mark.parametrize("digest", ["d2", None])
def test_the_same_key_for_another_request_is_a_mismatch(
    app: Caller, clock: Clock, digest: str | None
) -> None:
    app.execute("select fencepost.claim('player:7', 'req-1', 'd1', '{\"coins\": 5}')")

    assert app.row(CLAIM, "req-1", digest) == {"outcome": "mismatch", "response": None}
    recorded = app.row("select reason, noun, subject, attempted, seen from fencepost.refusals")
    assert recorded == {
        "reason": "mismatch",
        "noun": "request",
        "subject": "player:7/req-1",
        "attempted": {"digest": digest},
        "seen": {"digest": "d1", "claimed_at": clock.now().isoformat()},
    }


def test_scopes_do_not_share_keys(app: Caller) -> None:
    app.execute(CLAIM, "req-1", None)

    assert app.value("select outcome from fencepost.claim('player:8', 'req-1')") == "claimed"


def test_a_rollback_takes_the_key_along(app: Caller) -> None:
    app.execute("begin")
    app.execute(CLAIM, "req-1", None)
    app.execute("rollback")

    assert app.row(CLAIM, "req-1", None)["outcome"] == "claimed"


def test_a_duplicate_does_not_wait_for_the_first(app: Caller, connect: Callable[[], Caller]) -> None:
    first = connect()
    first.execute("begin")
    first.execute(CLAIM, "req-1", None)

    assert app.row(CLAIM, "req-1", None) == {"outcome": "in_flight", "response": None}

    first.execute("rollback")
    assert app.row(CLAIM, "req-1", None)["outcome"] == "claimed"
    assert refusal_counts(app) == {"in_flight": 1}


def test_a_claim_undone_by_its_savepoint_is_free_again(app: Caller, connect: Callable[[], Caller]) -> None:
    first = connect()
    first.execute("begin")
    first.execute("savepoint before")
    first.execute(CLAIM, "req-1", None)
    first.execute("rollback to savepoint before")

    assert app.row(CLAIM, "req-1", None)["outcome"] == "claimed"
    first.execute("commit")


def test_claiming_twice_in_one_transaction_is_a_duplicate(app: Caller) -> None:
    with app.transaction():
        app.execute(CLAIM, "req-1", None)
        assert app.row(CLAIM, "req-1", None)["outcome"] == "duplicate"


def test_a_response_is_remembered_for_its_own_request_alone(app: Caller) -> None:
    claim = "select outcome from fencepost.claim('player:7', %s)"
    with app.connection.transaction():
        app.execute(claim, "req-1")
        app.execute(claim, "req-2")
        app.execute("select fencepost.remember('player:7', 'req-1', '[1]')")

    assert (app.value(claim, "req-1"), app.value(claim, "req-2")) == ("replay", "duplicate")


def test_only_the_claiming_transaction_may_remember(app: Caller, clock: Clock) -> None:
    app.execute(CLAIM, "req-1", None)

    refused = app.refused("duplicate", "select fencepost.remember('player:7', 'req-1', '1')")

    assert (refused.noun, refused.subject) == ("request", "player:7/req-1")
    assert refused.seen == {"claimed_at": clock.now().isoformat()}
    assert app.row(CLAIM, "req-1", None)["response"] is None


def test_remembering_after_a_savepoint_is_still_the_same_transaction(app: Caller) -> None:
    with app.transaction():
        app.execute(CLAIM, "req-1", None)
        app.execute("savepoint later")
        app.execute("select fencepost.remember('player:7', 'req-1', '1')")

    assert app.row(CLAIM, "req-1", None) == {"outcome": "replay", "response": 1}


def test_what_was_never_claimed_cannot_be_remembered(app: Caller) -> None:
    refused = app.refused("not_found", "select fencepost.remember('player:7', 'req-1', '1')")

    assert refused.seen == {"claimed_at": None}


def test_many_keys_are_claimed_at_once_and_one_answer_spoils_no_other(
    app: Caller, connect: Callable[[], Caller]
) -> None:
    app.execute("select fencepost.claim('player:7', 'old', 'd', '5')")
    app.execute("select fencepost.claim('player:7', 'plain', 'd')")
    busy = connect()
    busy.execute("begin")
    busy.execute(CLAIM, "busy", "d")

    answers = app.rows(
        "select key, outcome, response from fencepost.claim_many('player:7', %s, %s, %s::jsonb[])",
        ["new", "old", "busy", "plain", "other"],
        ["d", "d", "d", "d", "d"],
        ["1", "2", "3", "4", None],
    )

    assert answers == [
        {"key": "busy", "outcome": "in_flight", "response": None},
        {"key": "new", "outcome": "claimed", "response": 1},
        {"key": "old", "outcome": "replay", "response": 5},
        {"key": "other", "outcome": "claimed", "response": None},
        {"key": "plain", "outcome": "duplicate", "response": None},
    ]
    busy.execute("rollback")
    assert refusal_counts(app) == {"in_flight": 1, "duplicate": 1}


def test_a_mismatch_among_many_spoils_no_other(app: Caller) -> None:
    app.execute(CLAIM, "a", "d1")

    answers = app.rows(
        "select key, outcome from fencepost.claim_many('player:7', %s, %s)", ["a", "b"], ["d2", "d2"]
    )

    assert answers == [{"key": "a", "outcome": "mismatch"}, {"key": "b", "outcome": "claimed"}]


def test_keys_are_forgotten_after_the_retention_and_not_before(app: Caller, clock: Clock) -> None:
    app.execute(CLAIM, "old", None)
    clock.advance(1)
    app.execute(CLAIM, "young", None)
    clock.advance(3599)

    assert app.value("select fencepost.idempotency_clean('1 hour', 100)") == 0
    clock.advance(1)
    assert app.value("select fencepost.idempotency_clean('1 hour', 100)") == 1

    assert app.column("select key from fencepost.idempotency_keys") == ["young"]
    assert app.row(CLAIM, "old", None)["outcome"] == "claimed"


def test_cleaning_takes_at_most_its_limit_oldest_first(app: Caller, clock: Clock) -> None:
    for key in ("c", "a", "b"):
        app.execute(CLAIM, key, None)
        clock.advance(1)
    clock.advance(3600)

    assert app.value("select fencepost.idempotency_clean('1 hour', 2)") == 2
    assert app.column("select key from fencepost.idempotency_keys") == ["b"]
    assert app.value("select fencepost.idempotency_clean('1 hour', 2)") == 1


def test_cleaning_leaves_a_key_that_another_cleaner_holds(
    app: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    app.execute(CLAIM, "old", None)
    clock.advance(3601)
    other = connect()
    other.execute("begin")
    assert other.value("select fencepost.idempotency_clean('1 hour', 10)") == 1

    assert app.value("select fencepost.idempotency_clean('1 hour', 10)") == 0
    other.execute("rollback")


def test_a_key_cleaned_away_while_its_key_is_claimed_again_is_claimed(
    app: Caller, admin: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    app.execute(CLAIM, "old", None)
    clock.advance(3601)
    # The claim stops where it has met the old key and not yet read it.
    admin.execute("create function public.stop() returns trigger language plpgsql as "
                  "$$ begin perform pg_advisory_xact_lock(1); return null; end $$")  # fmt: skip
    admin.execute("create trigger stop after insert on fencepost.idempotency_key for each statement "
                  "execute function public.stop()")  # fmt: skip
    admin.execute("select pg_advisory_lock(1)")
    claimer = connect()

    with begun(claimer, CLAIM, "old", None) as claimed:
        wait_until_blocked(admin, claimer)
        assert app.value("select fencepost.idempotency_clean('1 hour', 10)") == 1
        admin.execute("select pg_advisory_unlock(1)")

    assert claimed.result() == [{"outcome": "claimed", "response": None}]


def test_two_batches_in_opposite_order_do_not_deadlock(app: Caller, connect: Callable[[], Caller]) -> None:
    first, second = connect(), connect()
    first.execute("begin")
    second.execute("begin")
    first.execute("select fencepost.claim_many('player:7', '{a, b}')")

    answers = second.column("select outcome from fencepost.claim_many('player:7', '{b, a}')")

    assert answers == ["in_flight", "in_flight"]
    for caller in (first, second):
        caller.execute("commit")


def test_the_callers_own_writes_leave_with_the_key(app: Caller, admin: Caller) -> None:
    admin.execute("create table public.player (id int primary key, coins int)")
    admin.execute("grant insert, select on public.player to fencepost_app")

    app.execute("begin")
    app.execute(CLAIM, "req-1", None)
    app.failed("23505", "insert into public.player values (7, 5), (7, 6)")
    app.execute("rollback")

    assert app.rows("select from public.player") == []
    assert app.row(CLAIM, "req-1", None)["outcome"] == "claimed"


EXACT = '{"zeta":1.0,"a":1e2,"text":"Ævar","z":{"y":1,"x":2.50}}'


def test_a_response_is_repeated_byte_by_byte(app: Caller) -> None:
    call = "select outcome, response::text as response from fencepost.claim('s', 'k', 'd', %s::text)"
    assert app.rows(call, EXACT) == [{"outcome": "claimed", "response": EXACT}]
    assert app.rows(call, '"another"') == [{"outcome": "replay", "response": EXACT}]


def test_a_response_that_is_added_later_is_repeated_byte_by_byte(app: Caller) -> None:
    with app.transaction():
        app.execute("select fencepost.claim('s', 'k')")
        app.execute("select fencepost.remember('s', 'k', %s::text)", EXACT)
    assert app.value("select response::text from fencepost.claim('s', 'k', null, null::text)") == EXACT


def test_many_responses_are_repeated_byte_by_byte(app: Caller) -> None:
    call = (
        "select outcome, response::text as response"
        " from fencepost.claim_many('s', array['k'], null, array[%s::text])"
    )
    for outcome in ("claimed", "replay"):
        assert app.rows(call, EXACT) == [{"outcome": outcome, "response": EXACT}]


@pytest.mark.parametrize("form", ["text", "jsonb"])
def test_a_response_of_64_kib_is_kept_and_a_longer_one_is_refused(app: Caller, form: str) -> None:
    call: LiteralString = (
        "select response::text from fencepost.claim('s', %s, null, %s::text)"
        if form == "text"
        else "select response::text from fencepost.claim('s', %s, null, %s::jsonb)"
    )
    longest = '"' + "x" * 65_534 + '"'
    for _ in range(2):
        assert app.value(call, "k1", longest) == longest
    app.failed("ZF100", call, "k2", longest[:-1] + 'x"')


@pytest.mark.parametrize("key", ["", " ", "\t\n"])
def test_a_blank_key_is_refused(app: Caller, key: str) -> None:
    app.failed("ZF100", "select fencepost.claim('s', %s)", key)
    app.failed("ZF100", "select fencepost.claim_many('s', array['k', %s])", key)
