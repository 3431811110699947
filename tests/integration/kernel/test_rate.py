"""Buckets of tokens: whose they are, when they are full, and when to look again."""

from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller

BUCKETS = "select name, key, tokens from fencepost.job_bucket order by name, key"
SUBMIT = """
    select job_id from fencepost.job_submit(
      %s, %s, '{}', p_headers => jsonb_strip_nulls(jsonb_build_object('rate_key', %s::text)))
"""
RATES = "select name, per_second, burst from fencepost.rates order by name"


def submit(app: Caller, queue: str, kind: str, key: str | None = None) -> int:
    job_id: int = app.value(SUBMIT, queue, kind, key)
    return job_id


def outcome(app: Caller, job_id: int) -> str:
    answer: str = app.row("select * from fencepost.job_claim_many(%s, 'w')", [job_id])["outcome"]
    return answer


def buckets(admin: Caller) -> dict[tuple[str, str], float]:
    return {(row["name"], row["key"]): row["tokens"] for row in admin.rows(BUCKETS)}


@pytest.fixture
def limited(app: Caller, clock: Clock) -> Caller:
    """Two queues and two kinds, each with a rate of its own; a third of either has none."""
    app.execute("select fencepost.queue_rate('mail', 1, 10, 'carol')")
    app.execute("select fencepost.queue_rate('post', 1, 20, 'carol')")
    app.execute("select fencepost.rate_declare('{send, print}', '{1, 1}', '{3, 4}')")
    return app


def test_a_job_takes_a_token_of_its_own_queue_and_of_its_own_key_and_of_no_other(
    limited: Caller, admin: Caller
) -> None:
    expected: dict[tuple[str, str], float] = {}
    for queue, kind, key, taken in (
        ("mail", "send", "ann", {("queue:mail", ""): 9, ("kind:send", "ann"): 2}),
        ("mail", "send", "bob", {("queue:mail", ""): 8, ("kind:send", "bob"): 2}),
        ("mail", "send", None, {("queue:mail", ""): 7, ("kind:send", ""): 2}),
        ("post", "print", "ann", {("queue:post", ""): 19, ("kind:print", "ann"): 3}),
        ("post", "fold", "ann", {("queue:post", ""): 18}),
        ("free", "send", "ann", {("kind:send", "ann"): 1}),
        ("free", "fold", None, {}),
    ):
        assert outcome(limited, submit(limited, queue, kind, key)) == "claimed"
        expected |= taken
        assert buckets(admin) == expected, (queue, kind, key)


def test_tokens_are_counted_from_when_they_were_last_taken(
    limited: Caller, admin: Caller, clock: Clock
) -> None:
    for seconds, left in ((0, 2), (0, 1), (0.5, 0.5), (0.5, 0), (60, 2)):
        clock.advance(seconds)
        assert outcome(limited, submit(limited, "free", "send")) == "claimed"
        assert buckets(admin) == {("kind:send", ""): left}


def test_a_caller_that_finds_no_token_is_promised_the_next_and_takes_nothing(
    limited: Caller, admin: Caller, clock: Clock
) -> None:
    jobs = [submit(limited, "mail", "send") for _ in range(6)]
    assert [outcome(limited, job_id) for job_id in jobs] == ["claimed"] * 3 + ["deferred"] * 3
    assert buckets(admin) == {("queue:mail", ""): 7, ("kind:send", ""): 0}
    turns = limited.column("select run_at from fencepost.jobs where state = 'pending' order by job_id")
    assert turns == [clock.now() + timedelta(seconds=seconds) for seconds in (1, 2, 3)]
    clock.advance(1)
    newcomer = submit(limited, "mail", "send")
    assert outcome(limited, newcomer) == "deferred", "the token of this second was promised"
    assert outcome(limited, jobs[3]) == "claimed"
    clock.advance(3)
    assert outcome(limited, submit(limited, "mail", "send")) == "claimed", (
        "the last promise is of this moment"
    )


def test_a_caller_that_finds_no_token_of_its_queue_is_left_to_the_dispatch(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    app.execute("select fencepost.queue_rate('mail', 1, 1, 'carol')")
    first, second = submit(app, "mail", "send"), submit(app, "mail", "send")
    app.execute("select fencepost.job_dispatched(%s, '{1-0}', 'life')", [second])

    assert (outcome(app, first), outcome(app, second)) == ("claimed", "deferred")
    waiting = admin.row("select * from fencepost.job_waiting")
    assert (waiting["run_at"], waiting["deferred_at"], waiting["dispatched_at"]) == (clock.now(), None, None)


def test_a_queue_without_room_is_looked_at_again_when_it_may_have_some(app: Caller, clock: Clock) -> None:
    due = "select fencepost.job_next_due(%s)"
    app.execute("select fencepost.queue_rate('mail', 4, 1, 'carol')")
    app.execute("select fencepost.queue_rate('post', 1000, 1, 'carol')")
    now = clock.now()
    for queue, pause in (("mail", 0.25), ("post", 0.02)):
        first, _ = submit(app, queue, "send"), submit(app, queue, "send")
        assert app.value(due, queue) == now
        app.execute("select fencepost.job_claim(%s, 'w')", first)
        assert app.value(due, queue) == now + timedelta(seconds=pause)
    submit(app, "free", "send")
    assert app.value(due, "free") == now


def test_what_is_on_its_way_takes_room_from_the_dispatch_and_not_from_a_claim(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    room = "select fencepost._rate_room(%s, fencepost.clock(), %s)"
    app.execute("select fencepost.queue_rate('mail', 1, 2.5, 'carol')")
    assert admin.value(room, "mail", True) == admin.value(room, "mail", False) == 2
    jobs = [submit(app, "mail", "send") for _ in range(4)]
    app.execute("select fencepost.job_dispatched(%s, '{1-0, 2-0, 3-0}', 'life')", jobs[:3])
    assert (admin.value(room, "mail", True), admin.value(room, "mail", False)) == (0, 2)
    outcome(app, jobs[3])
    assert (admin.value(room, "mail", True), admin.value(room, "mail", False)) == (0, 1)
    assert admin.value(room, "post", True) is None


@pytest.mark.parametrize(
    ("prepare", "seconds", "pruned"),
    [
        ("select 1", 60, 0),
        ("select 1", 61, 1),
        ("select fencepost.rate_declare('{send}', '{0.01}', '{3}')", 99, 0),
        ("select fencepost.rate_declare('{send}', '{0.01}', '{3}')", 100, 1),
        ("select fencepost.rate_declare('{send}', '{null}', '{null}')", 60, 0),
        ("select fencepost.rate_declare('{send}', '{null}', '{null}')", 61, 1),
        ("update fencepost.job_bucket set promised_until = '2030-01-01 12:02:00+00'", 120, 0),
        ("update fencepost.job_bucket set promised_until = '2030-01-01 12:02:00+00'", 121, 1),
    ],
)
def test_a_bucket_is_forgotten_when_it_is_idle_full_and_promised_to_no_caller(
    app: Caller, admin: Caller, clock: Clock, prepare: Any, seconds: int, pruned: int
) -> None:
    app.execute("select fencepost.rate_declare('{send}', '{1}', '{3}')")
    outcome(app, submit(app, "mail", "send"))
    admin.execute(prepare)
    clock.advance(seconds)

    assert app.value("select fencepost.rate_prune(10)") == pruned


def test_a_rate_is_declared_changed_and_lifted_by_its_name(app: Caller, admin: Caller) -> None:
    def rates() -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in app.rows(RATES)]

    app.execute("select fencepost.rate_declare('{send, print}', '{1, 2}', '{3, 4}')")
    app.execute("select fencepost.queue_rate('mail', 5, 6, 'carol')")
    assert rates() == [("kind:print", 2, 4), ("kind:send", 1, 3), ("queue:mail", 5, 6)]
    versions = "select name, xmin::text from fencepost.job_rate order by name"
    before = admin.rows(versions)
    app.execute("select fencepost.rate_declare('{send, print}', '{1, 2}', '{3, 4}')")
    assert admin.rows(versions) == before, "what is the same is not written again"
    app.execute("select fencepost.rate_declare('{send, print}', '{1, null}', '{9, null}')")
    app.execute("select fencepost.queue_rate('mail', 7, 8, 'carol')")
    assert rates() == [("kind:send", 1, 9), ("queue:mail", 7, 8)]
    app.execute("select fencepost.queue_rate('mail', null, null, 'carol')")
    assert rates() == [("kind:send", 1, 9)]
