"""Verdict and score out of single tests."""

import pytest

from fencepost_judge._grading import CaseResult, best, grade, is_lost, points_by_group
from fencepost_judge._problem import Aggregation, Group, Problem, TestCase

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


def test_a_part_of_a_test_neither_loses_its_group_nor_is_all_of_it() -> None:
    """The least of them is half; what is skipped would have made it nothing."""
    least = problem(Group(name="g", cases=[case("a"), case("b")], aggregation=Aggregation.MIN, score=10))
    half = {
        "a": CaseResult(name="a", verdict="PA", share=0.5),
        "b": CaseResult(name="b", verdict="AC"),
    }

    assert not is_lost(least.data.groups[0], half)
    assert (grade(least, half).verdict, grade(least, half).score) == ("PA", 5)


def test_a_caller_that_gets_parts_of_everything_is_accepted_in_part() -> None:
    summed = problem(Group(name="g", cases=[case("a"), case("b")], score=10))
    parts = {name: CaseResult(name=name, verdict="AC", share=0.5) for name in "ab"}

    assert (grade(summed, parts).verdict, grade(summed, parts).score) == ("PA", 10)


@pytest.mark.parametrize(
    ("aggregation", "score"),
    [
        (Aggregation.SUM, 17.5),
        (Aggregation.MIN, 0),
        (Aggregation.MAX, 12.5),
        (Aggregation.AVG, 17.5 / 3),
        (Aggregation.ALL, 0),
    ],
)
def test_tests_are_put_together_as_the_group_says(aggregation: Aggregation, score: float) -> None:
    grouped = problem(
        Group(name="g", cases=[case("a"), case("b"), case("c")], score=5, aggregation=aggregation)
    )
    got = {
        "a": CaseResult(name="a", verdict="AC"),
        "b": CaseResult(name="b", verdict="AC", points=12.5),
        "c": CaseResult(name="c", verdict="WA", points=3),
    }

    assert grade(grouped, got).score == round(score, 6)


def test_all_or_nothing_is_the_groups_score_once() -> None:
    whole = problem(Group(name="g", cases=[case("a"), case("b")], score=40, aggregation=Aggregation.ALL))

    assert grade(whole, results(a="AC", b="AC")).score == 40
    assert best(whole) == 40
    assert is_lost(whole.data.groups[0], results(a="PA"))


def test_points_by_group_add_up_to_the_score() -> None:
    found = results(a="AC", b="AC", c="AC", d="WA")
    mixed = Group(name="data", groups=[*SUBTASKS.data.groups], cases=[case("e")], score=7)

    assert points_by_group(SUBTASKS, found) == {"one": 30, "two": 0}
    assert points_by_group(PLAIN, found) == {}
    whole = Problem(slug="p", title="P", scoring=True, data=mixed)
    with_own = {**found, "e": CaseResult(name="e", verdict="AC")}
    assert sum(points_by_group(whole, with_own).values()) == grade(whole, with_own).score
    assert points_by_group(whole, with_own)["data"] > 0


def test_groups_that_are_not_added_up_are_one() -> None:
    least = Problem(
        slug="p",
        title="P",
        scoring=True,
        data=Group(name="data", groups=SUBTASKS.data.groups, aggregation=Aggregation.MIN),
    )
    alone = Problem(slug="p", title="P", scoring=True, data=Group(name="data", cases=[case("a")], score=5))

    assert points_by_group(least, results(a="AC", b="AC", c="AC", d="WA")) == {"data": 0}
    assert points_by_group(alone, results(a="AC")) == {"data": 5}


def sample(name: str) -> TestCase:
    return TestCase(name=name, input=DIGEST, answer=DIGEST, sample=True)


@pytest.mark.parametrize("mode", list(Aggregation))
def test_samples_count_nothing_whatever_puts_the_groups_together(mode: Aggregation) -> None:
    """Not points that a validator gives them, not their failure, and not as a part of a mean."""
    samples = Group(name="sample", cases=[sample("s")], score=0)
    secret = Group(name="secret", cases=[case("a"), case("b")], score=10)
    data = Group(name="data", groups=[samples, secret], aggregation=mode, score=20)
    both = Problem(slug="p", title="P", scoring=True, data=data)
    right = results(a="AC", b="AC")
    wanted = grade(both, right | results(s="AC")).score

    assert wanted == 20
    for failed in (
        CaseResult(name="s", verdict="WA"),
        CaseResult(name="s", verdict="AC", points=50),
        CaseResult(name="s", verdict="PA", share=0.5),
    ):
        got = grade(both, right | {"s": failed})
        assert (got.verdict, got.score) == ("AC", wanted), failed
        assert "sample" not in points_by_group(both, right | {"s": failed})
    assert best(both) == wanted


def test_where_nothing_is_scored_a_sample_is_a_test_like_any_other() -> None:
    samples = Group(name="sample", cases=[sample("s")])
    plain = problem(samples, Group(name="secret", cases=[case("a")]), scoring=False)

    assert grade(plain, results(s="WA", a="SK")).verdict == "WA"
