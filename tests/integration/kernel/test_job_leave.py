"""How a running job leaves its owner without being finished."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller, refusal_counts
from tests.integration.kernel.job_calls import OWNER, RIVAL

RELEASE = "select fencepost.job_release(%s, %s, %s)"
RETRY = "select fencepost.job_retry(%s, %s, %s, 'smtp said no', '30 seconds')"
BURY = "select fencepost.job_bury(%s, %s, %s, 'no such address')"
WAYS: Any = [RELEASE, RETRY, BURY]
EVERY_WAY = pytest.mark.parametrize("leave", WAYS, ids=["release", "retry", "bury"])


def test_a_release_gives_the_try_back(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)

    assert app.value(RELEASE, job_id, 1, OWNER) == "pending"

    job = job_calls.job(app, job_id)
    assert (job["attempt"], job["tries"], job["run_at"]) == (1, 0, clock.now())
    assert (job["owner"], job["error"]) == (None, None)
    again = job_calls.claim(app, job_id)
    assert (again["attempt"], again["tries"]) == (2, 1)


def test_a_release_may_put_off_the_next_claim(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)

    app.execute("select fencepost.job_release(%s, 1, %s, '30 seconds')", job_id, OWNER)

    assert job_calls.job(app, job_id)["run_at"] == clock.now() + timedelta(seconds=30)


def test_a_release_never_ends_a_job(app: Caller) -> None:
    job_id = job_calls.running(app, tries_max=1)

    assert app.value(RELEASE, job_id, 1, OWNER) == "pending"


def test_a_failed_job_waits_its_delay_and_says_why(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)

    assert app.value(RETRY, job_id, 1, OWNER) == "pending"

    job = job_calls.job(app, job_id)
    assert (job["attempt"], job["tries"], job["error"]) == (1, 1, "smtp said no")
    assert job["run_at"] == clock.now() + timedelta(seconds=30)


def test_a_failed_job_is_dead_after_its_last_try(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app, tries_max=2)
    for attempt, state in ((1, "pending"), (2, "dead")):
        job_calls.claim(app, job_id)
        assert app.value(RETRY, job_id, attempt, OWNER) == state
        clock.advance(30)

    job = job_calls.job(app, job_id)
    assert (job["state"], job["final_status"], job["error"]) == ("dead", "failed", "smtp said no")
    assert (job["owner"], job["finished_at"]) == (OWNER, clock.now() - timedelta(seconds=30))


def test_an_old_entry_does_not_cut_the_delay_of_a_failed_job_short(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    app.value(RETRY, job_id, 1, OWNER)

    answer = job_calls.claim_many(app, [job_id])[job_id]
    assert (answer["outcome"], answer["refusal"]) == ("refused", "not_running")

    clock.advance(30)
    assert job_calls.claim_many(app, [job_id])[job_id]["outcome"] == "claimed"


def test_a_buried_job_is_dead_at_once(app: Caller) -> None:
    job_id = job_calls.running(app)

    assert app.value(BURY, job_id, 1, OWNER) == "dead"
    assert job_calls.job(app, job_id)["error"] == "no such address"


@EVERY_WAY
def test_a_job_asked_to_stop_ends_as_cancelled_however_it_leaves(app: Caller, leave: Any) -> None:
    job_id = job_calls.running(app)
    app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)

    assert app.value(leave, job_id, 1, OWNER) == "cancelled"
    assert job_calls.job(app, job_id)["final_status"] == "cancelled"


@EVERY_WAY
def test_a_zombie_leaves_nothing(app: Caller, clock: Clock, leave: Any) -> None:
    job_id = job_calls.running(app)
    clock.advance(60)

    assert app.refused("lease_expired", leave, job_id, 1, OWNER).seen["owner"] == OWNER
    job_calls.claim(app, job_id, RIVAL)
    refused = app.refused("stale_attempt", leave, job_id, 1, OWNER)
    assert (refused.seen["attempt"], refused.seen["owner"]) == (2, RIVAL)
    assert job_calls.state(app, job_id) == "running"


@EVERY_WAY
def test_leaving_is_refused_with_its_reason(app: Caller, leave: Any) -> None:
    released = job_calls.running(app)
    app.execute(RELEASE, released, 1, OWNER)

    assert app.refused("not_owner", leave, job_calls.running(app), 1, RIVAL).seen["owner"] == OWNER
    assert app.refused("not_owner", leave, job_calls.running(app), 9, OWNER).seen["attempt"] == 1
    assert app.refused("not_running", leave, released, 1, OWNER).seen["state"] == "pending"
    assert app.refused("already_finished", leave, job_calls.finished(app), 1, OWNER).seen["attempt"] == 1
    assert app.refused("cancelled", leave, job_calls.cancelled(app), 0, OWNER).seen["state"] == "cancelled"
    assert app.refused("not_found", leave, 999, 1, OWNER).seen == {}
    app.invalid("owner", leave, released, 1, None)
    app.invalid("attempt", leave, released, None, OWNER)


@EVERY_WAY
def test_a_fenced_job_may_leave_after_expiry(app: Caller, clock: Clock, leave: Any) -> None:
    job_id = job_calls.running(app)

    with app.transaction():
        app.execute("select fencepost.job_fence(%s, 1, %s)", job_id, OWNER)
        clock.advance(60)
        app.execute(leave, job_id, 1, OWNER)

    assert job_calls.state(app, job_id) in ("pending", "dead")


def test_many_leave_each_in_its_way_and_one_refusal_spoils_no_other(app: Caller, clock: Clock) -> None:
    expired = job_calls.running(app)
    clock.advance(60)
    back, again, buried, cancelled = (job_calls.running(app) for _ in range(4))

    answers = app.rows(
        """select * from fencepost.job_leave_many(
             %s, '{1, 1, 1, 1, 1, 1}', %s, '{release, retry, bury, retry, retry, cancel}',
             %s, %s::interval[])""",
        [back, again, buried, expired, 999, cancelled],
        OWNER,
        [None, "later", "never", None, None, "gone"],
        [None, "10 seconds", None, None, None, None],
    )

    assert [(row["job_id"], row["state"], row["refusal"]) for row in answers] == [
        (expired, None, "lease_expired"),
        (back, "pending", None),
        (again, "pending", None),
        (buried, "dead", None),
        (cancelled, "cancelled", None),
        (999, None, "not_found"),
    ]
    assert job_calls.job(app, again)["run_at"] == clock.now() + timedelta(seconds=10)
    assert [job_calls.job(app, known)["error"] for known in (again, buried, cancelled)] == [
        "later",
        "never",
        "gone",
    ]
    assert refusal_counts(app) == {"lease_expired": 1, "not_found": 1}
    assert app.column("select attempted ->> 'op' from fencepost.refusals") == ["retry", "retry"]


def test_a_traceback_is_kept_with_its_try_and_only_its_end(app: Caller) -> None:
    failed, silent = job_calls.running(app), job_calls.running(app)
    app.rows(
        "select * from fencepost.job_leave_many(%s, '{1, 1}', %s, '{retry, retry}', null, null, %s)",
        [failed, silent],
        OWNER,
        ["x" * 9000 + "the end", None],
    )
    history = "select detail from fencepost.explain(%s) where event = 'failed'"
    kept = app.value(history, f"job:{failed}")
    assert (kept["try"], len(kept["traceback"]), kept["traceback"][-7:]) == (1, 8192, "the end")
    assert kept.keys() - app.value(history, f"job:{silent}").keys() == {"try", "traceback"}


def test_a_lost_job_waits_again_without_losing_count(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    clock.advance(69)
    assert app.rows("select * from fencepost.job_reclaim(10, '10 seconds')") == []
    clock.advance(1)

    assert app.row("select * from fencepost.job_reclaim(10, '10 seconds')") == {
        "job_id": job_id,
        "attempt": 1,
        "owner": OWNER,
        "state": "pending",
        "charged": True,
        "queue": "mail",
        "kind": "send",
        "trace_id": None,
    }

    job = job_calls.job(app, job_id)
    assert (job["attempt"], job["tries"], job["error"]) == (
        1,
        1,
        "its lease expired while no other job ran in its worker",
    )
    assert job["run_at"] == clock.now()


def test_a_job_that_kills_its_worker_ends_too(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app, tries_max=2)
    states: list[str] = []
    for _ in range(2):
        job_calls.claim(app, job_id)
        clock.advance(60)
        states += app.column("select state from fencepost.job_reclaim(10)")

    assert states == ["pending", "dead"]
    job = job_calls.job(app, job_id)
    assert (job["final_status"], job["error"]) == (
        "worker_lost",
        "its lease expired while no other job ran in its worker, in its last try",
    )


def test_a_lost_job_that_was_asked_to_stop_is_cancelled(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)
    clock.advance(60)

    assert app.column("select state from fencepost.job_reclaim(10)") == ["cancelled"]
    assert job_calls.state(app, job_id) == "cancelled"


def test_reclaiming_takes_the_longest_lost_first_up_to_its_limit(app: Caller, clock: Clock) -> None:
    first = job_calls.running(app)
    clock.advance(1)
    second = job_calls.running(app)
    clock.advance(60)

    assert app.column("select job_id from fencepost.job_reclaim(1)") == [first]
    assert app.column("select job_id from fencepost.job_reclaim(1)") == [second]


def test_a_fenced_job_is_skipped_by_the_reclaimer_and_named_as_blocked(
    app: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    free, fenced = job_calls.running(app), job_calls.running(app)
    holder = connect()
    holder.execute("begin")
    holder.execute("select fencepost.job_fence(%s, 1, %s)", fenced, OWNER)
    clock.advance(60)

    assert app.column("select fencepost.job_blocked(10)") == [fenced]
    assert app.column("select job_id from fencepost.job_reclaim(10)") == [free]
    holder.execute("select fencepost.job_finish(%s, 1, %s)", fenced, OWNER)
    holder.execute("commit")
    assert job_calls.state(app, fenced) == "finished"


def test_reclaiming_one_says_why_it_may_not(app: Caller, clock: Clock) -> None:
    reclaim = "select fencepost.job_reclaim_one(%s, %s)"
    job_id = job_calls.running(app)
    clock.advance(60)
    assert app.refused("not_owner", reclaim, job_id, "1 second").seen["owner"] == OWNER
    assert app.value(reclaim, job_id, "0") == "pending"

    assert app.refused("not_running", reclaim, job_id, "0").seen["state"] == "pending"
    assert app.refused("already_finished", reclaim, job_calls.finished(app), "0").seen["state"] == "finished"
    assert app.refused("cancelled", reclaim, job_calls.cancelled(app), "0").seen["state"] == "cancelled"
    assert app.refused("not_found", reclaim, 999, "0").seen == {}


def test_what_did_not_finish_is_written_down(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app, tries_max=5)
    app.execute(RELEASE, job_id, 1, OWNER)
    job_calls.claim(app, job_id)
    app.execute(RETRY, job_id, 2, OWNER)
    clock.advance(30)
    job_calls.claim(app, job_id)
    clock.advance(60)
    app.execute("select fencepost.job_reclaim(1)")
    job_calls.claim(app, job_id)
    app.execute(BURY, job_id, 4, OWNER)

    events = app.rows("select event, token, detail ->> 'to' as next from fencepost.events order by event_id")
    assert [(event["event"], event["token"], event["next"]) for event in events] == [
        ("released", 1, "pending"),
        ("failed", 2, "pending"),
        ("lost", 3, "pending"),
        ("buried", 4, "dead"),
    ]
