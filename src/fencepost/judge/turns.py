"""Which test comes next: those that can still change something. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.judge.grading import SKIPPED, CaseResult, is_lost, is_solved
from fencepost.judge.problem import Group, Problem, TestCase


def in_turn(problem: Problem, results: dict[str, CaseResult]) -> Iterator[TestCase]:
    """The tests that are still worth running. What is skipped is written into the results at once."""

    def walk(group: Group, above: Sequence[Group]) -> Iterator[TestCase]:
        within = (*above, group)
        names = {name for one in within for name in one.require}
        required = [other for other in _all_groups(problem.data) if other.name in names]
        blocked = not all(is_solved(other, results) for other in required)
        for case in group.cases:
            stop = not problem.scoring and any(one.verdict != "AC" for one in results.values())
            if blocked or stop or any(is_lost(one, results) for one in within):
                results[case.name] = CaseResult(name=case.name, verdict=SKIPPED)
            else:
                yield case
        for below in group.groups:
            yield from walk(below, within)

    return walk(problem.data, ())


def _all_groups(group: Group) -> Iterator[Group]:
    yield group
    for below in group.groups:
        yield from _all_groups(below)
