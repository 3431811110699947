"""State, frontier and sink handles move together, under the token of the lease."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller, refusal_counts
from tests.integration.kernel.overlap import begun, wait_until_blocked

BEGIN = "select fencepost.checkpoint_begin('flow:1', %s)"
STORE = "select fencepost.checkpoint_store('flow:1', %s, %s, %s, %s, %s)"
STORE_CHANGE = "select fencepost.checkpoint_store('flow:1', 1, %s, %s, %s, %s, p_whole => false)"
COMMIT = "select fencepost.checkpoint_commit('flow:1', %s, %s)"
ABORT = "select fencepost.checkpoint_abort('flow:1', %s, %s)"
RESTORE = "select * from fencepost.checkpoint_restore('flow:1', %s)"
PRUNE = "select fencepost.checkpoint_prune('flow:1', 1, %s)"


@pytest.fixture
def owner(app: Caller, clock: Clock) -> Caller:
    """The caller holds the lease of flow:1 under token 1."""
    app.execute("select fencepost.lease_acquire('flow:1', 'a/boot-1', '1 minute')")
    return app


def take_over(caller: Caller, clock: Clock) -> None:
    """From now on the token is 2."""
    clock.advance(60)
    caller.execute("select fencepost.lease_acquire('flow:1', 'b/boot-1', '1 minute')")


def stored(caller: Caller, expected: str | None, frontier: str, state: bytes = b"s") -> int:
    number: int = caller.value(BEGIN, 1)
    caller.execute(STORE, 1, number, expected, frontier, state)
    return number


def restored(caller: Caller, token: int = 1) -> list[tuple[int, str, Any, Any]]:
    rows = caller.rows(RESTORE, token)
    return [(row["number"], row["status"], row["frontier"], row["state"]) for row in rows]


def test_a_checkpoint_is_begun_stored_and_committed(owner: Caller, clock: Clock) -> None:
    assert owner.value("select fencepost.checkpoint_begin('flow:1', 1, '[\"tx-1\"]')") == 1
    owner.execute(
        """select fencepost.checkpoint_store(
             'flow:1', 1, 1, null, '{"p0": 7}', %s, '["tx-1", "tx-2"]')""",
        b"abc",
    )
    clock.advance(1)
    owner.execute(COMMIT, 1, 1)

    now = clock.now()
    row = owner.row("select * from fencepost.checkpoints")
    assert (row["resource"], row["number"], row["token"], row["status"]) == ("flow:1", 1, 1, "committed")
    assert (row["frontier"], row["state_bytes"], row["handles"]) == ({"p0": 7}, 3, ["tx-1", "tx-2"])
    assert (row["committed_at"] - row["stored_at"]).total_seconds() == 1
    assert row["committed_at"] == now


def test_numbers_follow_each_other_for_each_resource(owner: Caller) -> None:
    owner.execute("select fencepost.lease_acquire('flow:2', 'a/boot-1', '1 minute')")

    assert [owner.value(BEGIN, 1), owner.value(BEGIN, 1)] == [1, 2]
    assert owner.value("select fencepost.checkpoint_begin('flow:2', 1)") == 1


def test_two_begins_of_one_holder_get_two_numbers(
    owner: Caller, admin: Caller, connect: Callable[[], Caller]
) -> None:
    first, second = connect(), connect()
    first.execute("begin")
    assert first.value(BEGIN, 1) == 1

    with begun(second, "select fencepost.checkpoint_begin('flow:1', 1) as number") as other:
        wait_until_blocked(admin, second)
        first.execute("commit")

    assert other.result() == [{"number": 2}]


@pytest.mark.parametrize(
    ("expected", "frontier"), [(None, "1"), ("2", "3"), ("{}", "3")], ids=["first", "later", "other"]
)
def test_a_frontier_that_is_not_the_newest_durable_one_is_a_mismatch(
    owner: Caller, expected: str | None, frontier: str
) -> None:
    stored(owner, None, "1")
    number = owner.value(BEGIN, 1)

    refused = owner.refused("mismatch", STORE, 1, number, expected, frontier, b"s")

    assert (refused.noun, refused.subject) == ("checkpoint", "flow:1#2")
    assert refused.seen["frontier"] == 1
    assert owner.value("select status from fencepost.checkpoints where number = 2") == "begun"


def test_a_first_frontier_expects_none(owner: Caller) -> None:
    number = owner.value(BEGIN, 1)

    assert owner.refused("mismatch", STORE, 1, number, "1", "2", b"s").seen["frontier"] is None


def test_an_older_checkpoint_is_not_stored_over_a_newer_one(owner: Caller) -> None:
    older = owner.value(BEGIN, 1)
    newer = stored(owner, None, "1")

    refused = owner.refused("mismatch", STORE, 1, older, "1", "2", b"s")

    assert refused.seen["number"] == newer


def test_what_is_not_begun_is_not_stored(owner: Caller) -> None:
    number = stored(owner, None, "1")
    aborted = owner.value(BEGIN, 1)
    owner.execute(ABORT, 1, aborted)

    assert owner.refused("already_finished", STORE, 1, number, "1", "2", b"s").seen["status"] == "stored"
    assert owner.refused("already_finished", STORE, 1, aborted, "1", "2", b"s").seen["status"] == "aborted"
    assert owner.refused("not_found", STORE, 1, 999, "1", "2", b"s").seen == {}


def test_a_new_owner_does_not_store_what_the_old_one_began(owner: Caller, clock: Clock) -> None:
    number = owner.value(BEGIN, 1)
    take_over(owner, clock)

    refused = owner.refused("not_owner", STORE, 2, number, None, "1", b"s")

    assert refused.seen == {"status": "begun", "token": 1}


@pytest.mark.parametrize("call", [
    "select fencepost.checkpoint_begin('flow:1', %s)",
    "select fencepost.checkpoint_store('flow:1', %s, 1, null, '1', null)",
    "select fencepost.checkpoint_commit('flow:1', %s, 1)",
    "select fencepost.checkpoint_abort('flow:1', %s, 1)",
    "select fencepost.checkpoint_restore('flow:1', %s)",
    "select fencepost.checkpoint_prune('flow:1', %s, 1)",
])  # fmt: skip
def test_every_call_is_fenced_by_the_lease(owner: Caller, clock: Clock, call: Any) -> None:
    stored(owner, None, "1")
    clock.advance(60)
    assert owner.refused("lease_expired", call, 1).noun == "lease"
    owner.execute("select fencepost.lease_acquire('flow:1', 'b/boot-1', '1 minute')")

    assert owner.refused("not_owner", call, 1).seen["token"] == 2
    owner.invalid("token", call, None)


def test_a_resource_without_a_lease_has_no_checkpoints(app: Caller) -> None:
    assert app.refused("not_found", BEGIN, 1).noun == "lease"


def test_committing_twice_is_no_error_and_keeps_the_first_time(owner: Caller, clock: Clock) -> None:
    number = stored(owner, None, "1")
    owner.execute(COMMIT, 1, number)
    first = owner.value("select committed_at from fencepost.checkpoints")
    take_over(owner, clock)

    owner.execute(COMMIT, 2, number)

    assert owner.value("select committed_at from fencepost.checkpoints") == first


def test_a_new_owner_commits_what_the_old_one_stored(owner: Caller, clock: Clock) -> None:
    number = stored(owner, None, "1")
    take_over(owner, clock)

    owner.execute(COMMIT, 2, number)

    assert owner.value("select status from fencepost.checkpoints") == "committed"


def test_only_what_is_durable_is_committed(owner: Caller) -> None:
    number = owner.value(BEGIN, 1)

    refused = owner.refused("mismatch", COMMIT, 1, number)

    assert (refused.subject, refused.seen) == ("flow:1#1", {"status": "begun"})
    owner.execute(ABORT, 1, number)
    assert owner.refused("mismatch", COMMIT, 1, number).seen == {"status": "aborted"}
    owner.refused("not_found", COMMIT, 1, 999)
    assert refusal_counts(owner) == {"mismatch": 2, "not_found": 1}


def test_what_is_durable_is_not_aborted(owner: Caller) -> None:
    number = stored(owner, None, "1")

    assert owner.refused("already_finished", ABORT, 1, number).seen == {"status": "stored"}
    owner.execute(COMMIT, 1, number)
    assert owner.refused("already_finished", ABORT, 1, number).seen == {"status": "committed"}
    owner.refused("not_found", ABORT, 1, 999)


def test_aborting_twice_is_no_error(owner: Caller) -> None:
    number = owner.value(BEGIN, 1)

    owner.execute(ABORT, 1, number)
    owner.execute(ABORT, 1, number)

    assert owner.value("select status from fencepost.checkpoints") == "aborted"


def test_a_restore_of_nothing_is_nothing(owner: Caller) -> None:
    assert restored(owner) == []


def test_a_restore_brings_the_newest_durable_state_and_then_what_was_only_begun(
    owner: Caller, clock: Clock
) -> None:
    stored(owner, None, "1", b"old")
    newest = stored(owner, "1", "2", b"new")
    aborted = owner.value(BEGIN, 1)
    owner.execute(ABORT, 1, aborted)
    begun_only = owner.value("select fencepost.checkpoint_begin('flow:1', 1, '[\"tx\"]')")
    take_over(owner, clock)

    rows = owner.rows(RESTORE, 2)

    assert [(row["number"], row["status"], row["state"]) for row in rows] == [
        (newest, "stored", b"new"),
        (begun_only, "begun", None),
    ]
    assert rows[1]["handles"] == ["tx"]


def test_a_restore_does_not_ask_whether_the_commit_was_noted(owner: Caller) -> None:
    first = stored(owner, None, "1", b"old")
    owner.execute(COMMIT, 1, first)
    newest = stored(owner, "1", "2", b"new")

    assert restored(owner) == [(newest, "stored", 2, b"new")]


def test_a_restore_brings_the_changes_since_the_last_whole_state_oldest_first(owner: Caller) -> None:
    stored(owner, None, "1", b"forgotten")
    whole = stored(owner, "1", "2", b"whole")
    changes = [owner.value(BEGIN, 1), owner.value(BEGIN, 1)]
    owner.execute(STORE_CHANGE, changes[0], "2", "3", b"+1")
    owner.execute(STORE_CHANGE, changes[1], "3", "4", b"+2")
    owner.execute(COMMIT, 1, changes[0])

    assert restored(owner) == [
        (whole, "stored", 2, b"whole"),
        (changes[0], "committed", 3, b"+1"),
        (changes[1], "stored", 4, b"+2"),
    ]


def test_a_change_needs_a_state_that_it_changes(owner: Caller) -> None:
    number = owner.value(BEGIN, 1)

    neither = "select fencepost.checkpoint_store('flow:1', 1, %s, null, '1', null, '[]', null)"
    owner.invalid("whole", neither, number)
    error = owner.failed("ZF100", STORE_CHANGE, number, None, "1", b"+1")
    assert error.diag.message_detail == '{"field": "whole"}'


def test_pruning_keeps_what_a_restore_of_the_kept_ones_needs(owner: Caller) -> None:
    for number in range(1, 7):
        previous = str(number - 1) if number > 1 else None
        begun_number = owner.value(BEGIN, 1)
        if number in (1, 4):
            owner.execute(STORE, 1, begun_number, previous, str(number), b"whole")
        else:
            owner.execute(STORE_CHANGE, begun_number, previous, str(number), b"+")
    before = restored(owner)

    assert owner.value(PRUNE, 4) == 0, "the third needs the first"
    assert owner.value(PRUNE, 3) == 3
    assert owner.value(PRUNE, 1) == 0, "the sixth needs the fourth"
    assert restored(owner) == before
    assert owner.column("select number from fencepost.checkpoints order by number") == [4, 5, 6]


def test_pruning_leaves_what_was_only_begun(owner: Caller) -> None:
    open_number, aborted = owner.value(BEGIN, 1), owner.value(BEGIN, 1)
    owner.execute(ABORT, 1, aborted)
    durable = stored(owner, None, "1")

    assert owner.value(PRUNE, 1) == 1

    assert owner.column("select number from fencepost.checkpoints order by number") == [open_number, durable]


def test_pruning_keeps_at_least_one(owner: Caller) -> None:
    for keep in (0, -1, None):
        owner.invalid("keep", "select fencepost.checkpoint_prune('flow:1', 1, %s::int)", keep)


@pytest.mark.full
def test_a_state_beyond_its_bound_is_named(owner: Caller) -> None:
    number = owner.value(BEGIN, 1)

    owner.invalid(
        "state",
        "select fencepost.checkpoint_store('flow:1', 1, %s, null, '1', decode(repeat('00', %s), 'hex'))",
        number,
        (256 << 20) + 1,
    )
