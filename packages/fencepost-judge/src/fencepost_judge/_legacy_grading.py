"""Grading in the old package format: group by group, by the default grader or the package's own.

Pure. For a group with a grader of its own, the generator yields the question for it and continues with the
answer; running the program is the caller's task.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from fencepost_judge._case_result import SKIPPED, CaseResult
from fencepost_judge._problem import Aggregation, Group, Rules, TestCase, VerdictMode

SAMPLE = "sample"
CODES = {
    "AC": "AC",
    "PA": "AC",
    "WA": "WA",
    "PE": "WA",
    "TLE": "TLE",
    "RE": "RTE",
    "MLE": "RTE",
    "OLE": "RTE",
}
"""Our verdicts as the four that a grader of the old format knows."""
_WORST_FIRST = ("RE", "MLE", "TLE", "OLE", "WA", "PE")


@dataclass(frozen=True, slots=True)
class Graded:
    """The verdict and score of a test or a group."""

    verdict: str
    score: float


@dataclass(frozen=True, slots=True)
class Question:
    """A question for the package's own grader: its arguments, and one line for each result."""

    group: str
    flags: Sequence[str]
    results: Sequence[Graded]

    @property
    def lines(self) -> bytes:
        return "".join(f"{CODES[one.verdict]} {one.score:g}\n" for one in self.results).encode()


Grading = Generator[Question, Graded, Graded | None]
Results = Mapping[str, CaseResult]


def grade_group(group: Group, results: Results) -> Grading:
    """None for a group in which no test was run."""
    rules = group.rules or Rules()
    names: list[str] = []
    found: list[Graded] = []
    for item in group.items():
        one = _of_case(rules, results.get(item.name)) if isinstance(item, TestCase) else None
        if isinstance(item, Group):
            one = yield from grade_group(item, results)
        if one is None:
            continue
        names.append(item.name)
        found.append(one)
        if one.verdict != "AC" and rules.stops:
            break
    if not found:
        return None
    if rules.grader_flags is not None:
        said = yield Question(group.name, rules.grader_flags, found)
        return Graded(_own_word(said.verdict, found), said.score)
    return by_default(rules, names, found)


def verdict_so_far(group: Group, results: Results) -> str | None:
    """None when no test was run, or when only the package's own grader can decide."""
    try:
        next(grade_group(group, results))
    except StopIteration as done:
        graded: Graded | None = done.value
        return graded.verdict if graded is not None else None
    return None


def by_default(rules: Rules, names: Sequence[str], found: Sequence[Graded]) -> Graded:
    """The default grader. Samples add no score, in any mode; their verdicts count, unless they are
    ignored."""
    if rules.ignore_sample:
        names, found = names[-1:], found[-1:]
    verdicts = [one.verdict for one in found]
    scores = [one.score for name, one in zip(names, found, strict=True) if name != SAMPLE]
    accepted = "AC" in verdicts and rules.accept_if_any
    return Graded("AC" if accepted else _verdict(rules.verdict, verdicts), _score(rules.score, scores))


def _of_case(rules: Rules, result: CaseResult | None) -> Graded | None:
    if result is None or result.verdict == SKIPPED:
        return None
    if CODES[result.verdict] != "AC":
        return Graded(result.verdict, rules.reject_score)
    return Graded("AC", rules.accept_score * result.share if result.points is None else result.points)


def _verdict(mode: VerdictMode, verdicts: Sequence[str]) -> str:
    failed = [one for one in verdicts if one != "AC"]
    if mode is VerdictMode.ALWAYS or not failed:
        return "AC"
    if mode is VerdictMode.FIRST:
        return failed[0]
    return next(one for one in _WORST_FIRST if one in failed)


def _score(mode: Aggregation, scores: Sequence[float]) -> float:
    match mode:
        case Aggregation.MIN:
            return min(scores, default=0.0)
        case Aggregation.MAX:
            return max(scores, default=0.0)
        case Aggregation.AVG:
            return sum(scores) / max(1, len(scores))
        case _:
            return sum(scores)


def _own_word(code: str, found: Sequence[Graded]) -> str:
    """The grader knows fewer verdicts than we do: of ours, returns the first that maps to its answer."""
    fitting = [one.verdict for one in found if CODES[one.verdict] == code]
    return fitting[0] if fitting else {"RTE": "RE"}.get(code, code)
