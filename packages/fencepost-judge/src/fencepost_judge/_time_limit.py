"""Infers the time limit of a problem whose package gives none, from the jury's solutions.

The limit is the time of the slowest solution that must not be too slow, times a factor, rounded up. A
solution that must be too slow has to exceed the limit times another factor. The measurements are stored with
the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fencepost.errors import InvalidInput
from fencepost_judge._judging import Judge, JudgeFault, Judgement
from fencepost_judge._problem import Bounds, JuryRun, Problem, Timing
from fencepost_judge.packages._expectations import Bound, Rule
from fencepost_judge.packages._icpc import PROVISIONAL_MS, Multipliers
from fencepost_judge.packages._reading import JurySubmission, ReadProblem

ASK = (
    "Give one: --time-limit at the command line, time_limit at the API or on the page, or limits.time_limit."
)


def given(problem: Problem, seconds: float) -> Problem:
    """The problem with the given limit."""
    return _timed(problem, round(seconds * 1000), Timing(origin="given"))


def limit_ms(slowest_ms: int, rule: Multipliers) -> int:
    """The least multiple of the resolution that is at least the slowest time multiplied by the factor.
    Pure."""
    resolution_ms = rule.resolution_seconds * 1000
    steps = math.ceil(slowest_ms * rule.ac_to_time_limit / resolution_ms - 1e-9)
    return max(1, round(max(1, steps) * resolution_ms))


async def infer(judge: Judge, read: ReadProblem, *, python: str = "python") -> Problem:
    """Raises InvalidInput when the jury's solutions do not determine a limit: then a person has to set it."""
    rule = read.timing
    if rule is None:
        return read.problem
    lower = [(one, where) for one in read.submissions if (where := _rules(one, "lower"))]
    if not lower:
        raise InvalidInput(
            f"The package gives no time limit, and no accepted solution to infer one from. {ASK}",
            field="time_limit",
        )
    runs = [run for one, _ in lower if (run := await _measure(judge, read.problem, one, "lower", python))]
    if not runs:
        raise InvalidInput(
            "The package gives no time limit, and none of its solutions is in a language of this machine."
            f" {ASK}",
            field="time_limit",
        )
    slowest = max(runs, key=lambda run: run.time_ms)
    limit = limit_ms(slowest.time_ms, rule)
    uppers, note = await _too_slow(judge, read, rule, limit, python)
    timing = Timing(
        origin="inferred",
        slowest=slowest.name,
        slowest_ms=slowest.time_ms,
        factor=rule.ac_to_time_limit,
        safety=rule.time_limit_to_tle,
        note=note,
        runs=[*runs, *uppers],
    )
    return _timed(read.problem, limit, timing)


async def _too_slow(
    judge: Judge, read: ReadProblem, rule: Multipliers, limit: int, python: str
) -> tuple[list[JuryRun], str]:
    """Run the solutions that must be too slow against the limit that they must exceed."""
    margin_ms = round(limit * rule.time_limit_to_tle)
    bounds = read.problem.bounds.model_copy(update={"time_ms": margin_ms})
    problem = read.problem.model_copy(update={"bounds": bounds})
    runs: list[JuryRun] = []
    for one in read.submissions:
        run = await _measure(judge, problem, one, "upper", python) if _rules(one, "upper") else None
        if run is not None:
            runs.append(run)
    quick = [run for run in runs if run.verdict != "TLE"]
    if not quick:
        return runs, ""
    said = (
        f"{quick[0].name} should be too slow, and takes {quick[0].time_ms} ms, less than {margin_ms} ms,"
        f" which is the limit of {limit} ms with its margin"
    )
    if rule.strict:
        raise InvalidInput(f"No time limit fits: {said}. {ASK}", field="time_limit")
    return runs, f"{said}."


async def _measure(
    judge: Judge, problem: Problem, one: JurySubmission, bound: Bound, python: str
) -> JuryRun | None:
    """None when this machine does not support the solution's language."""
    language = one.language(python=python)
    if language not in judge.languages:
        return None
    # What a rejected program does after its validator has ended can take until the limit, at each test.
    everything = bound == "lower" and not (problem.interactive and "AC" not in one.expected)
    try:
        got = await judge.judge(
            problem, language, one.sources, entry=one.expectations.entry, everything=everything
        )
    except JudgeFault as fault:
        raise InvalidInput(
            f"The time limit cannot be inferred: {one.name} was not judged ({fault}).", field="time_limit"
        ) from None
    if got.verdict == "CE":
        raise InvalidInput(
            f"The time limit cannot be inferred: {one.name} does not compile. {ASK}", field="time_limit"
        )
    cases = [case for case in got.cases if any(rule.concerns(case.name) for rule in _rules(one, bound))]
    slow = any(case.verdict == "TLE" for case in cases)
    if bound == "lower" and slow:
        raise InvalidInput(
            f"The time limit cannot be inferred: {one.name} takes over {PROVISIONAL_MS // 1000} s. {ASK}",
            field="time_limit",
        )
    # A program that was rejected and then ran into the limit: how long it goes on is no time of a solution.
    cut = problem.bounds.time_ms
    times = [case.time_ms for case in cases if case.verdict == "TLE" or case.time_ms < cut]
    time_ms = max(times, default=0)
    return JuryRun(name=one.name, bound=bound, time_ms=time_ms, verdict=_verdict(got, slow=slow))


def _verdict(got: Judgement, *, slow: bool) -> str:
    return "TLE" if slow else got.verdict


def _rules(one: JurySubmission, wanted: Bound) -> Sequence[Rule]:
    return [rule for bound, rule in one.expectations.bounds if bound == wanted]


def _timed(problem: Problem, time_ms: int, timing: Timing) -> Problem:
    try:
        bounds = Bounds(**{**problem.bounds.model_dump(), "time_ms": time_ms})
    except ValueError:
        raise InvalidInput(
            f"A time limit of {time_ms / 1000:g} s is out of range; 0.01 to 600 s are allowed.",
            field="time_limit",
        ) from None
    return problem.model_copy(update={"bounds": bounds, "timing": timing})
