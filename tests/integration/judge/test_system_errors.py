"""A judge that produces system errors is taken out of service in the transaction that stores the last."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.test_job_worker import plant

SICK, SICK_TWIN, WELL = "judge@sick:7:0a", "judge@sick:8:0b", "judge@well:7:0c"


@pytest.fixture
def app(database: Database) -> Iterator[Caller]:
    with closing(Caller(database.url)) as caller:
        yield caller


@pytest.fixture
def admin(database: Database) -> Iterator[Caller]:
    with closing(Caller(database.admin_url)) as caller:
        yield caller


@pytest.fixture(autouse=True)
def problems(app: Caller) -> None:
    for slug in ("posts", "gates"):
        app.execute("select fencepost.judge_problem_put(%s, 'Posts', '{}')", slug)


def submitted(app: Caller, slug: str = "posts", tries: int = 2, needs: str = "[]") -> int:
    job_id: int = app.value(
        "select job_id from fencepost.job_submit('judge', 'judge_submission', '{}', p_tries_max => %s,"
        " p_headers => jsonb_build_object('needs', %s::jsonb))",
        tries,
        needs,
    )
    app.execute(
        "select fencepost.judge_submission_put(%s, %s, 'c', 'ann', '{\"m.c\": \"\"}', null)", job_id, slug
    )
    return job_id


def claim(app: Caller, job_id: int, owner: str) -> int:
    attempt: int = app.value("select attempt from fencepost.job_claim(%s, %s)", job_id, owner)
    return attempt


def fail(
    app: Caller, job_id: int, owner: str = SICK, *, cause: str = "judge", **policy: Any
) -> dict[str, Any]:
    """Claim the job and fail at it."""
    return error(app, job_id, claim(app, job_id, owner), owner, cause=cause, **policy)


def error(app: Caller, job_id: int, attempt: int, owner: str, *, cause: str, **policy: Any) -> dict[str, Any]:
    return app.row(
        "select * from fencepost.judge_system_error(%s, %s, %s, 'sandbox: no space left', %s,"
        " '0', %s, %s, %s)",
        job_id,
        attempt,
        owner,
        cause,
        policy.get("in_a_row", 3),
        policy.get("window", 20),
        policy.get("share", 0.5),
    )


def succeed(app: Caller, owner: str, slug: str = "posts", verdict: str = "AC") -> None:
    job_id = submitted(app, slug)
    attempt = claim(app, job_id, owner)
    with app.transaction():
        app.execute(
            "select fencepost.judge_result_put(%s, %s, %s, %s, null, 1, 1, '', '[]', '{}')",
            job_id,
            attempt,
            owner,
            verdict,
        )
        app.execute("select fencepost.job_finish(%s, %s, %s)", job_id, attempt, owner)


def held(admin: Caller) -> list[tuple[str, str, str]]:
    return [(h["target"], h["state"], h["actor"]) for h in admin.rows("select * from fencepost.worker_hold")]


def test_a_judge_with_errors_in_a_row_is_disabled_with_the_last_of_them(app: Caller, admin: Caller) -> None:
    told = [fail(app, submitted(app)) for _ in range(3)]
    assert [one["disabled_for"] is not None for one in told] == [False, False, True]
    assert told[2]["disabled_for"].startswith("3 system errors in a row; the last, at job ")
    assert "sandbox: no space left" in told[2]["disabled_for"]
    assert (told[2]["judge"], told[2]["others"]) == ("judge@sick", 0)
    assert held(admin) == [("judge@sick", "disabled", "judge")]
    # All workers of the judge, and no other.
    waiting = submitted(app)
    assert app.rows("select * from fencepost.job_claim_next('judge', 1, %s, 9)", SICK_TWIN) == []
    assert len(app.rows("select * from fencepost.job_claim_next('judge', 1, %s, 9)", WELL)) == 4
    assert app.value("select owner from fencepost.jobs where job_id = %s", waiting) == WELL


def test_several_sick_judges_are_all_taken_out_and_no_submission_is_charged(
    app: Caller, admin: Caller
) -> None:
    jobs = [submitted(app, tries=1) for _ in range(3)]
    told = [fail(app, job_id, owner) for owner in (SICK, WELL) for job_id in jobs]
    assert {one["outcome"] for one in told} == {"repeated"}
    assert [target for target, _, _ in held(admin)] == ["judge@sick", "judge@well"]
    assert app.column("select tries from fencepost.jobs") == [0, 0, 0]


def test_the_errors_of_all_processes_of_a_judge_count_together(app: Caller, admin: Caller) -> None:
    for owner in (SICK, SICK_TWIN, SICK):
        fail(app, submitted(app), owner)
    assert held(admin) == [("judge@sick", "disabled", "judge")]


def test_a_verdict_in_between_begins_the_row_anew(app: Caller, admin: Caller) -> None:
    for verdict in ("AC", "WA", "CE"):
        fail(app, submitted(app), in_a_row=2)
        succeed(app, SICK, verdict=verdict)
    assert held(admin) == []
    fail(app, submitted(app), in_a_row=2)
    succeed(app, SICK, verdict="SE")
    fail(app, submitted(app), in_a_row=2)
    assert held(admin) == [("judge@sick", "disabled", "judge")]


def test_a_judge_that_fails_now_and_then_is_disabled_by_its_share(app: Caller, admin: Caller) -> None:
    reasons: list[str | None] = []
    for _ in range(4):
        reasons.append(fail(app, submitted(app), window=10, share=0.4)["disabled_for"])
        if reasons[-1] is None:
            succeed(app, SICK)
    assert reasons[:3] == [None] * 3
    assert str(reasons[3]).startswith("4 of its last 10 judgings were system errors; the last, at job")
    assert held(admin) == [("judge@sick", "disabled", "judge")]


def test_errors_that_are_long_ago_do_not_count(app: Caller, admin: Caller) -> None:
    for _ in range(4):
        fail(app, submitted(app), window=4, share=0.5, in_a_row=9)
        assert admin.value("select cardinality(recent) from fencepost.judge_record") <= 4
        for _ in range(3):
            succeed(app, SICK)
    assert held(admin) == []
    succeed(app, SICK)
    assert admin.rows("select * from fencepost.judge_record") == []


@pytest.mark.parametrize(("in_a_row", "share"), [(0, 0.0), (0, 1.0)])
def test_a_rule_is_turned_off_by_zero(app: Caller, admin: Caller, in_a_row: int, share: float) -> None:
    for _ in range(5):
        fail(app, submitted(app), in_a_row=in_a_row, share=share, window=6)
    assert held(admin) == []


def test_the_first_error_of_each_judge_is_not_charged_and_each_further_one_is(
    app: Caller, admin: Caller
) -> None:
    job_id = submitted(app, tries=2)
    told = [fail(app, job_id, owner) for owner in (SICK, WELL, SICK_TWIN, WELL)]
    assert [(one["outcome"], one["blamed"]) for one in told] == [
        ("repeated", True),
        ("repeated", True),
        ("repeated", False),
        ("exhausted", False),
    ]
    # Exhausted: it is still in the hands of the last judge, which ends it with SE.
    seen = app.row("select state, attempt, tries from fencepost.jobs where job_id = %s", job_id)
    assert (seen["state"], seen["attempt"], seen["tries"]) == ("running", 4, 2)
    assert held(admin) == []


def test_one_submission_cannot_take_judges_out_of_service(app: Caller, admin: Caller) -> None:
    job_id = submitted(app, tries=50)
    for _ in range(10):
        fail(app, job_id, SICK, in_a_row=2)
        fail(app, job_id, WELL, in_a_row=2)
    assert held(admin) == []
    assert admin.value("select count(*) from fencepost.judge_system_error") == 20


@pytest.mark.parametrize("cause", ["problem", "store", "data"])
def test_what_no_judge_can_help_blames_none(app: Caller, admin: Caller, cause: str) -> None:
    succeed(app, WELL, "gates")
    for _ in range(5):
        assert fail(app, submitted(app), cause=cause)["blamed"] is False
    assert held(admin) == []


def test_data_that_is_missing_on_one_judge_only_is_blamed_on_it(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    succeed(app, WELL)
    assert [fail(app, submitted(app), cause="data")["blamed"] for _ in range(2)] == [True, True]
    clock.advance(90_000)
    assert fail(app, submitted(app), cause="data")["blamed"] is False


def test_a_person_s_decision_is_kept(app: Caller, admin: Caller) -> None:
    jobs = [submitted(app) for _ in range(3)]
    attempts = [claim(app, job_id, SICK) for job_id in jobs]
    app.execute("select fencepost.worker_disable('judge@sick', 'ann', 'a new disk')")
    told = [
        error(app, job_id, attempt, SICK, cause="judge")
        for job_id, attempt in zip(jobs, attempts, strict=True)
    ]
    assert [one["disabled_for"] for one in told] == [None] * 3
    assert held(admin) == [("judge@sick", "disabled", "ann")]


def test_an_enabled_judge_begins_anew(app: Caller, admin: Caller) -> None:
    for _ in range(3):
        fail(app, submitted(app))
    app.execute("select fencepost.worker_enable('sick', 'ann', 'a new disk')")
    assert fail(app, submitted(app))["disabled_for"] is None
    assert held(admin) == []


def test_error_and_decision_are_one_transaction(app: Caller, admin: Caller) -> None:
    fail(app, submitted(app))
    fail(app, submitted(app))
    job_id = submitted(app)
    attempt = claim(app, job_id, SICK)
    with app.connection.transaction(force_rollback=True):
        assert error(app, job_id, attempt, SICK, cause="judge")["disabled_for"] is not None
    assert held(admin) == []
    assert admin.value("select count(*) from fencepost.judge_system_error") == 2
    assert app.value("select state from fencepost.jobs where job_id = %s", job_id) == "running"


def test_a_judge_that_lost_the_job_says_nothing_about_itself(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    job_id = submitted(app)
    attempt = claim(app, job_id, WELL)
    clock.advance(120)
    claim(app, job_id, SICK)
    app.refused(
        "stale_attempt",
        "select * from fencepost.judge_system_error(%s, %s, %s, 'late', 'judge', '0', 1, 1, 1)",
        job_id,
        attempt,
        WELL,
    )
    assert held(admin) == []
    assert admin.rows("select * from fencepost.judge_record") == []


def list_judge(app: Caller, owner: str, languages: str = '{"c": "12"}') -> None:
    app.rows(
        "select * from fencepost.judge_worker_enter(%s, 'h', '1', %s, 2, 2, 'box', '[]', '15 seconds')",
        owner,
        languages,
    )


def test_a_judge_leaves_what_it_failed_at_to_another_for_a_minute(app: Caller, clock: Clock) -> None:
    asked = "select fencepost.judge_leave_to_others(%s, %s)"
    job_id, other = submitted(app, needs='["language:c"]'), submitted(app)
    list_judge(app, SICK)
    fail(app, job_id)
    assert app.value(asked, job_id, SICK_TWIN) is False, "no other judge is there"
    list_judge(app, WELL, "{}")
    assert app.value(asked, job_id, SICK) is False, "the other has no C"
    list_judge(app, WELL)
    assert [app.value(asked, job_id, one) for one in (SICK, SICK_TWIN, WELL)] == [True, True, False]
    assert app.value(asked, other, SICK) is False, "it has not failed at this one"
    app.execute("select fencepost.worker_disable('well', 'ann', 'a new disk')")
    assert app.value(asked, job_id, SICK) is False, "the other is out of service"
    app.execute("select fencepost.worker_enable('well', 'ann', 'a new disk')")
    clock.advance(61)
    list_judge(app, WELL)
    assert app.value(asked, job_id, SICK) is False, "the other has not taken it for a minute"


def test_old_errors_are_deleted(app: Caller, clock: Clock) -> None:
    fail(app, submitted(app))
    clock.advance(100)
    fail(app, submitted(app))
    assert app.value("select fencepost.judge_system_error_prune('50 seconds', 10)") == 1
    assert app.value("select count(*) from fencepost.judge_system_errors") == 1


BUGS = {
    "a judge's error is charged to the submission": (
        "judge_system_error",
        "perform fencepost.job_release(p_job_id, p_attempt, p_owner, p_delay)",
        "perform fencepost.job_retry(p_job_id, p_attempt, p_owner, p_error, p_delay)",
    ),
    "one submission counts against a judge each time": (
        "judge_system_error",
        "where e.job_id = p_job_id and e.judge = v_judge)",
        "where false)",
    ),
    "errors in a row are counted and nothing follows": (
        "judge_system_error",
        "if v_why is not null then",
        "if false then",
    ),
    "a verdict does not end a row of errors": (
        "_judge_did_well",
        "recent = (r.recent || false)",
        "recent = (r.recent || '{}'::boolean[])",
    ),
}


def taken_out(app: Caller, admin: Caller) -> None:
    """One submission fails again and again, a verdict comes, then three fail in a row."""
    poison = submitted(app, tries=9)
    for _ in range(4):
        fail(app, poison, share=0)
    assert held(admin) == []
    fail(app, submitted(app), share=0)
    succeed(app, SICK)
    jobs = [submitted(app) for _ in range(3)]
    for job_id in jobs:
        assert held(admin) == []
        fail(app, job_id, share=0)
    assert held(admin) == [("judge@sick", "disabled", "judge")]
    assert [app.value("select tries from fencepost.jobs where job_id = %s", one) for one in jobs] == [0] * 3


def test_a_sick_judge_is_taken_out_and_no_other(app: Caller, admin: Caller) -> None:
    taken_out(app, admin)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_seen_by_that(app: Caller, admin: Caller, bug: str) -> None:
    plant(admin, *BUGS[bug])
    with pytest.raises((AssertionError, psycopg.DatabaseError)):
        taken_out(app, admin)
