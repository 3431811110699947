"""From the verdicts of single tests to the verdict and the score of a submission. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.judge.problem import Aggregation, Group, Problem

SKIPPED = "SK"
"""A test that was not run, because its group was lost already or another one was required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One test of one submission."""

    name: str
    verdict: str
    time_ms: int = 0
    mem_kb: int = 0
    message: str = ""
    share: float = 1.0
    """Of the test's worth, when its validator gives parts."""
    points: float | None = None
    """Instead of them, when its validator gives points."""


@dataclass(frozen=True, slots=True)
class Grade:
    verdict: str
    score: float | None
    time_ms: int
    mem_kb: int


Results = Mapping[str, CaseResult]


def grade(problem: Problem, results: Results) -> Grade:
    """The verdict is the first failure's, in the order of the tests; a score adds up by groups."""
    ran = [results[case.name] for case in problem.data.all_cases() if case.name in results]
    failed = [one.verdict for one in ran if one.verdict not in ("AC", SKIPPED)]
    time_ms = max((one.time_ms for one in ran), default=0)
    mem_kb = max((one.mem_kb for one in ran), default=0)
    if not problem.scoring:
        return Grade(failed[0] if failed else "AC", None, time_ms, mem_kb)
    # Where something is scored, samples count nothing: neither their failure nor what they are worth.
    ran = [
        results[case.name] for case in problem.data.all_cases() if case.name in results and not case.sample
    ]
    failed = [one.verdict for one in ran if one.verdict not in ("AC", SKIPPED)]
    score = _score(problem.data, results)
    whole = not failed and all(one.share == 1 for one in ran)
    verdict = "AC" if whole else ("PA" if score > 0 or not failed else failed[0])
    return Grade(verdict, round(score, 6), time_ms, mem_kb)


def is_solved(group: Group, results: Results) -> bool:
    return all(case.name in results and results[case.name].verdict == "AC" for case in group.all_cases())


def is_lost(group: Group, results: Results) -> bool:
    """Whether more tests of the group cannot change anything."""
    verdicts = {results[case.name].verdict for case in group.all_cases() if case.name in results}
    if group.aggregation is Aggregation.ALL:
        return bool(verdicts - {"AC"})
    # A part of a test is less than the whole of it, and more than nothing.
    failed = bool(verdicts - {"AC", "PA"})
    return failed and (group.stop_at_failure or group.aggregation is Aggregation.MIN)


def points_by_group(problem: Problem, results: Results) -> dict[str, float]:
    """What each outermost group is worth, adding up to the score: a contest may take the best of each.

    Where the outermost groups are not added up, or there are none, the whole problem is one group.
    """
    if not problem.scoring:
        return {}
    data = problem.data
    if data.aggregation is not Aggregation.SUM or not data.groups:
        return {data.name: round(_score(data, results), 6)}
    own = sum(_worth(data, results.get(case.name)) for case in data.cases if not case.sample)
    points = {group.name: round(_score(group, results), 6) for group in data.groups if _counts(group)}
    return points | ({data.name: round(own, 6)} if data.cases else {})


def best(problem: Problem) -> float:
    """The score of a submission that gets everything right."""
    return _score(
        problem.data,
        {case.name: CaseResult(name=case.name, verdict="AC") for case in problem.data.all_cases()},
    )


def _score(group: Group, results: Results) -> float:
    if group.aggregation is Aggregation.ALL:
        counting = [results.get(case.name) for case in group.all_cases() if not case.sample]
        return group.score if all(one is not None and one.verdict == "AC" for one in counting) else 0.0
    parts = [_worth(group, results.get(case.name)) for case in group.cases if not case.sample]
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
    """Whether there is anything in it but samples."""
    return any(not case.sample for case in group.all_cases())


def _worth(group: Group, result: CaseResult | None) -> float:
    """Of one test."""
    if result is None or result.verdict not in ("AC", "PA"):
        return 0.0
    return group.score * result.share if result.points is None else result.points
