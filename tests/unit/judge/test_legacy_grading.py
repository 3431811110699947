"""Grading of the old package format: groups in groups, each with its rules."""

from collections.abc import Mapping

import pytest

from fencepost_judge._grading import CaseResult, aim, best, grade
from fencepost_judge._legacy_grading import Graded, Question, grade_group
from fencepost_judge._problem import Aggregation, Group, Problem, Rules, TestCase, VerdictMode
from fencepost_judge._test_order import in_test_order

EMPTY = "0" * 64


def cases(*names: str) -> list[TestCase]:
    return [TestCase(name=name, input=EMPTY, answer=EMPTY) for name in names]


def problem(*groups: Group, rules: Rules | None = None, **more: object) -> Problem:
    data = Group(name="data", groups=groups, rules=rules or Rules(stops=False))
    return Problem.model_validate({"slug": "p", "title": "P", "scoring": True, "data": data, **more})


def results(verdicts: Mapping[str, str]) -> dict[str, CaseResult]:
    return {name: CaseResult(name=name, verdict=verdict) for name, verdict in verdicts.items()}


def secret(**rules: object) -> Group:
    return Group(name="secret", cases=cases("secret/1", "secret/2", "secret/3"), rules=Rules(**rules))  # type: ignore[arg-type]


WORST = {"secret/1": "WA", "secret/2": "TLE", "secret/3": "RE"}


@pytest.mark.parametrize(
    ("mode", "verdict"), [(VerdictMode.WORST, "RE"), (VerdictMode.FIRST, "WA"), (VerdictMode.ALWAYS, "AC")]
)
def test_a_verdict_of_several(mode: VerdictMode, verdict: str) -> None:
    pass_fail = problem(secret(stops=False, verdict=mode), scoring=False)

    assert grade(pass_fail, results(WORST)).verdict == verdict


def test_a_group_that_ends_at_a_rejection_counts_nothing_behind_it() -> None:
    """Also when tests beside each other have results that come too late."""
    one = problem(secret(verdict=VerdictMode.ALWAYS))

    got = grade(one, results({"secret/1": "AC", "secret/2": "WA", "secret/3": "AC"}))
    assert (got.verdict, got.score) == ("PA", 1)


def test_samples_count_nothing_in_any_mode_but_their_verdict_does() -> None:
    sample = Group(name="sample", cases=cases("sample/1"), rules=Rules(accept_score=50))
    right = {"sample/1": "AC", "secret/1": "AC", "secret/2": "AC", "secret/3": "AC"}
    for mode, score in (
        (Aggregation.SUM, 3),
        (Aggregation.MIN, 3),
        (Aggregation.MAX, 3),
        (Aggregation.AVG, 3),
    ):
        one = problem(sample, secret(), rules=Rules(stops=False, score=mode))
        assert (best(one), grade(one, results(right)).score) == (score, score)

    wrong = results(right | {"sample/1": "WA"})
    counting = problem(sample, secret(), rules=Rules(stops=False))
    ignoring = problem(sample, secret(), rules=Rules(stops=False, ignore_sample=True))
    assert (grade(counting, wrong).verdict, grade(counting, wrong).score) == ("WA", 0)
    assert (grade(ignoring, wrong).verdict, grade(ignoring, wrong).score) == ("AC", 3)


def test_part_of_a_sample_makes_no_part_of_the_whole() -> None:
    samples = [TestCase(name="sample/1", input=EMPTY, answer=EMPTY, sample=True)]
    sample = Group(name="sample", cases=samples, rules=Rules())
    one = problem(sample, secret(), rules=Rules(stops=False, ignore_sample=True), validator_scores=True)
    right = results({"secret/1": "AC", "secret/2": "AC", "secret/3": "AC"})
    part = CaseResult(name="sample/1", verdict="AC", share=0.5)
    wrong = CaseResult(name="sample/1", verdict="WA")

    assert grade(one, right | {"sample/1": part}).verdict == "AC"
    assert grade(one, right | {"sample/1": wrong}).verdict == "AC"
    assert grade(one, right | {"secret/2": CaseResult(name="secret/2", verdict="AC", share=0.5)}).verdict == (
        "PA"
    )


def test_less_than_the_most_is_a_part_and_the_package_says_what_the_most_is() -> None:
    right = results({"secret/1": "AC", "secret/2": "AC", "secret/3": "AC"})
    ranged = problem(secret(most=10), validator_scores=True)
    unknown = problem(secret(), validator_scores=True)
    least = problem(secret(least=3), objective="min")

    assert (aim(ranged), grade(ranged, right).verdict) == (10, "PA")
    assert (aim(unknown), grade(unknown, right).verdict) == (None, "AC")
    assert (aim(least), grade(least, right).verdict) == (3, "AC")


def test_points_of_a_validator_are_the_score_of_its_test() -> None:
    given = results({"secret/1": "AC", "secret/2": "AC", "secret/3": "AC"})
    given["secret/2"] = CaseResult(name="secret/2", verdict="AC", points=7.5)

    assert grade(problem(secret(), validator_scores=True), given).score == 9.5


def test_a_grader_is_asked_from_the_inside_out_and_believed() -> None:
    inner = Group(
        name="secret/g",
        cases=cases("secret/g/1", "secret/g/2"),
        rules=Rules(grader_flags=["in"], stops=False),
    )
    outer = Group(name="secret", groups=[inner], rules=Rules(grader_flags=["out"]))
    steps = grade_group(outer, results({"secret/g/1": "MLE", "secret/g/2": "PA"}))

    first = next(steps)
    assert first == Question("secret/g", ["in"], [Graded("MLE", 0), Graded("AC", 1)])
    assert first.lines == b"RTE 0\nAC 1\n"
    second = steps.send(Graded("RTE", 30))
    assert second == Question("secret", ["out"], [Graded("MLE", 30)])
    with pytest.raises(StopIteration) as done:
        steps.send(Graded("AC", 60))
    assert done.value.value == Graded("AC", 60)


def run_in_turn(one: Problem, verdicts: Mapping[str, str], *, at_once: int = 1) -> list[str]:
    known: dict[str, CaseResult] = {}
    ran: list[str] = []
    waiting = in_test_order(one, known)
    while turn := [case for _, case in zip(range(at_once), waiting, strict=False)]:
        for case in turn:
            ran.append(case.name)
            known[case.name] = CaseResult(name=case.name, verdict=verdicts.get(case.name, "AC"))
    skipped = [name for name, result in known.items() if result.verdict == "SK"]
    assert len(ran) + len(skipped) == len(list(one.data.all_cases()))
    return ran


def test_tests_behind_a_rejection_are_not_run() -> None:
    g1 = Group(name="secret/1", cases=cases("secret/1/a", "secret/1/b"), rules=Rules())
    g2 = Group(name="secret/2", cases=cases("secret/2/a"), rules=Rules())
    going_on = problem(Group(name="secret", groups=[g1, g2], rules=Rules(stops=False)))
    stopping = problem(Group(name="secret", groups=[g1, g2], rules=Rules()))
    accepting = g1.model_copy(update={"rules": Rules(verdict=VerdictMode.ALWAYS)})
    content = problem(Group(name="secret", groups=[accepting, g2], rules=Rules()))
    wrong = {"secret/1/a": "WA"}

    assert run_in_turn(going_on, wrong) == ["secret/1/a", "secret/2/a"]
    assert run_in_turn(stopping, wrong) == ["secret/1/a"]
    assert run_in_turn(content, wrong) == ["secret/1/a", "secret/2/a"]
    assert run_in_turn(stopping, {}, at_once=2) == ["secret/1/a", "secret/1/b", "secret/2/a"]


def test_tests_and_groups_beside_each_other_come_by_name() -> None:
    inner = Group(name="secret/b", cases=cases("secret/b/1"), rules=Rules())
    one = problem(Group(name="secret", cases=cases("secret/a", "secret/c"), groups=[inner], rules=Rules()))

    assert run_in_turn(one, {}) == ["secret/a", "secret/b/1", "secret/c"]
    assert run_in_turn(one, {"secret/b/1": "WA"}) == ["secret/a", "secret/b/1"]
