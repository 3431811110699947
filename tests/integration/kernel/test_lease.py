"""One owner at a time, and a new token for every acquisition."""

from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller, refusal_counts

MINUTE = timedelta(minutes=1)


def acquire(caller: Caller, resource: str, owner: str) -> dict[str, Any]:
    return caller.row("select * from fencepost.lease_acquire(%s, %s, '1 minute')", resource, owner)


def test_the_first_owner_gets_the_first_token(app: Caller, clock: Clock) -> None:
    now = clock.now()

    lease = acquire(app, "shard:1", "a/boot-1")

    assert lease == {
        "resource": "shard:1",
        "owner": "a/boot-1",
        "token": 1,
        "acquired": True,
        "acquired_at": now,
        "renewed_at": now,
        "expires_at": now + MINUTE,
    }


def test_acquiring_what_one_holds_renews_it_under_the_same_token(app: Caller, clock: Clock) -> None:
    first = acquire(app, "shard:1", "a/boot-1")
    clock.advance(30)

    again = acquire(app, "shard:1", "a/boot-1")

    assert (again["token"], again["acquired"]) == (first["token"], False)
    assert again["acquired_at"] == first["acquired_at"]
    assert again["renewed_at"] == clock.now()
    assert again["expires_at"] == clock.now() + MINUTE


def test_a_renewal_keeps_token_and_acquisition(app: Caller, clock: Clock) -> None:
    first = acquire(app, "shard:1", "a/boot-1")
    clock.advance(30)

    renewed = app.row("select * from fencepost.lease_renew('shard:1', 'a/boot-1', 1, '2 minutes')")

    assert renewed == {
        "resource": "shard:1",
        "owner": "a/boot-1",
        "token": first["token"],
        "acquired_at": first["acquired_at"],
        "renewed_at": clock.now(),
        "expires_at": clock.now() + 2 * MINUTE,
    }


def test_the_same_owner_gets_a_new_token_after_expiry(app: Caller, clock: Clock) -> None:
    acquire(app, "shard:1", "a/boot-1")
    clock.advance(60)

    again = acquire(app, "shard:1", "a/boot-1")

    assert (again["token"], again["acquired"]) == (2, True)
    assert again["acquired_at"] == clock.now()


def test_a_takeover_after_expiry_grows_the_token_and_is_written_down(app: Caller, clock: Clock) -> None:
    acquire(app, "shard:1", "a/boot-1")
    clock.advance(60)

    assert acquire(app, "shard:1", "b/boot-1")["token"] == 2

    events = app.rows(
        "select event, actor, token, detail ->> 'from' as gone from fencepost.events order by event_id"
    )
    assert events == [
        {"event": "acquired", "actor": "a/boot-1", "token": 1, "gone": None},
        {"event": "taken_over", "actor": "b/boot-1", "token": 2, "gone": "a/boot-1"},
    ]


def test_a_release_does_not_lower_the_token(app: Caller, clock: Clock) -> None:
    acquire(app, "shard:1", "a/boot-1")

    app.execute("select fencepost.lease_release('shard:1', 'a/boot-1', 1)")

    assert app.row("select owner, token, held, expires_at from fencepost.lease_status") == {
        "owner": None,
        "token": 1,
        "held": False,
        "expires_at": clock.now(),
    }
    assert acquire(app, "shard:1", "a/boot-1")["token"] == 2


def test_a_held_lease_is_refused_to_another_with_the_row_that_was_seen(app: Caller, clock: Clock) -> None:
    held = acquire(app, "shard:1", "a/boot-1")
    clock.advance(59)

    refused = app.refused("not_owner", "select fencepost.lease_acquire('shard:1', 'b/boot-1', '1 minute')")

    assert (refused.noun, refused.subject) == ("lease", "shard:1")
    assert refused.attempted == {"owner": "b/boot-1", "op": "acquire"}
    assert refused.seen == {
        "owner": "a/boot-1",
        "token": 1,
        "acquired_at": held["acquired_at"].isoformat(),
        "renewed_at": held["renewed_at"].isoformat(),
        "expires_at": held["expires_at"].isoformat(),
        "judged_at": clock.now().isoformat(),
    }
    assert refusal_counts(app) == {"not_owner": 1}


@pytest.mark.parametrize(
    ("reason", "owner", "token", "seconds"),
    [
        ("not_owner", "b/boot-1", 1, 0),
        ("not_owner", "a/boot-1", 0, 0),
        ("not_owner", "a/boot-1", 2, 0),
        ("not_owner", "a/boot-1", 2, 60),
        ("lease_expired", "a/boot-1", 1, 60),
    ],
)
def test_a_renewal_is_refused(
    app: Caller, clock: Clock, reason: str, owner: str, token: int, seconds: int
) -> None:
    acquire(app, "shard:1", "a/boot-1")
    clock.advance(seconds)

    refused = app.refused(reason, "select fencepost.lease_renew('shard:1', %s, %s, '1 minute')", owner, token)

    assert refused.attempted == {"owner": owner, "token": token, "op": "renew"}
    assert refused.seen["token"] == 1


@pytest.mark.parametrize(
    ("owner", "token"), [("b/boot-1", 1), ("a/boot-1", 0), ("a/boot-1", 2)], ids=["owner", "older", "newer"]
)
def test_a_release_by_any_other_caller_is_refused(app: Caller, clock: Clock, owner: str, token: int) -> None:
    acquire(app, "shard:1", "a/boot-1")

    refused = app.refused("not_owner", "select fencepost.lease_release('shard:1', %s, %s)", owner, token)

    assert refused.seen["owner"] == "a/boot-1"
    assert app.value("select held from fencepost.lease_status")


def test_an_expired_lease_may_still_be_released(app: Caller, clock: Clock) -> None:
    acquire(app, "shard:1", "a/boot-1")
    clock.advance(90)

    app.execute("select fencepost.lease_release('shard:1', 'a/boot-1', 1)")

    assert app.value("select owner from fencepost.lease_status") is None


def test_a_released_lease_has_no_owner(app: Caller, clock: Clock) -> None:
    acquire(app, "shard:1", "a/boot-1")
    app.execute("select fencepost.lease_release('shard:1', 'a/boot-1', 1)")

    for statement in ("select fencepost.lease_renew('shard:1', 'a/boot-1', 1, '1 minute')",
                      "select fencepost.lease_release('shard:1', 'a/boot-1', 1)",
                      "select fencepost.lease_fence('shard:1', 1)"):  # fmt: skip
        assert app.refused("not_owner", statement).seen["owner"] is None


def test_a_resource_that_no_caller_ever_had_is_not_found(app: Caller) -> None:
    for statement in ("select fencepost.lease_renew('none', 'a/boot-1', 1, '1 minute')",
                      "select fencepost.lease_release('none', 'a/boot-1', 1)",
                      "select fencepost.lease_fence('none', 1)",
                      "select fencepost.lease_evict('none', pg_backend_pid(), '0')"):  # fmt: skip
        assert app.refused("not_found", statement).seen == {}
    assert refusal_counts(app) == {"not_found": 4}


def test_the_holder_passes_the_fence_until_its_lease_ends(app: Caller, clock: Clock) -> None:
    acquire(app, "shard:1", "a/boot-1")
    clock.advance(59)
    app.execute("select fencepost.lease_fence('shard:1', 1)")
    clock.advance(1)

    refused = app.refused("lease_expired", "select fencepost.lease_fence('shard:1', 1)")

    assert refused.attempted == {"token": 1, "op": "fence"}
    assert refused.seen["judged_at"] == clock.now().isoformat()


@pytest.mark.parametrize("token", [0, 2])
def test_the_fence_refuses_every_token_but_the_present_one(app: Caller, clock: Clock, token: int) -> None:
    acquire(app, "shard:1", "a/boot-1")

    assert app.refused("not_owner", "select fencepost.lease_fence('shard:1', %s)", token).seen["token"] == 1


def test_no_token_is_no_key_to_the_fence(app: Caller, clock: Clock) -> None:
    acquire(app, "shard:1", "a/boot-1")

    app.invalid("token", "select fencepost.lease_fence('shard:1', null)")
    app.invalid("token", "select fencepost.lease_renew('shard:1', 'a/boot-1', null, '1 minute')")
    app.invalid("token", "select fencepost.lease_release('shard:1', 'a/boot-1', null)")


def test_many_leases_are_acquired_at_once_and_one_refusal_spoils_no_other(app: Caller, clock: Clock) -> None:
    acquire(app, "mine", "a/boot-1")
    acquire(app, "theirs", "b/boot-1")

    answers = app.rows(
        """select resource, owner, token, acquired, refusal
           from fencepost.lease_acquire_many(%s, 'a/boot-1', '1 minute')""",
        ["theirs", "new", "mine", "new"],
    )

    assert answers == [
        {"resource": "mine", "owner": "a/boot-1", "token": 1, "acquired": False, "refusal": None},
        {"resource": "new", "owner": "a/boot-1", "token": 1, "acquired": True, "refusal": None},
        {"resource": "theirs", "owner": "b/boot-1", "token": 1, "acquired": False, "refusal": "not_owner"},
    ]
    recorded = app.row(
        "select reason, noun, subject, actor, seen ->> 'owner' as owner from fencepost.refusals"
    )
    assert recorded == {
        "reason": "not_owner", "noun": "lease", "subject": "theirs", "actor": "a/boot-1", "owner": "b/boot-1",
    }  # fmt: skip
    assert refusal_counts(app) == {"not_owner": 1}


def test_many_leases_are_renewed_each_under_its_token(app: Caller, clock: Clock) -> None:
    acquire(app, "expired", "a/boot-1")
    clock.advance(60)
    acquire(app, "good", "a/boot-1")
    acquire(app, "theirs", "b/boot-1")

    answers = app.rows(
        "select * from fencepost.lease_renew_many(%s, 'a/boot-1', %s, '2 minutes')",
        ["theirs", "good", "expired", "none"],
        [1, 1, 1, 1],
    )

    assert answers == [
        {"resource": "expired", "token": 1, "expires_at": None, "refusal": "lease_expired"},
        {"resource": "good", "token": 1, "expires_at": clock.now() + 2 * MINUTE, "refusal": None},
        {"resource": "none", "token": 1, "expires_at": None, "refusal": "not_found"},
        {"resource": "theirs", "token": 1, "expires_at": None, "refusal": "not_owner"},
    ]
    assert refusal_counts(app) == {"lease_expired": 1, "not_found": 1, "not_owner": 1}
    assert len(app.rows("select from fencepost.refusals")) == 3


def test_a_batch_that_holds_nothing_but_an_old_token_renews_nothing(app: Caller, clock: Clock) -> None:
    acquire(app, "r", "a/boot-1")
    app.execute("select fencepost.lease_release('r', 'a/boot-1', 1)")
    acquire(app, "r", "a/boot-1")
    before = app.value("select expires_at from fencepost.lease_status where resource = 'r'")

    [answer] = app.rows("select * from fencepost.lease_renew_many('{r}', 'a/boot-1', '{1}', '2 minutes')")

    assert (answer["refusal"], answer["expires_at"]) == ("not_owner", None)
    assert app.value("select expires_at from fencepost.lease_status where resource = 'r'") == before


def test_a_batch_that_holds_nothing_but_anothers_lease_renews_nothing(app: Caller, clock: Clock) -> None:
    acquire(app, "theirs", "b/boot-1")
    clock.advance(1)

    [answer] = app.rows(
        "select * from fencepost.lease_renew_many('{theirs}', 'a/boot-1', '{1}', '2 minutes')"
    )

    assert (answer["refusal"], answer["expires_at"]) == ("not_owner", None)
    assert app.value("select renewed_at from fencepost.lease_status") < clock.now()


def test_many_leases_are_released_each_under_its_token(app: Caller, clock: Clock) -> None:
    acquire(app, "expired", "a/boot-1")
    clock.advance(60)
    acquire(app, "good", "a/boot-1")
    acquire(app, "theirs", "b/boot-1")

    answers = app.rows(
        "select * from fencepost.lease_release_many(%s, 'a/boot-1', %s)",
        ["theirs", "good", "expired", "none", "good"],
        [1, 1, 1, 1, 1],
    )

    assert [(answer["resource"], answer["refusal"]) for answer in answers] == [
        ("expired", None),
        ("good", None),
        ("good", "not_owner"),
        ("none", "not_found"),
        ("theirs", "not_owner"),
    ]
    held = {row["resource"]: row["owner"] for row in app.rows("select * from fencepost.lease_status")}
    assert held == {"expired": None, "good": None, "theirs": "b/boot-1"}
    assert acquire(app, "good", "b/boot-1")["token"] == 2
    assert refusal_counts(app) == {"not_owner": 2, "not_found": 1}


def test_a_raised_floor_lifts_every_later_token(app: Caller, admin: Caller, clock: Clock) -> None:
    acquire(app, "old", "a/boot-1")
    admin.execute("update fencepost.token_floor set floor = 1000")
    clock.advance(60)

    assert acquire(app, "old", "a/boot-1")["token"] == 1001
    assert acquire(app, "new", "a/boot-1")["token"] == 1001
    assert acquire(app, "new", "a/boot-1")["token"] == 1001
