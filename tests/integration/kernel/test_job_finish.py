"""One finishing write, by the holder of the newest attempt."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller, refusal_counts
from tests.integration.kernel.job_calls import OWNER, RIVAL

FENCE = "select fencepost.job_fence(%s, %s, %s)"
FINISH = "select fencepost.job_finish(%s, %s, %s)"
RENEW = "select * from fencepost.job_renew(%s, %s, %s)"
PROGRESS = "select fencepost.job_progress(%s, %s, %s, '{\"percent\": 50}')"
MINUTE = timedelta(minutes=1)

# Every write of an owner, by the way it is refused: all of them carry the attempt.
WRITES: Any = [FENCE, FINISH, RENEW, PROGRESS]
REFUSED_TO_ALL = pytest.mark.parametrize("write", WRITES, ids=["fence", "finish", "renew", "progress"])


def test_a_finished_job_keeps_its_result(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    clock.advance(5)

    app.execute("select fencepost.job_finish(%s, 1, %s, 'accepted', '{\"score\": 100}')", job_id, OWNER)

    job = job_calls.job(app, job_id)
    assert (job["state"], job["final_status"], job["result"]) == ("finished", "accepted", {"score": 100})
    assert (job["attempt"], job["tries"], job["owner"]) == (1, 1, OWNER)
    assert (job["claimed_at"], job["finished_at"]) == (clock.now() - timedelta(seconds=5), clock.now())


def test_a_bare_finish_is_ok(app: Caller) -> None:
    job_id = job_calls.running(app)
    app.execute("select fencepost.job_finish(%s, 1, %s, null)", job_id, OWNER)

    assert job_calls.job(app, job_id)["final_status"] == "ok"


@REFUSED_TO_ALL
def test_a_paused_worker_cannot_write_to_the_next_attempt(app: Caller, clock: Clock, write: Any) -> None:
    job_id = job_calls.running(app)
    clock.advance(60)
    job_calls.claim(app, job_id, RIVAL)

    refused = app.refused("stale_attempt", write, job_id, 1, OWNER)

    assert (refused.noun, refused.subject) == ("job", str(job_id))
    assert (refused.attempted["attempt"], refused.attempted["owner"]) == (1, OWNER)
    assert (refused.seen["state"], refused.seen["attempt"], refused.seen["owner"]) == ("running", 2, RIVAL)


@REFUSED_TO_ALL
def test_the_same_worker_cannot_write_to_its_own_earlier_attempt(
    app: Caller, clock: Clock, write: Any
) -> None:
    job_id = job_calls.running(app)
    clock.advance(60)
    job_calls.claim(app, job_id, OWNER)

    assert app.refused("stale_attempt", write, job_id, 1, OWNER).seen["attempt"] == 2


@REFUSED_TO_ALL
def test_another_owner_is_refused(app: Caller, clock: Clock, write: Any) -> None:
    job_id = job_calls.running(app)

    assert app.refused("not_owner", write, job_id, 1, RIVAL).seen["owner"] == OWNER


@REFUSED_TO_ALL
def test_an_attempt_that_was_never_minted_has_no_owner(app: Caller, clock: Clock, write: Any) -> None:
    job_id = job_calls.running(app)

    assert app.refused("not_owner", write, job_id, 2, OWNER).seen["attempt"] == 1


@REFUSED_TO_ALL
def test_a_write_after_expiry_is_refused_without_a_fence(app: Caller, clock: Clock, write: Any) -> None:
    job_id = job_calls.running(app)
    clock.advance(60)

    refused = app.refused("lease_expired", write, job_id, 1, OWNER)

    assert refused.seen["expires_at"] == clock.now().isoformat()


@REFUSED_TO_ALL
def test_a_write_to_what_does_not_run_is_refused(app: Caller, clock: Clock, write: Any) -> None:
    released, finished = job_calls.running(app), job_calls.finished(app)
    app.execute("select fencepost.job_release(%s, 1, %s)", released, OWNER)
    replayed = job_calls.dead(app)
    app.execute("select fencepost.job_replay(%s, 'carol')", replayed)

    assert app.refused("not_running", write, released, 1, OWNER).seen["state"] == "pending"
    assert app.refused("stale_attempt", write, replayed, 0, OWNER).seen["state"] == "pending"
    assert app.refused("already_finished", write, finished, 1, OWNER).seen["state"] == "finished"
    assert app.refused("already_finished", write, job_calls.dead(app), 1, OWNER).seen["state"] == "dead"
    assert app.refused("stale_attempt", write, job_calls.dead(app), 0, OWNER).seen["attempt"] == 1
    assert app.refused("cancelled", write, job_calls.cancelled(app), 0, OWNER).seen["state"] == "cancelled"
    assert app.refused("not_found", write, 999, 1, OWNER).seen == {}


def test_no_owner_and_no_attempt_are_no_key(app: Caller) -> None:
    job_id = job_calls.running(app)

    for write in WRITES:
        app.invalid("owner", write, job_id, 1, None)
        app.invalid("attempt", write, job_id, None, OWNER)
    assert job_calls.state(app, job_id) == "running"


def test_a_finish_behind_its_fence_is_accepted_after_expiry(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)

    with app.transaction():
        app.execute(FENCE, job_id, 1, OWNER)
        clock.advance(3600)
        app.execute(FINISH, job_id, 1, OWNER)

    assert job_calls.state(app, job_id) == "finished"


def test_a_fence_holds_for_its_own_job_and_transaction_only(app: Caller, clock: Clock) -> None:
    fenced, other = job_calls.running(app), job_calls.running(app)
    app.execute("begin")
    app.execute(FENCE, fenced, 1, OWNER)
    clock.advance(60)
    app.refused("lease_expired", FINISH, other, 1, OWNER)
    app.execute("rollback")

    app.refused("lease_expired", FINISH, fenced, 1, OWNER)


def test_a_fence_undone_by_its_savepoint_fences_nothing(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    app.execute("begin")
    app.execute("savepoint before")
    app.execute(FENCE, job_id, 1, OWNER)
    app.execute("rollback to savepoint before")
    clock.advance(60)

    app.refused("lease_expired", FINISH, job_id, 1, OWNER)
    app.execute("rollback")


def test_several_jobs_are_fenced_in_one_transaction(app: Caller, clock: Clock) -> None:
    first, second = job_calls.running(app), job_calls.running(app)

    with app.transaction():
        app.execute(FENCE, first, 1, OWNER)
        app.execute(FENCE, second, 1, OWNER)
        clock.advance(60)
        finish_both = "select refusal from fencepost.job_finish_many(%s, '{1, 1}', %s)"
        assert app.column(finish_both, [first, second], OWNER) == [None, None]


def test_a_finish_after_a_cancel_is_refused_and_a_fenced_one_wins(
    app: Caller, connect: Callable[[], Caller]
) -> None:
    late, fenced = job_calls.running(app), job_calls.running(app)
    operator = connect()
    operator.execute("select fencepost.job_cancel(%s, 'carol')", late)

    refused = app.refused("cancelled", FINISH, late, 1, OWNER)

    assert refused.seen["cancel_requested_at"] is not None
    app.refused("cancelled", FENCE, late, 1, OWNER)
    app.refused("cancelled", PROGRESS, late, 1, OWNER)
    with app.transaction():
        app.execute(FENCE, fenced, 1, OWNER)
        assert operator.value("select fencepost.job_cancel(%s, 'carol')", fenced) == "requested"
        app.execute(FINISH, fenced, 1, OWNER)
    assert job_calls.state(app, fenced) == "finished"


def test_the_handlers_writes_do_not_commit_when_the_finish_is_refused(app: Caller, admin: Caller) -> None:
    admin.execute("create table public.verdict (job bigint)")
    admin.execute("grant insert, select on public.verdict to fencepost_app")
    job_id = job_calls.running(app)
    app.execute("begin")
    app.execute("insert into public.verdict values (%s)", job_id)
    app.refused("not_owner", FINISH, job_id, 1, RIVAL)

    app.execute("commit")

    assert app.rows("select from public.verdict") == []


def test_many_are_finished_and_one_refusal_spoils_no_other(app: Caller, clock: Clock) -> None:
    expired = job_calls.running(app)
    clock.advance(60)
    plain, rated, theirs = job_calls.running(app), job_calls.running(app), job_calls.running(app, owner=RIVAL)
    done, asked = job_calls.finished(app), job_calls.running(app)
    app.execute("select fencepost.job_cancel(%s, 'carol')", asked)

    answers = app.rows(
        "select * from fencepost.job_finish_many(%s, %s, %s, %s, %s::jsonb[])",
        [999, asked, done, theirs, expired, rated, plain],
        [1, 1, 1, 1, 1, 1, 1],
        OWNER,
        [None, None, None, None, None, "accepted", None],
        [None, None, None, None, None, "7", None],
    )

    assert {answer["job_id"]: answer["refusal"] for answer in answers} == {
        plain: None,
        rated: None,
        expired: "lease_expired",
        theirs: "not_owner",
        done: "already_finished",
        asked: "cancelled",
        999: "not_found",
    }
    assert (job_calls.job(app, rated)["final_status"], job_calls.job(app, rated)["result"]) == ("accepted", 7)
    assert job_calls.job(app, plain)["final_status"] == "ok"
    recorded = app.rows("select subject, reason, attempted ->> 'op' as op from fencepost.refusals")
    assert {(row["subject"], row["op"]) for row in recorded} == {
        (str(known), "finish") for known in (expired, theirs, done, asked, 999)
    }


def test_many_are_renewed_and_one_refusal_spoils_no_other(app: Caller, clock: Clock) -> None:
    expired = job_calls.running(app)
    clock.advance(60)
    mine, asked, theirs = job_calls.running(app), job_calls.running(app), job_calls.running(app, owner=RIVAL)
    app.execute("select fencepost.job_cancel(%s, 'carol')", asked)
    clock.advance(30)

    answers = app.rows(
        "select * from fencepost.job_renew_many(%s, '{1, 1, 1, 1, 1}', %s)",
        [mine, asked, theirs, expired, 999],
        OWNER,
    )

    until = clock.now() + MINUTE
    assert {answer.pop("job_id"): answer for answer in answers} == {
        mine: {"expires_at": until, "cancel_requested": False, "refusal": None},
        asked: {"expires_at": until, "cancel_requested": True, "refusal": None},
        theirs: {"expires_at": None, "cancel_requested": False, "refusal": "not_owner"},
        expired: {"expires_at": None, "cancel_requested": False, "refusal": "lease_expired"},
        999: {"expires_at": None, "cancel_requested": False, "refusal": "not_found"},
    }
    assert refusal_counts(app) == {"not_owner": 1, "lease_expired": 1, "not_found": 1}


def test_a_renewal_that_meets_its_own_finish_is_answered_and_not_recorded(app: Caller, clock: Clock) -> None:
    """Every worker sends some: the beat began before the finish, and nothing is lost. A dead job is."""
    done, buried = job_calls.running(app), job_calls.running(app, tries_max=1)
    app.execute("select fencepost.job_finish(%s, 1, %s)", done, OWNER)
    clock.advance(61)
    app.execute("select * from fencepost.job_reclaim(10)")

    answers = app.rows(
        "select job_id, refusal from fencepost.job_renew_many(%s, '{1, 1}', %s)", [done, buried], OWNER
    )

    assert {answer["refusal"] for answer in answers} == {"already_finished"}
    assert app.rows("select subject from fencepost.refusals") == [{"subject": str(buried)}]


@pytest.mark.parametrize("how", ["release", "retry", "bury"])
def test_a_renewal_that_meets_the_end_that_its_own_worker_gave_it_is_not_recorded(
    app: Caller, clock: Clock, how: str
) -> None:
    """The beat began before the worker left the job: a failed try is no late write, and no zombie."""
    left, again = job_calls.running(app), job_calls.running(app)
    app.execute(
        "select * from fencepost.job_leave_many(%s, '{1, 1}', %s, %s)", [left, again], OWNER, [how, "release"]
    )
    job_calls.claim(app, again, RIVAL)

    answers = app.rows(
        "select job_id, refusal from fencepost.job_renew_many(%s, '{1, 1}', %s)", [left, again], OWNER
    )

    told = "already_finished" if how == "bury" else "not_running"
    assert {answer["job_id"]: answer["refusal"] for answer in answers} == {left: told, again: "stale_attempt"}
    assert app.rows("select subject from fencepost.refusals") == []


def test_a_renewal_of_an_attempt_that_was_taken_away_is_recorded(app: Caller, clock: Clock) -> None:
    """Its worker retried an earlier attempt itself; that excuses no later one."""
    job_id = job_calls.running(app)
    app.execute("select * from fencepost.job_leave_many(%s, '{1}', %s, '{retry}')", [job_id], OWNER)
    job_calls.claim(app, job_id)
    clock.advance(61)
    app.execute("select * from fencepost.job_reclaim(10)")

    answers = app.rows("select refusal from fencepost.job_renew_many(%s, '{2}', %s)", [job_id], OWNER)

    assert [answer["refusal"] for answer in answers] == ["not_running"]
    assert [row["kind"] for row in app.rows("select kind from fencepost.refusals")] == ["late"]


def test_a_renewal_moves_the_end_and_keeps_the_claim(app: Caller, clock: Clock) -> None:
    job_id = job_calls.running(app)
    clock.advance(59)

    assert app.row(RENEW, job_id, 1, OWNER) == {
        "expires_at": clock.now() + MINUTE,
        "cancel_requested": False,
    }
    assert job_calls.job(app, job_id)["claimed_at"] == clock.now() - timedelta(seconds=59)


def test_a_row_that_an_open_finish_holds_is_answered_and_not_waited_for(
    app: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    closing, other = job_calls.running(app), job_calls.running(app)
    finisher = connect()
    finisher.execute("begin")
    finisher.execute(FINISH, closing, 1, OWNER)

    answers = app.rows("select * from fencepost.job_renew_many(%s, '{1, 1}', %s)", [closing, other], OWNER)

    counted = refusal_counts(app)
    app.refused("in_flight", RENEW, closing, 1, OWNER)
    # Before anything is asserted: the clock is not put back while it is open.
    finisher.execute("commit")

    assert {row["job_id"]: row["refusal"] for row in answers} == {closing: "in_flight", other: None}
    assert counted == {}


def test_a_renewal_passes_the_fence_of_its_own_job(
    app: Caller, connect: Callable[[], Caller], clock: Clock
) -> None:
    job_id = job_calls.running(app)
    handler = connect()
    handler.execute("begin")
    handler.execute(FENCE, job_id, 1, OWNER)
    clock.advance(30)

    assert app.row(RENEW, job_id, 1, OWNER)["expires_at"] == clock.now() + MINUTE

    handler.execute(FINISH, job_id, 1, OWNER)
    handler.execute("commit")


def test_progress_is_seen_by_people(app: Caller) -> None:
    job_id = job_calls.running(app)

    app.execute(PROGRESS, job_id, 1, OWNER)

    assert job_calls.job(app, job_id)["progress"] == {"percent": 50}
