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
    score = _score(problem.data, results)
    verdict = "AC" if not failed else ("PA" if score > 0 else failed[0])
    return Grade(verdict, round(score, 6), time_ms, mem_kb)


def is_solved(group: Group, results: Results) -> bool:
    return all(case.name in results and results[case.name].verdict == "AC" for case in group.all_cases())


def is_lost(group: Group, results: Results) -> bool:
    """Whether more tests of the group cannot change anything."""
    failed = any(results[case.name].verdict != "AC" for case in group.all_cases() if case.name in results)
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
    own = sum(data.score * _share(results.get(case.name)) for case in data.cases)
    points = {group.name: round(_score(group, results), 6) for group in data.groups}
    return points | ({data.name: round(own, 6)} if data.cases else {})


def best(problem: Problem) -> float:
    """The score of a submission that gets everything right."""
    return _score(
        problem.data,
        {case.name: CaseResult(name=case.name, verdict="AC") for case in problem.data.all_cases()},
    )


def _score(group: Group, results: Results) -> float:
    own = [_share(results.get(case.name)) for case in group.cases]
    below = [_score(one, results) for one in group.groups]
    if group.aggregation is Aggregation.MIN:
        return min([group.score * share for share in own] + below, default=0.0)
    return sum(group.score * share for share in own) + sum(below)


def _share(result: CaseResult | None) -> float:
    if result is None:
        return 0.0
    return result.share if result.verdict in ("AC", "PA") else 0.0
