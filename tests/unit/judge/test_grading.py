"""Verdict and score out of single tests."""

import pytest

from fencepost.judge.grading import CaseResult, best, grade, is_lost
from fencepost.judge.problem import Aggregation, Group, Problem, TestCase

DIGEST = "0" * 64


def case(name: str) -> TestCase:
    return TestCase(name=name, input=DIGEST, answer=DIGEST)


def problem(*groups: Group, scoring: bool = True) -> Problem:
    return Problem(slug="p", title="P", scoring=scoring, data=Group(name="data", groups=groups))


def results(**verdicts: str) -> dict[str, CaseResult]:
    return {
        name: CaseResult(name=name, verdict=verdict, time_ms=i, mem_kb=10 * i)
        for i, (name, verdict) in enumerate(verdicts.items(), 1)
    }


SUBTASKS = problem(
    Group(name="one", cases=[case("a"), case("b")], aggregation=Aggregation.MIN, score=30),
    Group(name="two", cases=[case("c"), case("d")], aggregation=Aggregation.MIN, score=70),
)
PLAIN = problem(Group(name="secret", cases=[case("a"), case("b"), case("c")]), scoring=False)


@pytest.mark.parametrize(
    ("verdicts", "verdict", "score"),
    [
        ({"a": "AC", "b": "AC", "c": "AC", "d": "AC"}, "AC", 100),
        ({"a": "AC", "b": "AC", "c": "AC", "d": "WA"}, "PA", 30),
        ({"a": "AC", "b": "AC", "c": "TLE", "d": "SK"}, "PA", 30),
        ({"a": "WA", "b": "SK", "c": "AC", "d": "AC"}, "PA", 70),
        ({"a": "MLE", "b": "SK", "c": "SK", "d": "SK"}, "MLE", 0),
    ],
)
def test_a_subtask_is_all_or_nothing(verdicts: dict[str, str], verdict: str, score: float) -> None:
    got = grade(SUBTASKS, results(**verdicts))

    assert (got.verdict, got.score) == (verdict, score)


def test_the_first_failure_is_the_verdict_and_the_slowest_test_the_time() -> None:
    got = grade(PLAIN, results(a="AC", b="RE", c="WA"))

    assert (got.verdict, got.score, got.time_ms, got.mem_kb) == ("RE", None, 3, 30)


def test_parts_of_a_test_count_as_parts() -> None:
    half = {"a": CaseResult(name="a", verdict="AC", share=0.5), "b": CaseResult(name="b", verdict="AC")}
    summed = problem(Group(name="g", cases=[case("a"), case("b")], score=10))

    assert grade(summed, half).score == 15
    assert best(summed) == 20


def test_a_lost_subtask_is_not_run_further_and_a_sum_is() -> None:
    subtask = SUBTASKS.data.groups[0]
    summed = Group(name="g", cases=[case("a"), case("b")])

    assert is_lost(subtask, results(a="WA"))
    assert not is_lost(subtask, results(a="AC"))
    assert not is_lost(summed, results(a="WA"))
