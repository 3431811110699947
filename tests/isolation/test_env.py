"""The stage itself: it plays every order, sees who waits, and calls a deadlock a violation."""

from collections.abc import Iterator
from math import comb

import pytest

from tests.isolation.env import IsolationEnv
from tests.isolation.scenario import COMMIT, Run, Scenario, Session, Step, Violation

STATE = "select writer from isolation.effect order by writer"
WRITE_TWO = ("select fencepost.lease_acquire_many(array['r', 's'], 'a', '1 hour')",)
LOCK_R = Step("r", "select fencepost.lease_release('r', 'a', 1)")
LOCK_S = Step("s", "select fencepost.lease_release('s', 'a', 1)")


def content(_: Run) -> Iterator[str]:
    return iter(())


def never_content(_: Run) -> Iterator[str]:
    yield "it is never right"


def _counts(name: str) -> Session:
    return Session(name, (Step("one", "select 1"), Step("two", "select 2"), COMMIT))


def test_steps_that_do_not_meet_run_in_every_order(env: IsolationEnv) -> None:
    runs = env.explore(Scenario("", (), (_counts("a"), _counts("b")), STATE, content))

    orders = {tuple(each.session for each in run.happened) for run in runs}
    assert len(runs) == len(orders) == comb(6, 3)


def test_a_session_that_waits_does_not_go_on_until_the_other_has_ended(env: IsolationEnv) -> None:
    sessions = (Session("a", (LOCK_R, COMMIT)), Session("b", (LOCK_R, LOCK_S, COMMIT)))

    runs = env.explore(Scenario("", WRITE_TWO, sessions, STATE, content))

    waiting = [run for run in runs if run["b.r"].waited]
    assert len(waiting) == 1
    assert waiting[0]["a.commit"].ended < waiting[0]["b.r"].ended < waiting[0]["b.s"].started


def test_a_slow_statement_is_not_taken_for_one_that_waits(env: IsolationEnv) -> None:
    slow = Step("slow", "select count(*) from generate_series(1, 300000)")

    runs = env.explore(Scenario("", (), (Session("a", (slow, COMMIT)), _counts("b")), STATE, content))

    assert len(runs) == comb(5, 2)
    assert not any(run["a.slow"].waited for run in runs)


def test_a_deadlock_is_a_violation(env: IsolationEnv) -> None:
    sessions = (Session("a", (LOCK_R, LOCK_S, COMMIT)), Session("b", (LOCK_S, LOCK_R, COMMIT)))

    with pytest.raises(Violation, match="there must be no deadlock"):
        env.explore(Scenario("", WRITE_TWO, sessions, STATE, content))


def test_an_error_of_the_judge_tells_the_whole_run(env: IsolationEnv) -> None:
    with pytest.raises(Violation) as caught:
        env.explore(Scenario("a scenario", (), (_counts("a"),), STATE, never_content))

    told = str(caught.value)
    assert all(
        words in told for words in ("a scenario", "it is never right", "a.one -> 1", "a.commit -> commit")
    )
