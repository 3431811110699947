"""The expected results of the jury's submissions: by their folders, and by `submissions/submissions.yaml`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator

from fencepost.errors import InvalidInput
from fencepost_judge._case_result import SKIPPED, CaseResult
from fencepost_judge.packages._metadata import Described, Number, Text, checked

FILE = "submissions/submissions.yaml"
EXPECTED = {
    "accepted": frozenset({"AC"}),
    "partially_accepted": frozenset({"PA"}),
    "wrong_answer": frozenset({"WA", "PE"}),
    "time_limit_exceeded": frozenset({"TLE"}),
    # The format has four verdicts: a program that is ended for its memory or its output has failed too.
    "run_time_error": frozenset({"RE", "MLE", "OLE"}),
    "memory_limit_exceeded": frozenset({"MLE"}),
    "output_limit_exceeded": frozenset({"OLE"}),
    "compiler_error": frozenset({"CE"}),
    "brute_force": frozenset({"TLE", "RE", "MLE", "OLE"}),
    "rejected": frozenset({"WA", "PE", "TLE", "RE", "MLE", "OLE", "CE"}),
}
"""The expected verdicts of a submission, by the name of its folder."""
ANYTHING = frozenset[str]().union(*EXPECTED.values())
"""The expected verdicts in a folder that the format does not know: the submission is run, and any verdict
is right."""
CODES = {
    "AC": frozenset({"AC", "PA"}),
    "WA": frozenset({"WA", "PE"}),
    "TLE": frozenset({"TLE"}),
    "RTE": frozenset({"RE", "MLE", "OLE"}),
}
"""The format's verdicts for single tests, and ours."""
Code = Literal["AC", "WA", "TLE", "RTE"]
Bound = Literal["lower", "upper"]
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "accepted": {"permitted": ["AC"]},
    "rejected": {"required": ["RTE", "TLE", "WA"]},
    "wrong_answer": {"permitted": ["AC", "WA"], "required": ["WA"]},
    "time_limit_exceeded": {"permitted": ["AC", "TLE"], "required": ["TLE"]},
    "run_time_error": {"permitted": ["AC", "RTE"], "required": ["RTE"]},
    "brute_force": {"permitted": ["AC", "RTE", "TLE"], "required": ["RTE", "TLE"]},
}


def _ends(value: object) -> object:
    return cast("list[object]", value) if isinstance(value, list) else [value, value]


class Requirement(Described):
    permitted: list[Code] | None = None
    required: list[Code] | None = None
    score: Annotated[tuple[Number, Number] | None, BeforeValidator(_ends)] = None
    message: Text = ""
    use_for_time_limit: bool | Bound | None = None

    @property
    def bound(self) -> Bound | None:
        """Whether its submissions give a lower or an upper bound of the time limit."""
        if isinstance(self.use_for_time_limit, str):
            return self.use_for_time_limit
        if self.use_for_time_limit is False:
            return None
        if self.required == ["TLE"]:
            return "upper"
        return "lower" if self.permitted is not None and "TLE" not in self.permitted else None


class SubmissionEntry(Requirement):
    language: Text | None = None
    entrypoint: Text | None = None
    authors: Any = None
    model_solution: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A requirement, for the tests that a pattern matches, or for all of them."""

    where: str | None
    wanted: Requirement

    def broken_by(self, cases: Sequence[CaseResult], score: float | None) -> str:
        """Why the requirement is not met; empty when it is."""
        ran = [one for one in cases if one.verdict != SKIPPED and self.concerns(one.name)]
        place = f" of {self.where}" if self.where else ""
        if self.wanted.permitted is not None:
            allowed = _ours(self.wanted.permitted)
            other = next((one for one in ran if one.verdict not in allowed), None)
            if other is not None:
                return f"{other.name} is {other.verdict}, not one of {'/'.join(self.wanted.permitted)}"
        if self.wanted.required is not None:
            needed = _ours(self.wanted.required)
            if not any(one.verdict in needed for one in ran):
                return f"no test{place} is {'/'.join(self.wanted.required)}"
        if self.wanted.message and not any(self.wanted.message in one.message for one in ran):
            return f"no test{place} says {self.wanted.message[:80]!r}"
        if self.wanted.score is not None:
            least, most = self.wanted.score
            if score is None or not least <= score <= most:
                return f"the score is {score}, not within {least:g} to {most:g}"
        return ""

    def concerns(self, test: str) -> bool:
        return self.where is None or matches(self.where, test)


@dataclass(frozen=True, slots=True)
class Expectations:
    """What one submission is expected to do, and how it is compiled."""

    verdicts: frozenset[str]
    rules: Sequence[Rule] = ()
    bounds: Sequence[tuple[Bound, Rule]] = ()
    language: str | None = None
    entry: str | None = None


def expectations_of(name: str, document: Mapping[str, Any], *, is_new: bool) -> Expectations:
    """The expectations of `FOLDER/PROGRAM`. In the old format only accepted and too slow ones bound the
    time limit."""
    folder = name.split("/", maxsplit=1)[0]
    rules: list[Rule] = []
    language = entry = None
    for pattern, said in document.items():
        if not matches(pattern, name):
            continue
        found, groups = _entry(pattern, said)
        language, entry = found.language or language, found.entrypoint or entry
        rules.append(Rule(None, found))
        rules += [Rule(where, wanted) for where, wanted in groups]
    usual = checked(Requirement, FILE, _DEFAULTS.get(folder, {}))
    own = folder in document
    telling = [*([] if own else [Rule(None, usual)]), *rules]
    if not is_new and folder not in ("accepted", "time_limit_exceeded"):
        telling = []
    return Expectations(
        verdicts=ANYTHING if own else EXPECTED.get(folder, ANYTHING),
        rules=rules,
        bounds=[(bound, rule) for rule in telling if (bound := rule.wanted.bound) is not None],
        language=language,
        entry=entry,
    )


TAG = re.compile(rb"@EXPECTED_(RESULTS|SCORE)@:?[ \t]*([^\n\r]*)")
TAGS = {
    "CORRECT": frozenset({"AC"}),
    "ACCEPTED": frozenset({"AC"}),
    "WRONG-ANSWER": frozenset({"WA", "PE"}),
    "PRESENTATION-ERROR": frozenset({"WA", "PE"}),
    "NO-OUTPUT": frozenset({"WA", "PE"}),
    "TIMELIMIT": frozenset({"TLE"}),
    "TIME-LIMIT": frozenset({"TLE"}),
    "TIME-LIMIT-EXCEEDED": frozenset({"TLE"}),
    "RUN-ERROR": frozenset({"RE", "MLE"}),
    "RUN-TIME-ERROR": frozenset({"RE", "MLE"}),
    "MEMORY-LIMIT": frozenset({"MLE", "RE"}),
    "OUTPUT-LIMIT": frozenset({"OLE"}),
    "COMPILER-ERROR": frozenset({"CE"}),
    "PARTIAL": frozenset({"PA"}),
    "CHECK-MANUALLY": ANYTHING,
    # Of files that DOMjudge does not accept as submissions: those in no language are skipped here.
    "NONE-INVALID-SUBMISSION": ANYTHING,
    "NONE-SUBMIT-FAILS": ANYTHING,
}
"""The words of a tag in a program, as DOMjudge reads them, and our verdicts."""


def tagged(expected: Expectations, name: str, sources: Mapping[str, bytes]) -> Expectations:
    """With the tags of a program: `@EXPECTED_RESULTS@: WRONG-ANSWER, TIMELIMIT`, `@EXPECTED_SCORE@: 40`.
    A tag says more than the folder; only an entry of `submissions.yaml` has its rules beside it."""
    verdicts, rules, bounds = expected.verdicts, list(expected.rules), expected.bounds
    for kind, value in (found.groups() for text in sources.values() for found in TAG.finditer(text)):
        # To the end of the comment: */, -->, *) or a quote may follow.
        said = re.split(r"\*/|-->|\*\)|[\"'#]", value.decode("utf-8", "replace"))[0].strip()
        if kind == b"RESULTS":
            verdicts = frozenset[str]().union(*(_tag(name, word) for word in said.split(",")))
            bounds = bounds if verdicts <= {"AC"} or verdicts == frozenset({"TLE"}) else ()
        else:
            rules.append(
                Rule(None, checked(Requirement, f"{name}: @EXPECTED_SCORE@", {"score": _score(said)}))
            )
    return replace(expected, verdicts=verdicts, rules=rules, bounds=bounds)


def _tag(name: str, word: str) -> frozenset[str]:
    found = TAGS.get(word.strip().upper().replace("_", "-"))
    if found is None:
        raise InvalidInput(
            f"submissions/{name}: @EXPECTED_RESULTS@ names {word.strip()[:40]!r}. Known: {', '.join(TAGS)}.",
            field="submissions",
        )
    return found


def _score(said: str) -> object:
    """A number; or two, with a dash or blanks between them."""
    parts = re.split(r"\s*(?:\.\.|\s)\s*", said)
    return parts[:2] if len(parts) > 1 else said


def check_document(document: Mapping[str, Any]) -> None:
    """Checks every entry, whether it matches a submission or not."""
    for pattern, said in document.items():
        _entry(pattern, said)


def _entry(pattern: str, said: Any) -> tuple[SubmissionEntry, list[tuple[str, Requirement]]]:
    _check_pattern(pattern)
    if said is not None and not isinstance(said, dict):
        raise InvalidInput(
            f"{FILE}: {pattern[:80]} must be a mapping of keys to values.", field="submissions.yaml"
        )
    keys = cast("dict[str, Any]", said or {})
    own = {key: value for key, value in keys.items() if key in SubmissionEntry.model_fields}
    usual = _DEFAULTS.get(pattern, {})
    entry = checked(SubmissionEntry, f"{FILE}: {pattern[:80]}", {**usual, **own})
    if entry.entrypoint and not re.fullmatch(r"[A-Za-z0-9_$.+-]{1,100}", entry.entrypoint):
        raise InvalidInput(
            f"{FILE}: {pattern[:80]}: entrypoint is no name of a file or class.", field="entrypoint"
        )
    groups: list[tuple[str, Requirement]] = []
    for where, wanted in keys.items():
        if where in own:
            continue
        if not isinstance(wanted, dict):
            raise InvalidInput(
                f"{FILE}: {pattern[:80]}: {where[:80]} is not known.", field="submissions.yaml"
            )
        _check_pattern(where)
        found = checked(Requirement, f"{FILE}: {pattern[:80]}: {where[:80]}", cast("dict[str, Any]", wanted))
        if found.score is not None:
            raise InvalidInput(
                f"{FILE}: {pattern[:80]}: the score of {where[:80]} alone is not supported.", field="score"
            )
        groups.append((where, found))
    return entry, groups


def _check_pattern(pattern: str) -> None:
    if "**" in pattern or "[" in pattern or pattern.count("{") > 8 or len(pattern) > 300:
        raise InvalidInput(
            f"{FILE}: the pattern {pattern[:80]!r} is not supported; there is * and {{a,b}}.",
            field="submissions.yaml",
        )


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern matches the path, or a folder above it. `*` does not match a slash."""
    parts = path.split("/")
    above = ["/".join(parts[: end + 1]) for end in range(len(parts))]
    regex = "".join(_piece(word) for word in re.split(r"(\{[^{}]*\}|\*)", pattern))
    return any(re.fullmatch(regex, one) for one in above)


def _piece(word: str) -> str:
    if word == "*":
        return "[^/]*"
    if word.startswith("{"):
        return f"(?:{'|'.join(re.escape(one) for one in word[1:-1].split(','))})"
    return re.escape(word)


def _ours(codes: Sequence[str]) -> frozenset[str]:
    return frozenset[str]().union(*(CODES[code] for code in codes))
