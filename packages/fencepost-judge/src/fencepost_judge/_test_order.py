"""Chooses the next test among those that can still change the result. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost_judge._grading import SKIPPED, CaseResult, is_lost, is_solved
from fencepost_judge._legacy_grading import verdict_so_far
from fencepost_judge._problem import Group, Problem, TestCase


def in_test_order(
    problem: Problem, results: dict[str, CaseResult], *, everything: bool = False
) -> Iterator[TestCase]:
    """The tests that are still worth running; with `everything` all of them. Skipped tests are recorded in
    the results immediately."""
    if everything:
        return problem.data.all_cases()
    if problem.data.rules is not None:
        return _by_rules(problem.data, results)

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


def _by_rules(group: Group, results: dict[str, CaseResult]) -> Iterator[TestCase]:
    """In the old format a rejected test or group ends its group, unless the group says otherwise. The
    result of a group with the package's own grader is not known yet: the tests after it are run, and
    ignored if they should not count."""
    stops = group.rules is None or group.rules.stops
    rejected, unsettled = False, list[TestCase | Group]()
    for item in group.items():
        # Checked until its result is there: tests run in parallel.
        states = [(one, _is_rejected(one, results)) for one in unsettled]
        rejected = rejected or any(state for _, state in states)
        unsettled = [one for one, state in states if state is None]
        if stops and rejected:
            for case in [item] if isinstance(item, TestCase) else item.all_cases():
                results[case.name] = CaseResult(name=case.name, verdict=SKIPPED)
            continue
        unsettled.append(item)
        if isinstance(item, TestCase):
            yield item
        else:
            yield from _by_rules(item, results)


def _is_rejected(item: TestCase | Group, results: dict[str, CaseResult]) -> bool | None:
    """None when it is not known yet."""
    if isinstance(item, Group):
        verdict = verdict_so_far(item, results)
        return None if verdict is None else verdict != "AC"
    return results[item.name].verdict not in ("AC", "PA", SKIPPED) if item.name in results else None


def _all_groups(group: Group) -> Iterator[Group]:
    yield group
    for below in group.groups:
        yield from _all_groups(below)
