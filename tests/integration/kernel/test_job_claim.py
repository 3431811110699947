"""No claim, no execution; and every acquisition mints a new attempt."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller, refusal_counts
from tests.integration.kernel.job_calls import OWNER, RIVAL
from tests.integration.kernel.overlap import begun, wait_until_blocked

CLAIM = "select * from fencepost.job_claim(%s, %s)"
MINUTE = timedelta(minutes=1)


def test_a_claim_brings_all_that_the_handler_needs(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app)

    assert app.row(CLAIM, job_id, OWNER) == {
        "job_id": job_id,
        "attempt": 1,
        "tries": 1,
        "queue": "mail",
        "priority": 1,
        "kind": "send",
        "payload": {"to": 7},
        "headers": {},
        "lease": MINUTE,
        "expires_at": clock.now() + MINUTE,
        "submitted_at": clock.now(),
    }
    running = job_calls.job(app, job_id)
    assert (running["state"], running["owner"], running["claimed_at"]) == ("running", OWNER, clock.now())


def test_a_running_row_keeps_its_attempt(app: Caller, admin: Caller) -> None:
    """A takeover must delete it: that is what a fence keeps out."""
    job_id = job_calls.submit(app)
    app.row(CLAIM, job_id, OWNER)

    with pytest.raises(psycopg.errors.RaiseException, match="another attempt is another row"):
        admin.execute("update fencepost.job_running set attempt = attempt + 1 where job_id = %s", job_id)


def test_the_claimer_may_ask_for_another_lease(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app)

    claimed = app.row("select * from fencepost.job_claim(%s, %s, '5 minutes')", job_id, OWNER)

    assert (claimed["lease"], claimed["expires_at"]) == (5 * MINUTE, clock.now() + 5 * MINUTE)


def test_every_acquisition_mints_an_attempt_and_putting_back_mints_none(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app, tries_max=10)

    assert job_calls.claim(app, job_id)["attempt"] == 1
    app.execute("select fencepost.job_release(%s, 1, %s)", job_id, OWNER)
    assert job_calls.job(app, job_id)["attempt"] == 1
    assert job_calls.claim(app, job_id)["attempt"] == 2
    app.execute("select fencepost.job_retry(%s, 2, %s, 'no', '0')", job_id, OWNER)
    assert job_calls.job(app, job_id)["attempt"] == 2
    assert job_calls.claim(app, job_id)["attempt"] == 3
    clock.advance(60)
    app.execute("select fencepost.job_reclaim(1)")
    assert job_calls.job(app, job_id)["attempt"] == 3
    assert job_calls.claim(app, job_id)["attempt"] == 4


def test_an_expired_job_is_taken_over_under_a_new_attempt(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    app.execute("select fencepost.job_progress(%s, 1, %s, '50')", job_id, OWNER)
    clock.advance(60)

    taken = job_calls.claim(app, job_id, RIVAL)

    assert (taken["attempt"], taken["tries"], taken["expires_at"]) == (2, 2, clock.now() + MINUTE)
    assert job_calls.job(app, job_id)["progress"] is None
    lost = app.row("select event, actor, token, detail ->> 'to' as next from fencepost.events")
    assert lost == {"event": "lost", "actor": OWNER, "token": 1, "next": RIVAL}


def test_the_same_owner_is_a_new_one_after_expiry(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    clock.advance(60)

    assert job_calls.claim(app, job_id)["attempt"] == 2


def test_a_running_job_is_refused_to_its_rival_and_to_its_owner(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    clock.advance(59)

    refused = app.refused("not_owner", CLAIM, job_id, RIVAL)

    assert (refused.noun, refused.subject) == ("job", str(job_id))
    assert refused.attempted == {"owner": RIVAL, "op": "claim"}
    assert refused.seen == {
        "state": "running",
        "attempt": 1,
        "owner": OWNER,
        "expires_at": (clock.now() + timedelta(seconds=1)).isoformat(),
        "cancel_requested_at": None,
    }
    assert app.refused("in_flight", CLAIM, job_id, OWNER).seen["attempt"] == 1


def test_what_is_over_is_refused_with_its_reason(app: Caller) -> None:
    assert app.refused("already_finished", CLAIM, job_calls.finished(app), OWNER).seen["state"] == "finished"
    assert app.refused("already_finished", CLAIM, job_calls.dead(app), OWNER).seen["state"] == "dead"
    assert app.refused("cancelled", CLAIM, job_calls.cancelled(app), OWNER).seen["state"] == "cancelled"
    assert app.refused("not_found", CLAIM, 999, OWNER).seen == {}
    assert refusal_counts(app) == {"already_finished": 2, "cancelled": 1, "not_found": 1}


def test_a_job_that_is_fenced_is_not_taken_over_though_expired(
    app: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    job_id = job_calls.running(app)
    holder = connect()
    holder.execute("begin")
    holder.execute("select fencepost.job_fence(%s, 1, %s)", job_id, OWNER)
    clock.advance(60)

    app.refused("not_owner", CLAIM, job_id, RIVAL)

    holder.execute("rollback")
    assert job_calls.claim(app, job_id, RIVAL)["attempt"] == 2


@pytest.mark.parametrize(("tries_max", "cancel", "state", "reason"), [
    (1, False, "dead", "already_finished"),
    (3, True, "cancelled", "cancelled"),
])  # fmt: skip
def test_a_claim_ends_a_lost_job_that_cannot_go_on(
    app: Caller, clock: Clock, tries_max: int, cancel: bool, state: str, reason: str
) -> None:
    job_id = job_calls.running(app, tries_max=tries_max)
    if cancel:
        app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)
    clock.advance(60)

    answer = job_calls.claim_many(app, [job_id], RIVAL)[job_id]

    assert (answer["outcome"], answer["refusal"]) == ("refused", reason)
    assert job_calls.state(app, job_id) == state


def test_many_are_claimed_and_one_refusal_spoils_no_other(app: Caller, clock: Clock) -> None:
    expired = job_calls.running(app)
    clock.advance(60)
    waiting, driven, held = (
        job_calls.submit(app),
        job_calls.dispatched(app),
        job_calls.running(app, owner="other"),
    )
    done, gone = job_calls.finished(app), job_calls.cancelled(app)

    answers = job_calls.claim_many(app, [999, gone, done, held, driven, waiting, expired, waiting], RIVAL)

    assert {known: (a["outcome"], a["refusal"], a["attempt"]) for known, a in answers.items()} == {
        waiting: ("claimed", None, 1),
        driven: ("claimed", None, 1),
        expired: ("claimed", None, 2),
        held: ("refused", "not_owner", 1),
        done: ("refused", "already_finished", 1),
        gone: ("refused", "cancelled", 0),
        999: ("refused", "not_found", None),
    }
    assert answers[waiting]["payload"] == {"to": 7}
    assert answers[held]["payload"] is None
    assert refusal_counts(app) == {"not_owner": 1, "already_finished": 1, "cancelled": 1, "not_found": 1}
    assert len(app.rows("select from fencepost.refusals")) == 4


def test_a_second_claim_at_the_same_moment_is_answered_too(app: Caller, clock: Clock) -> None:
    held = job_calls.running(app)
    waiting = job_calls.submit(app)

    answers = job_calls.claim_many(app, [held, waiting])

    assert (answers[held]["outcome"], answers[held]["refusal"]) == ("refused", "in_flight")
    assert answers[waiting]["outcome"] == "claimed"
    app.refused("in_flight", CLAIM, held, OWNER)


def test_a_concurrency_key_has_as_many_slots_as_its_limit(app: Caller, clock: Clock) -> None:
    jobs = [job_calls.submit_keyed(app, "user:7", 2) for _ in range(3)]
    free = job_calls.submit_keyed(app, "user:8", 2)

    answers = job_calls.claim_many(app, [*jobs, free])

    assert [answers[job_id]["outcome"] for job_id in [*jobs, free]] == [
        "claimed", "claimed", "deferred", "claimed",
    ]  # fmt: skip
    assert refusal_counts(app) == {}
    waiting = job_calls.job(app, jobs[2])
    assert (waiting["state"], waiting["attempt"], waiting["tries"]) == ("pending", 0, 0)
    assert waiting["run_at"] == clock.now() + timedelta(seconds=5)


@pytest.mark.parametrize("leave", ["finish", "release", "retry", "bury", "expire"])
def test_a_freed_slot_wakes_its_next_waiter(app: Caller, clock: Clock, leave: str) -> None:
    first, second, third = (job_calls.submit_keyed(app, "user:7", 1) for _ in range(3))
    job_calls.claim_many(app, [first, second, third])
    clock.advance(1)
    match leave:
        case "finish":
            app.execute("select fencepost.job_finish(%s, 1, %s)", first, OWNER)
        case "release":
            app.execute("select fencepost.job_release(%s, 1, %s, '1 hour')", first, OWNER)
        case "retry":
            app.execute("select fencepost.job_retry(%s, 1, %s, 'no', '1 hour')", first, OWNER)
        case "bury":
            app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", first, OWNER)
        case _:
            clock.advance(59)
            app.execute("select fencepost.job_reclaim(1)")

    assert job_calls.job(app, second)["run_at"] <= clock.now()
    assert job_calls.claim_many(app, [second, third])[second]["outcome"] == "claimed"
    assert job_calls.claim_many(app, [third])[third]["outcome"] == "deferred"


def test_slots_that_come_free_together_call_as_many(app: Caller, clock: Clock) -> None:
    jobs = [job_calls.submit_keyed(app, "user:7", 2) for _ in range(5)]
    job_calls.claim_many(app, jobs)

    app.execute("select fencepost.job_finish_many(%s::bigint[], '{1, 1}', %s)", jobs[:2], OWNER)

    due = [job_calls.job(app, job_id)["run_at"] <= clock.now() for job_id in jobs[2:]]
    assert due == [True, True, False]


def test_a_slot_is_kept_by_a_takeover(app: Caller, clock: Clock) -> None:
    first, second = (job_calls.submit_keyed(app, "user:7", 1) for _ in range(2))
    job_calls.claim(app, first)
    clock.advance(60)
    job_calls.claim(app, first, RIVAL)

    assert job_calls.claim_many(app, [second])[second]["outcome"] == "deferred"


def test_claiming_one_job_of_a_busy_key_says_in_flight_and_changes_nothing(app: Caller, clock: Clock) -> None:
    first, second = (job_calls.submit_keyed(app, "user:7", 1) for _ in range(2))
    job_calls.claim(app, first)

    refused = app.refused("in_flight", CLAIM, second, OWNER)

    assert refused.seen["state"] == "pending"
    assert job_calls.job(app, second)["run_at"] == clock.now()


def test_two_claims_of_two_keys_in_opposite_order_do_not_deadlock(
    admin: Caller, connect: Callable[[], Caller]
) -> None:
    gate, left, right = connect(), connect(), connect()
    a, b, c, d = (job_calls.submit_keyed(gate, key, 5) for key in ("k1", "k2", "k2", "k1"))
    # Both claims queue for one key, so that each would hold the other's if the order were that of the ids.
    gate.execute("begin")
    gate.execute("select pg_advisory_xact_lock(hashtextextended('k2', 9203))")
    claim_both = "select outcome from fencepost.job_claim_many(%s, %s)"

    with begun(right, claim_both, [c, d], RIVAL) as rights:
        wait_until_blocked(admin, right)
        with begun(left, claim_both, [a, b], OWNER) as lefts:
            wait_until_blocked(admin, left)
            gate.execute("commit")
            assert [row["outcome"] for row in lefts.result() + rights.result()] == ["claimed"] * 4


def test_a_paused_queue_claims_nothing_and_what_runs_goes_on(app: Caller, clock: Clock) -> None:
    held, waiting, driven = job_calls.running(app), job_calls.submit(app), job_calls.dispatched(app)
    app.execute("select fencepost.queue_pause('mail', 'carol')")

    answers = job_calls.claim_many(app, [waiting, driven])

    assert [answer["outcome"] for answer in answers.values()] == ["deferred", "deferred"]
    assert job_calls.state(app, driven) == "pending", "its entry is done with"
    assert app.rows("select * from fencepost.job_claim_next('mail', 1, %s, 10)", OWNER) == []
    app.refused("in_flight", CLAIM, waiting, OWNER)
    app.execute("select fencepost.job_finish(%s, 1, %s)", held, OWNER)
    app.execute("select fencepost.queue_resume('mail', 'carol')")
    assert job_calls.claim(app, waiting)["attempt"] == 1


def test_claiming_without_redis_takes_what_is_due_oldest_first(app: Caller, clock: Clock) -> None:
    later = clock.now() + timedelta(seconds=10)
    app.execute("select fencepost.job_submit('mail', 'send', '{}', p_run_at => %s)", later)
    driven, first, second = job_calls.dispatched(app), job_calls.submit(app), job_calls.submit(app)
    following = "select job_id from fencepost.job_claim_next('mail', 1, %s, %s, null, %s)"

    assert app.column(following, OWNER, 1, False) == [first]
    assert app.column(following, OWNER, 10, False) == [second]
    assert app.column(following, OWNER, 10, False) == []
    assert app.column(following, OWNER, 10, True) == [driven]


def test_two_claimers_without_redis_share_the_work(app: Caller, connect: Callable[[], Caller]) -> None:
    first, second = job_calls.submit(app), job_calls.submit(app)
    other = connect()
    other.execute("begin")
    following = "select job_id from fencepost.job_claim_next('mail', 1, %s, 1)"
    assert other.column(following, RIVAL) == [first]

    assert app.column(following, OWNER) == [second]
    other.execute("rollback")


def test_two_running_rows_cannot_share_a_slot(app: Caller, admin: Caller) -> None:
    first, second = (job_calls.submit_keyed(app, "user:7", 2) for _ in range(2))
    job_calls.claim_many(app, [first, second])

    with pytest.raises(psycopg.errors.UniqueViolation, match="job_running_slot_key"):
        admin.execute("update fencepost.job_running set slot = 0")
