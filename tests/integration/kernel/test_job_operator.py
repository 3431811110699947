"""What an operator does is guarded by the state that was shown."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller, refusal_counts
from tests.integration.kernel.job_calls import OWNER
from tests.integration.kernel.overlap import begun, wait_until_blocked

CANCEL = "select fencepost.job_cancel(%s, 'carol', %s)"
REPLAY = "select fencepost.job_replay(%s, 'carol', %s)"
DISCARD = "select fencepost.job_discard(%s, 'carol')"


@pytest.mark.parametrize("expected", [None, "pending"])
def test_a_waiting_job_is_cancelled_at_once(app: Caller, clock: Clock, expected: str | None) -> None:
    job_id = job_calls.submit(app)

    assert app.value(CANCEL, job_id, expected) == "cancelled"

    job = job_calls.job(app, job_id)
    assert (job["state"], job["final_status"], job["finished_at"]) == ("cancelled", "cancelled", clock.now())
    assert app.row("select event, actor from fencepost.events") == {"event": "cancelled", "actor": "carol"}


def test_a_dispatched_job_is_cancelled_at_once(app: Caller) -> None:
    assert app.value(CANCEL, job_calls.dispatched(app), "dispatched") == "cancelled"


def test_a_running_job_is_asked_to_stop_and_the_first_request_stays(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    assert app.value(CANCEL, job_id, "running") == "requested"
    first = clock.now()
    clock.advance(5)

    assert app.value(CANCEL, job_id, None) == "requested"

    job = job_calls.job(app, job_id)
    assert (job["state"], job["cancel_requested_at"]) == ("running", first)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (job_calls.submit, "dispatched"),
        (job_calls.submit, "running"),
        (job_calls.dispatched, "pending"),
        (job_calls.running, "pending"),
        (job_calls.dead, None),
    ],
)
def test_a_cancel_of_another_state_than_seen_is_a_mismatch(
    app: Caller, make: Callable[[Caller], int], expected: str | None
) -> None:
    job_id = make(app)
    before = job_calls.state(app, job_id)

    refused = app.refused("mismatch", CANCEL, job_id, expected)

    assert refused.attempted == {"expected": expected, "actor": "carol", "op": "cancel"}
    assert refused.seen["state"] == before == job_calls.state(app, job_id)


def test_what_is_over_is_not_cancelled(app: Caller) -> None:
    assert app.refused("already_finished", CANCEL, job_calls.finished(app), None).seen["owner"] == OWNER
    assert app.refused("cancelled", CANCEL, job_calls.cancelled(app), None).seen["state"] == "cancelled"
    assert app.refused("not_found", CANCEL, 999, None).seen == {}


def test_a_cancel_meets_a_claim_that_is_under_way(
    app: Caller, admin: Caller, connect: Callable[[], Caller]
) -> None:
    job_id = job_calls.submit(app)
    worker, operator = connect(), connect()
    worker.execute("begin")
    job_calls.claim(worker, job_id)

    with begun(operator, "select fencepost.job_cancel(%s, 'carol') as answer", job_id) as cancelled:
        wait_until_blocked(admin, operator)
        worker.execute("commit")

    assert cancelled.result() == [{"answer": "requested"}]


def test_a_replay_begins_the_tries_anew_while_the_attempt_goes_on(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit(app, tries_max=1)
    job_calls.claim(app, job_id)
    assert app.value("select fencepost.job_retry(%s, 1, %s, 'no', '0')", job_id, OWNER) == "dead"
    clock.advance(9)

    app.execute(REPLAY, job_id, "dead")

    job = job_calls.job(app, job_id)
    assert (job["state"], job["attempt"], job["tries"], job["run_at"]) == ("pending", 1, 0, clock.now())
    again = job_calls.claim(app, job_id)
    assert (again["attempt"], again["tries"]) == (2, 1)
    event = app.row("select actor, token, detail from fencepost.events where event = 'replayed'")
    assert (event["actor"], event["token"], event["detail"]["from"], event["detail"]["error"]) == (
        "carol", 1, "dead", "no",
    )  # fmt: skip


def test_a_cancelled_job_is_replayed_when_it_is_called_so(app: Caller) -> None:
    job_id = job_calls.cancelled(app)
    app.refused("cancelled", REPLAY, job_id, "dead")

    app.execute(REPLAY, job_id, "cancelled")

    assert job_calls.state(app, job_id) == "pending"


def test_a_replayed_job_keeps_its_concurrency_key(app: Caller) -> None:
    holder, job_id = (job_calls.submit_keyed(app, "user:7", 1) for _ in range(2))
    app.execute(CANCEL, job_id, None)
    app.execute(REPLAY, job_id, "cancelled")
    job_calls.claim(app, holder)

    assert job_calls.claim_many(app, [job_id])[job_id]["outcome"] == "deferred"


def test_a_replay_is_refused_with_its_reason(app: Caller) -> None:
    assert app.refused("already_finished", REPLAY, job_calls.finished(app), "dead").seen["attempt"] == 1
    assert app.refused("mismatch", REPLAY, job_calls.submit(app), "dead").seen["state"] == "pending"
    assert app.refused("mismatch", REPLAY, job_calls.running(app), "dead").seen["state"] == "running"
    assert app.refused("mismatch", REPLAY, job_calls.dead(app), "cancelled").seen["state"] == "dead"
    assert app.refused("not_found", REPLAY, 999, "dead").seen == {}


def test_a_replay_is_refused_while_another_job_has_its_unique_key(app: Caller) -> None:
    old = job_calls.submit_unique(app, "daily")["job_id"]
    app.execute(CANCEL, old, None)
    new = job_calls.submit_unique(app, "daily")["job_id"]

    refused = app.refused("duplicate", REPLAY, old, "cancelled")

    assert refused.seen == {"job_id": new}
    assert refused.attempted == {"unique_key": "daily", "op": "replay"}
    app.execute(CANCEL, new, None)
    app.execute(REPLAY, old, "cancelled")
    assert job_calls.submit_unique(app, "daily") == {"job_id": old, "created": False}


def test_a_discarded_job_leaves_the_dead(app: Caller) -> None:
    job_id = job_calls.dead(app)

    app.execute(DISCARD, job_id)

    job = job_calls.job(app, job_id)
    assert (job["state"], job["final_status"], job["error"]) == ("cancelled", "discarded", "no such address")
    assert app.refused("cancelled", DISCARD, job_id).attempted["expected"] == "dead"


def test_only_the_dead_are_discarded(app: Caller) -> None:
    app.refused("already_finished", DISCARD, job_calls.finished(app))
    app.refused("mismatch", DISCARD, job_calls.submit(app))
    app.refused("mismatch", DISCARD, job_calls.running(app))
    app.refused("not_found", DISCARD, 999)
    assert refusal_counts(app) == {"already_finished": 1, "mismatch": 2, "not_found": 1}


def test_finished_and_cancelled_jobs_are_forgotten_and_the_dead_stay(app: Caller, clock: Clock) -> None:
    kept = [job_calls.dead(app), job_calls.submit(app), job_calls.running(app)]
    job_calls.finished(app)
    job_calls.cancelled(app)
    clock.advance(1)
    kept.append(job_calls.finished(app))
    clock.advance(3600)

    assert app.value("select fencepost.job_prune('1 hour', 10)") == 2

    assert app.column("select job_id from fencepost.jobs order by job_id") == sorted(kept)
    assert app.value("select fencepost.job_prune('1 hour', 10, true)") == 1, "unless one asks for it"


def test_pruning_takes_the_oldest_up_to_its_limit_and_forgets_the_job_itself(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    job_calls.finished(app)
    clock.advance(1)
    younger = job_calls.finished(app)
    clock.advance(3600)

    assert app.value("select fencepost.job_prune('1 second', 1)") == 1

    assert admin.column("select job_id from fencepost.job") == [younger]


def test_pausing_is_idempotent_and_keeps_the_first(app: Caller, admin: Caller, clock: Clock) -> None:
    app.execute("select fencepost.queue_pause('mail', 'carol')")
    first = clock.now()
    clock.advance(5)
    app.execute("select fencepost.queue_pause('mail', 'dave')")

    queue = admin.row("select paused_at, paused_by from fencepost.job_queue")
    assert queue == {"paused_at": first, "paused_by": "carol"}
    app.execute("select fencepost.queue_resume('mail', 'dave')")
    assert admin.row("select paused_at, paused_by from fencepost.job_queue") == {
        "paused_at": None,
        "paused_by": None,
    }
    events = app.rows("select event, actor from fencepost.events order by event_id")
    assert [(event["event"], event["actor"]) for event in events] == [
        ("paused", "carol"), ("paused", "dave"), ("resumed", "dave"),
    ]  # fmt: skip


def test_counting_leaves_queues_without_a_bound_alone(app: Caller, admin: Caller) -> None:
    app.execute("select fencepost.queue_bound('mail', 10, 'carol')")
    app.execute("select fencepost.queue_pause('other', 'carol')")
    job_calls.submit(app)
    job_calls.submit(app, queue="other")

    app.execute("select fencepost.queue_count()")

    counts = admin.rows("select queue, waiting_now from fencepost.job_queue order by queue")
    assert [(count["queue"], count["waiting_now"]) for count in counts] == [("mail", 1), ("other", 0)]


def test_a_queue_shows_what_it_holds(app: Caller, clock: Clock) -> None:
    job_calls.submit(app)
    job_calls.dispatched(app)
    job_calls.running(app)
    job_calls.dead(app)
    clock.advance(30)

    assert app.row("select * from fencepost.queue_status") == {
        "queue": "mail",
        "pending": 1,
        "dispatched": 1,
        "running": 1,
        "dead": 1,
        "oldest_waiting_seconds": 30.0,
        "paused": False,
        "due": 1,
    }


def test_an_online_judge_finds_its_own_names(app: Caller, clock: Clock) -> None:
    waiting, held = job_calls.submit(app), job_calls.running(app)
    rated = job_calls.running(app)
    app.execute("select fencepost.job_finish(%s, 1, %s, 'AC', '1')", rated, OWNER)
    lost = job_calls.dead(app)

    rows: dict[int, Any] = {
        row.pop("job_id"): row
        for row in app.rows(
            "select job_id, attempt_id, status, state, lease_owner, lease_until from fencepost.submissions"
        )
    }

    until = clock.now() + timedelta(minutes=1)
    assert [tuple(rows[known].values()) for known in (waiting, held, rated, lost)] == [
        (0, "pending", "queued", None, None),
        (1, "running", "processing", OWNER, until),
        (1, "AC", "done", OWNER, None),
        (1, "failed", "done", OWNER, None),
    ]


HURRY = "select fencepost.job_hurry(%s, 'carol')"


def test_one_job_is_hurried_and_no_other(app: Caller, admin: Caller, clock: Clock) -> None:
    later = "select job_id from fencepost.job_submit('mail', 'send', '{}', p_run_at => %s)"
    first, second = (app.value(later, clock.now() + timedelta(hours=1)) for _ in range(2))

    app.execute(HURRY, second)

    due = "select job_id from fencepost.job_waiting where run_at <= %s"
    assert admin.column(due, clock.now()) == [second]
    app.execute(HURRY, first)
    assert admin.column(due + " order by job_id", clock.now()) == [first, second]


def test_what_waits_for_its_batch_is_not_hurried(app: Caller, admin: Caller) -> None:
    job_id = job_calls.submit(app)
    admin.execute("update fencepost.job_waiting set run_at = fencepost._batch_never()")

    app.refused("mismatch", HURRY, job_id)

    assert admin.value("select run_at = fencepost._batch_never() from fencepost.job_waiting")


PAGE = "select * from fencepost.job_page(%s, %s, %s, %s, 10)"
MADE: dict[str, Callable[[Caller], int]] = {
    "pending": job_calls.submit,
    "dispatched": job_calls.dispatched,
    "running": job_calls.running,
    "finished": job_calls.finished,
    "dead": job_calls.dead,
    "cancelled": job_calls.cancelled,
}


@pytest.mark.parametrize("state", MADE)
def test_a_page_has_the_jobs_of_a_state_a_queue_and_a_kind(app: Caller, admin: Caller, state: str) -> None:
    jobs = [MADE[state](app) for _ in range(3)]
    other = MADE["finished" if state == "pending" else "pending"](app)
    of_another_kind = jobs[0]
    admin.execute("update fencepost.job set kind = 'print' where job_id = %s", of_another_kind)

    assert app.column(PAGE, state, None, None, None) == jobs[::-1]
    assert app.column(PAGE, state, "mail", None, None) == jobs[::-1]
    assert app.column(PAGE, state, "elsewhere", None, None) == []
    assert app.column(PAGE, state, None, "print", None) == [of_another_kind]
    assert app.column(PAGE, state, None, "send", None) == jobs[:0:-1]
    assert app.column(PAGE, state, None, None, jobs[2]) == jobs[1::-1]
    assert app.column(PAGE, None, None, None, None) == [other, *jobs[::-1]]
    assert app.column(PAGE, None, None, "print", None) == [of_another_kind]
    assert app.column(PAGE, None, "elsewhere", None, None) == []


def test_a_page_of_a_state_that_there_is_not_is_named(app: Caller) -> None:
    app.invalid("state", PAGE, "lost", None, None, None)


def test_a_driven_job_is_claimed_by_its_own_priority_alone(app: Caller) -> None:
    job_id = job_calls.dispatched(app)
    claim = "select job_id from fencepost.job_claim_next('mail', %s, 'w', 10, null, true)"

    assert app.column(claim, 2) == []
    assert app.column(claim, 1) == [job_id]
