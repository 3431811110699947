"""Unique jobs: how long a key is held, which submission takes it over, and what is replaced."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.overlap import begun, wait_until_blocked

HOUR = """select * from fencepost.job_submit('mail', 'send', '{}', p_unique_key => 'daily',
            p_unique_period => '1 hour', p_unique_states => '{waiting,running,finished}')"""
WAITING = """select * from fencepost.job_submit('mail', 'send', '{}', p_unique_key => 'daily',
               p_unique_states => '{waiting}')"""


def end(app: Caller, job_id: int, how: str) -> None:
    if how == "cancelled":
        app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)
        return
    attempt = job_calls.claim(app, job_id)["attempt"]
    if how == "finished":
        app.execute("select fencepost.job_finish(%s, %s, %s)", job_id, attempt, job_calls.OWNER)
    else:
        app.execute("select fencepost.job_bury(%s, %s, %s, 'why')", job_id, attempt, job_calls.OWNER)


def test_a_period_holds_the_key_of_a_finished_job(app: Caller, clock: Clock) -> None:
    first = app.row(HOUR)
    end(app, first["job_id"], "finished")

    assert app.row(HOUR) == {"job_id": first["job_id"], "created": False, "replaced": False}
    clock.advance(3599)
    assert not app.row(HOUR)["created"]
    clock.advance(1)
    again = app.row(HOUR)
    assert again["created"]
    end(app, again["job_id"], "finished")
    assert app.row(HOUR)["job_id"] == again["job_id"], "the new job holds it for an hour of its own"


@pytest.mark.parametrize("how", ["dead", "cancelled"])
def test_a_period_holds_no_key_of_a_job_that_ended_badly(app: Caller, clock: Clock, how: str) -> None:
    first = app.row(HOUR)
    end(app, first["job_id"], how)

    assert app.row(HOUR)["created"]


def test_a_job_that_outlives_its_period_still_holds_the_key(app: Caller, clock: Clock) -> None:
    first = app.row(HOUR)
    clock.advance(7200)
    assert app.row(HOUR)["job_id"] == first["job_id"], "it waits"
    job_calls.claim(app, first["job_id"])
    assert app.row(HOUR)["job_id"] == first["job_id"], "it runs"


def test_a_key_of_waiting_jobs_is_free_when_its_job_runs(app: Caller, clock: Clock) -> None:
    first = app.row(WAITING)
    assert app.row(WAITING)["job_id"] == first["job_id"]
    attempt = job_calls.claim(app, first["job_id"])["attempt"]

    second = app.row(WAITING)
    assert second["created"]
    assert app.row(WAITING)["job_id"] == second["job_id"]
    app.execute("select fencepost.job_finish(%s, %s, %s)", first["job_id"], attempt, job_calls.OWNER)
    assert app.row(WAITING)["job_id"] == second["job_id"], "the end of the first frees no key of the second"


def test_the_end_of_a_job_waits_for_no_submission_that_takes_its_key_over(
    app: Caller, clock: Clock, connect: Callable[[], Caller]
) -> None:
    first = app.row(WAITING)
    attempt = job_calls.claim(app, first["job_id"])["attempt"]
    submitter = connect()
    submitter.execute("begin")
    taken = submitter.row(WAITING)
    assert taken["created"]

    app.execute("set lock_timeout = '5s'")
    app.execute("select fencepost.job_finish(%s, %s, %s)", first["job_id"], attempt, job_calls.OWNER)
    submitter.execute("rollback")

    assert app.row(WAITING)["created"], "the row that was left behind holds nothing"


def test_two_submissions_take_a_key_over_once(
    app: Caller, admin: Caller, clock: Clock, connect: Callable[[], Caller]
) -> None:
    first = app.row(WAITING)
    job_calls.claim(app, first["job_id"])
    one, other = connect(), connect()
    one.execute("begin")
    taken = one.row(WAITING)
    with begun(other, WAITING) as answer:
        wait_until_blocked(admin, other)
        one.execute("commit")

    (submitted,) = answer.result()
    assert (submitted["job_id"], submitted["created"]) == (taken["job_id"], False)


def test_many_with_one_key_do_not_take_it_from_each_other(app: Caller, clock: Clock) -> None:
    answers = app.rows(
        """select * from fencepost.job_submit_many('mail', 'send', '{1, 2}'::jsonb[],
             p_unique_keys => '{a, a}', p_unique_states => '{waiting}')"""
    )
    assert [answer["created"] for answer in answers] == [True, False]
    assert answers[0]["job_id"] == answers[1]["job_id"]


def replacing(*fields: str) -> str:
    return f"{{{','.join(fields)}}}"


REPLACE = """select * from fencepost.job_submit('mail', 'send', '{"to": 2}', p_priority => 3, p_run_at => %s,
  p_tries_max => 9, p_lease => '2 minutes', p_unique_key => 'daily', p_headers => '{"h": 2}',
  p_unique_replace => %s::text[], p_tags => '{new}', p_search_by => '{to}')"""


@pytest.mark.parametrize(
    ("field", "column", "before", "after"),
    [
        ("payload", "payload", {"to": 1}, {"to": 2}),
        ("headers", "headers", {}, {"h": 2}),
        ("tries", "tries_max", 5, 9),
        ("lease", "lease", timedelta(minutes=1), timedelta(minutes=2)),
        ("priority", "priority", 1, 3),
        ("tags", "tags", ["old"], ["new"]),
    ],
)
def test_a_submission_replaces_what_it_names_and_nothing_else(
    app: Caller, clock: Clock, field: str, column: str, before: Any, after: Any
) -> None:
    job_id = app.value(
        """select job_id from fencepost.job_submit('mail', 'send', '{"to": 1}', p_unique_key => 'daily',
             p_tags => '{old}', p_search_by => '{to}')"""
    )
    old = job_calls.job(app, job_id)
    assert old[column] == before

    answer = app.row(REPLACE, clock.now() + timedelta(hours=1), replacing(field))

    assert answer == {"job_id": job_id, "created": False, "replaced": True}
    assert job_calls.job(app, job_id) == old | {column: after}
    found = "select * from fencepost.job_search(%s::text[], %s)"
    by_argument = {"payload": 2}.get(field, 1)
    assert app.column(found, [], f'{{"to": {by_argument}}}') == [job_id]


def test_a_replaced_time_makes_a_dispatched_job_pending(app: Caller, clock: Clock) -> None:
    job_id = job_calls.submit_unique(app, "daily")["job_id"]
    app.execute("select fencepost.job_dispatched(array[%s], '{1-0}', 'life')", job_id)
    later = clock.now() + timedelta(hours=1)

    assert app.row(REPLACE, later, "{run_at}")["replaced"]

    job = job_calls.job(app, job_id)
    assert (job["state"], job["run_at"], job["priority"]) == ("pending", later, 1)
    assert app.value("select outcome from fencepost.job_claim_many(array[%s], 'w')", job_id) == "refused"


@pytest.mark.parametrize("how", ["running", "finished"])
def test_a_job_that_does_not_wait_is_not_replaced(app: Caller, clock: Clock, how: str) -> None:
    first = app.row(HOUR)
    if how == "running":
        job_calls.claim(app, first["job_id"])
    else:
        end(app, first["job_id"], "finished")
    old = job_calls.job(app, first["job_id"])

    assert app.row(REPLACE, clock.now(), replacing("payload", "tags", "run_at")) == {
        "job_id": first["job_id"],
        "created": False,
        "replaced": False,
    }
    assert job_calls.job(app, first["job_id"]) == old


def test_a_claim_and_a_replacement_exclude_each_other(
    app: Caller, admin: Caller, clock: Clock, connect: Callable[[], Caller]
) -> None:
    job_id = job_calls.submit_unique(app, "daily")["job_id"]
    claimer, submitter = connect(), connect()
    claimer.execute("begin")
    job_calls.claim(claimer, job_id)
    with begun(submitter, REPLACE, clock.now(), "{payload}") as answer:
        wait_until_blocked(admin, submitter)
        claimer.execute("commit")

    (submitted,) = answer.result()
    assert (submitted["job_id"], submitted["replaced"]) == (job_id, False)
    assert job_calls.job(app, job_id)["payload"] == {}, "the attempt that runs keeps what it was given"


def test_a_replay_takes_a_key_that_is_held_no_longer(app: Caller, clock: Clock) -> None:
    dead = app.row(HOUR)
    end(app, dead["job_id"], "dead")
    other = app.row(HOUR)
    end(app, other["job_id"], "finished")
    replay = "select fencepost.job_replay(%s, 'carol', 'dead')"

    assert app.refused("duplicate", replay, dead["job_id"]).seen == {"job_id": other["job_id"]}
    clock.advance(3600)
    app.execute(replay, dead["job_id"])
    assert app.row(HOUR)["job_id"] == dead["job_id"]


def test_keys_whose_period_has_passed_are_pruned_and_others_are_not(app: Caller, clock: Clock) -> None:
    first = app.row(HOUR)
    end(app, first["job_id"], "finished")
    clock.advance(3600)
    waiting = app.value(HOUR.replace("daily", "other").replace("select *", "select job_id"))
    clock.advance(3600)

    assert app.value("select fencepost.unique_prune(10)") == 1
    assert app.row(HOUR.replace("daily", "other"))["job_id"] == waiting


def test_a_key_outlives_the_pruning_of_its_job(app: Caller, clock: Clock) -> None:
    first = app.row(HOUR)
    end(app, first["job_id"], "finished")
    clock.advance(60)
    assert app.value("select fencepost.job_prune('1 second', 10)") == 1
    assert app.row(HOUR)["job_id"] == first["job_id"]
