"""From the verdicts of single tests to the verdict and the score of a submission. Pure."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from fencepost_judge._case_result import SKIPPED, CaseResult
from fencepost_judge._legacy_grading import Graded, Question, grade_group
from fencepost_judge._problem import Aggregation, Group, Problem, TestCase

__all__ = [
    "SKIPPED",
    "CaseResult",
    "Grade",
    "Results",
    "aim",
    "best",
    "grade",
    "grading",
    "is_lost",
    "is_solved",
    "points_by_group",
]


@dataclass(frozen=True, slots=True)
class Grade:
    verdict: str
    score: float | None
    time_ms: int
    mem_kb: int


Results = Mapping[str, CaseResult]
SLACK = 1e-6
"""The tolerance for rounding errors in sums of fractions."""


def grade(problem: Problem, results: Results) -> Grade:
    """Grade a problem whose package has no grader of its own."""
    steps = grading(problem, results)
    try:
        question = next(steps)
    except StopIteration as done:
        made: Grade = done.value
        return made
    raise AssertionError(f"{question.group} is graded by a program")


def grading(problem: Problem, results: Results) -> Generator[Question, Graded, Grade]:
    """The verdict is that of the first failure, in test order; the score is aggregated by groups. In the
    old format graders decide both: a question for the package's own grader is yielded, and its answer sent
    back."""
    ran = [results[case.name] for case in problem.data.all_cases() if case.name in results]
    failed = [one.verdict for one in ran if one.verdict not in ("AC", SKIPPED)]
    time_ms = max((one.time_ms for one in ran), default=0)
    mem_kb = max((one.mem_kb for one in ran), default=0)
    if problem.data.rules is not None:
        graded = (yield from grade_group(problem.data, results)) or Graded("AC", 0.0)
        return Grade(*_legacy(problem, graded, whole=_is_whole(problem, results)), time_ms, mem_kb)
    if not problem.scoring:
        return Grade(failed[0] if failed else "AC", None, time_ms, mem_kb)
    # In a scoring problem samples do not count: neither their failures nor their scores.
    failed = [one.verdict for one in _counting(problem, results) if one.verdict not in ("AC", SKIPPED)]
    score = _score(problem.data, results)
    whole = _is_whole(problem, results)
    verdict = "AC" if whole else ("PA" if score > 0 or not failed else failed[0])
    return Grade(verdict, round(score, 6), time_ms, mem_kb)


def _counting(problem: Problem, results: Results) -> list[CaseResult]:
    """The results of all tests that ran, in test order, without samples."""
    cases = problem.data.all_cases()
    return [results[case.name] for case in cases if case.name in results and not case.sample]


def _is_whole(problem: Problem, results: Results) -> bool:
    """Whether nothing failed, and no test was awarded only a fraction."""
    ran = _counting(problem, results)
    return all(one.verdict in ("AC", SKIPPED) and one.share == 1 for one in ran)


def _legacy(problem: Problem, graded: Graded, *, whole: bool) -> tuple[str, float | None]:
    """Only an accepted submission has a score; one accepted below the best score is partially accepted."""
    if not problem.scoring:
        return graded.verdict, None
    if graded.verdict != "AC":
        return graded.verdict, 0.0
    score, goal = round(graded.score, 6), aim(problem)
    if goal is None:
        return "AC" if whole else "PA", score
    reached = score >= goal - SLACK if problem.objective == "max" else score <= goal + SLACK
    return "AC" if reached else "PA", score


def aim(problem: Problem) -> float | None:
    """The best score of a package in the old format: the end of its range, or the score of a fully right
    submission. None when only a validator or a grader knows it."""
    for group in (problem.data, *(one for one in problem.data.groups if one.name == "secret")):
        rules = group.rules
        end = None if rules is None else rules.most if problem.objective == "max" else rules.least
        if end is not None:
            return end
    if problem.validator_scores or problem.grader is not None or problem.objective == "min":
        return None
    return best(problem)


def is_solved(group: Group, results: Results) -> bool:
    return all(case.name in results and results[case.name].verdict == "AC" for case in group.all_cases())


def is_lost(group: Group, results: Results) -> bool:
    """Whether further tests of the group cannot change its result."""
    verdicts = {results[case.name].verdict for case in group.all_cases() if case.name in results}
    if group.aggregation is Aggregation.ALL:
        return bool(verdicts - {"AC"})
    # In the other modes a partially accepted test is no failure: it scores less than a full one, but more
    # than nothing.
    failed = bool(verdicts - {"AC", "PA"})
    return failed and (group.stop_at_failure or group.aggregation is Aggregation.MIN)


def points_by_group(problem: Problem, results: Results, score: float | None = None) -> dict[str, float]:
    """The score of each outermost group; they add up to the total. A contest may take the best of each.

    If the outermost groups are not added up, or there are none, the whole problem is one group.
    """
    if not problem.scoring:
        return {}
    data = problem.data
    if data.rules is not None:
        # In the old format the verdicts of groups affect each other's points: no group counts alone.
        return {data.name: score or 0.0}
    if data.aggregation is not Aggregation.SUM or not data.groups:
        return {data.name: round(_score(data, results), 6)}
    own = sum(_worth(data, case, results.get(case.name)) for case in data.cases if not case.sample)
    points = {group.name: round(_score(group, results), 6) for group in data.groups if _counts(group)}
    return points | ({data.name: round(own, 6)} if data.cases else {})


def best(problem: Problem) -> float:
    """The score of a fully right submission, for a problem without a grader program."""
    right = {case.name: CaseResult(name=case.name, verdict="AC") for case in problem.data.all_cases()}
    if problem.data.rules is None:
        return _score(problem.data, right)
    try:
        next(grade_group(problem.data, right))
    except StopIteration as done:
        graded: Graded | None = done.value
        return 0.0 if graded is None else graded.score
    raise AssertionError("a program grades this problem")


def _score(group: Group, results: Results) -> float:
    if group.aggregation is Aggregation.ALL:
        counting = [results.get(case.name) for case in group.all_cases() if not case.sample]
        return group.score if all(one is not None and one.verdict == "AC" for one in counting) else 0.0
    parts = [_worth(group, case, results.get(case.name)) for case in group.cases if not case.sample]
    parts += [_score(one, results) for one in group.groups if _counts(one)]
    match group.aggregation:
        case Aggregation.MIN:
            return min(parts, default=0.0)
        case Aggregation.MAX:
            return max(parts, default=0.0)
        case Aggregation.AVG:
            return sum(parts) / max(1, len(parts))
        case _:
            return sum(parts)


def _counts(group: Group) -> bool:
    """Whether the group holds any tests besides samples."""
    return any(not case.sample for case in group.all_cases())


def _worth(group: Group, case: TestCase, result: CaseResult | None) -> float:
    """The score of one test."""
    if result is None or result.verdict not in ("AC", "PA"):
        return 0.0
    best_score = group.score if case.worth is None else case.worth
    return best_score * result.share if result.points is None else result.points
