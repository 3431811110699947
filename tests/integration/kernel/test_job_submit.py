"""Submitting: the job and its waiting row, or neither."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.overlap import begun, wait_until_blocked

SUBMIT = "select * from fencepost.job_submit('mail', 'send', '{}')"
REPEATABLE_READ = "begin isolation level repeatable read"
SERIALIZABLE = "begin isolation level serializable"


def test_a_submitted_job_is_pending_with_all_that_was_asked(app: Caller, clock: Clock) -> None:
    submitted = app.row(
        """select * from fencepost.job_submit('mail', 'send', '{"to": 7}', p_priority => 2, p_run_at => %s,
             p_tries_max => 9, p_lease => '2 minutes', p_unique_key => 'u', p_concurrency_key => 'c',
             p_concurrency_limit => 4, p_headers => '{"trace": "t"}')""",
        clock.now() + timedelta(seconds=5),
    )

    assert submitted["created"]
    assert job_calls.job(app, submitted["job_id"]) == {
        "job_id": submitted["job_id"],
        "queue": "mail",
        "kind": "send",
        "priority": 2,
        "state": "pending",
        "final_status": None,
        "attempt": 0,
        "tries": 0,
        "tries_max": 9,
        "owner": None,
        "run_at": clock.now() + timedelta(seconds=5),
        "claimed_at": None,
        "expires_at": None,
        "finished_at": None,
        "cancel_requested_at": None,
        "progress": None,
        "result": None,
        "error": None,
        "payload": {"to": 7},
        "headers": {"trace": "t"},
        "lease": timedelta(minutes=2),
        "unique_key": "u",
        "concurrency_key": "c",
        "concurrency_limit": 4,
        "submitted_at": clock.now(),
        "tags": [],
    }


def test_a_rolled_back_submission_never_happened(app: Caller) -> None:
    app.execute("begin")
    app.execute(SUBMIT)
    app.execute("rollback")

    assert app.rows("select from fencepost.jobs") == []


def test_a_time_in_the_past_is_now(app: Caller, clock: Clock) -> None:
    past = clock.now() - timedelta(days=1)
    job_id = app.value("select job_id from fencepost.job_submit('mail', 'send', '{}', p_run_at => %s)", past)

    assert job_calls.job(app, job_id)["run_at"] == clock.now()


def test_many_are_submitted_in_the_order_of_their_payloads(app: Caller, clock: Clock) -> None:
    answers = app.rows(
        """select * from fencepost.job_submit_many('mail', 'send', %s::jsonb[],
             p_headers => %s::jsonb[], p_concurrency_keys => %s, p_concurrency_limit => 2)""",
        ["1", "2", "3"],
        [None, '{"h": 1}', None],
        ["c", None, "c"],
    )

    jobs = [job_calls.job(app, answer["job_id"]) for answer in answers]
    assert all(answer["created"] for answer in answers)
    assert [job["payload"] for job in jobs] == [1, 2, 3]
    assert [job["headers"] for job in jobs] == [{}, {"h": 1}, {}]
    assert [job["concurrency_key"] for job in jobs] == ["c", None, "c"]
    assert [job["concurrency_limit"] for job in jobs] == [2, None, 2]


def test_nothing_to_submit_is_nothing(app: Caller) -> None:
    for keys in (None, list[str]()):
        assert (
            app.rows("select * from fencepost.job_submit_many('m', 's', '{}', p_unique_keys => %s)", keys)
            == []
        )


def test_a_unique_key_answers_its_live_job(app: Caller) -> None:
    first = job_calls.submit_unique(app, "daily")

    again = job_calls.submit_unique(app, "daily")

    assert again == {"job_id": first["job_id"], "created": False}
    assert len(app.rows("select from fencepost.jobs")) == 1


@pytest.mark.parametrize("leave", ["finish", "bury", "cancel", "discard"])
def test_a_unique_key_is_free_when_its_job_has_left(app: Caller, leave: str) -> None:
    job_id = job_calls.submit_unique(app, "daily")["job_id"]
    owner = job_calls.OWNER
    match leave:
        case "cancel":
            app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)
        case "finish":
            job_calls.claim(app, job_id)
            app.execute("select fencepost.job_finish(%s, 1, %s)", job_id, owner)
        case _:
            job_calls.claim(app, job_id)
            app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", job_id, owner)

    again = job_calls.submit_unique(app, "daily")

    assert again["created"]
    assert again["job_id"] != job_id


@pytest.mark.parametrize("leave", ["release", "retry", "expire"])
def test_a_unique_key_stays_taken_while_its_job_lives(app: Caller, clock: Clock, leave: str) -> None:
    job_id = job_calls.submit_unique(app, "daily")["job_id"]
    job_calls.claim(app, job_id)
    match leave:
        case "release":
            app.execute("select fencepost.job_release(%s, 1, %s)", job_id, job_calls.OWNER)
        case "retry":
            app.execute("select fencepost.job_retry(%s, 1, %s, 'e', '0')", job_id, job_calls.OWNER)
        case _:
            clock.advance(60)
            app.execute("select fencepost.job_reclaim(1)")

    assert job_calls.submit_unique(app, "daily") == {"job_id": job_id, "created": False}


def test_unique_keys_within_one_batch_answer_the_first(app: Caller) -> None:
    old = job_calls.submit_unique(app, "old")["job_id"]

    answers = app.rows(
        "select * from fencepost.job_submit_many('mail', 'send', %s::jsonb[], p_unique_keys => %s)",
        ["1", "2", "3", "4", "5"],
        ["new", "old", "new", None, None],
    )

    first = answers[0]["job_id"]
    assert [(answer["job_id"], answer["created"]) for answer in answers[:3]] == [
        (first, True), (old, False), (first, False),
    ]  # fmt: skip
    assert [answer["created"] for answer in answers[3:]] == [True, True]
    assert len(app.rows("select from fencepost.jobs")) == 4


@pytest.mark.parametrize(("end", "created"), [("commit", False), ("rollback", True)])
def test_a_submitter_waits_for_the_other_of_the_same_key(
    admin: Caller, connect: Callable[[], Caller], end: Any, created: bool
) -> None:
    first, second = connect(), connect()
    first.execute("begin")
    job_id = job_calls.submit_unique(first, "daily")["job_id"]

    unique = "select * from fencepost.job_submit('mail', 'send', '{}', p_unique_key => 'daily')"
    with begun(second, unique) as answer:
        wait_until_blocked(admin, second)
        first.execute(end)

    (submitted,) = answer.result()
    assert (submitted["created"], submitted["job_id"] == job_id) == (created, not created)


def test_a_key_that_comes_free_while_it_is_asked_for_is_taken(
    app: Caller, admin: Caller, connect: Callable[[], Caller]
) -> None:
    old = job_calls.submit_unique(app, "daily")["job_id"]
    # The submitter stops where it has met the old job and not yet read which one it is.
    admin.execute("create function public.stop() returns trigger language plpgsql as "
                  "$$ begin perform pg_advisory_xact_lock(1); return null; end $$")  # fmt: skip
    admin.execute("create trigger stop after insert on fencepost.job_unique for each statement "
                  "execute function public.stop()")  # fmt: skip
    admin.execute("select pg_advisory_lock(1)")
    submitter = connect()

    unique = "select * from fencepost.job_submit('mail', 'send', '{}', p_unique_key => 'daily')"
    with begun(submitter, unique) as answer:
        wait_until_blocked(admin, submitter)
        app.execute("select fencepost.job_cancel(%s, 'carol')", old)
        admin.execute("select pg_advisory_unlock(1)")

    (submitted,) = answer.result()
    assert submitted["created"]
    assert job_calls.submit_unique(app, "daily") == {"job_id": submitted["job_id"], "created": False}


@pytest.mark.parametrize("begin", [REPEATABLE_READ, SERIALIZABLE])
def test_an_old_snapshot_submits(app: Caller, begin: Any) -> None:
    app.execute(begin)
    job_id = app.row(SUBMIT)["job_id"]
    app.execute("commit")

    assert job_calls.state(app, job_id) == "pending"


@pytest.mark.parametrize("begin", [REPEATABLE_READ, SERIALIZABLE])
def test_an_old_snapshot_may_take_a_key_that_came_free_since(
    app: Caller, connect: Callable[[], Caller], begin: Any
) -> None:
    old = job_calls.submit_unique(app, "daily")["job_id"]
    submitter = connect()
    submitter.execute(begin)
    submitter.execute("select count(*) from fencepost.jobs")
    app.execute("select fencepost.job_cancel(%s, 'carol')", old)

    submitted = job_calls.submit_unique(submitter, "daily")
    submitter.execute("commit")

    assert submitted["created"]
    assert job_calls.submit_unique(app, "daily") == {"job_id": submitted["job_id"], "created": False}


def test_a_full_queue_holds_submissions_back(app: Caller) -> None:
    app.execute("select fencepost.queue_bound('mail', 2, 'carol')")
    job_calls.submit(app)
    job_calls.submit(app)
    app.execute("select fencepost.queue_count()")

    message = app.held_back(SUBMIT)

    assert message == "queue mail has 2 waiting jobs; at most 2 may wait."
    assert len(app.rows("select from fencepost.jobs")) == 2
    assert job_calls.submit(app, queue="other")


def test_a_queue_that_has_room_again_takes_submissions(app: Caller) -> None:
    app.execute("select fencepost.queue_bound('mail', 1, 'carol')")
    job_id = job_calls.submit(app)
    app.execute("select fencepost.queue_count()")
    app.held_back(SUBMIT)
    job_calls.claim(app, job_id)
    app.execute("select fencepost.queue_count()")

    app.row(SUBMIT)

    app.execute("select fencepost.queue_count()")
    app.held_back(SUBMIT)
    app.execute("select fencepost.queue_bound('mail', null, 'carol')")
    app.row(SUBMIT)
