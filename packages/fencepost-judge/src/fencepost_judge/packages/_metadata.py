"""The keys of `problem.yaml` and of the files beside the tests, by the version of the format.

Every key is known, or the package is refused by the key's name: an ignored key could lead to wrong verdicts.
The types are checked here, before the values are used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fencepost.errors import InvalidInput

PROBLEM = "problem.yaml"


class Version(StrEnum):
    """Versions of the problem package format. Drafts of 2023-07 were released as 2025-09."""

    LEGACY = "legacy"
    DRAFT = "2023-07-draft"
    RELEASED = "2025-09"

    @property
    def is_new(self) -> bool:
        return self is not Version.LEGACY


def version_of(described: Mapping[str, Any]) -> Version:
    said = str(described.get("problem_format_version", "legacy"))
    if said in ("legacy", "legacy-icpc"):
        return Version.LEGACY
    if said in ("2023-07", "2023-07-draft"):
        return Version.DRAFT
    if said in ("2025-09", "2025-09-draft", "draft"):
        return Version.RELEASED
    raise InvalidInput(
        f"{PROBLEM}: problem_format_version {said[:40]!r} is not legacy, 2023-07-draft or 2025-09.",
        field="problem_format_version",
    )


def _no_truth(value: object) -> object:
    """Rejects a boolean where a number is expected: Python would accept it as a number."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - Only this type is shown to the author.
    return value


def _words(value: object) -> object:
    """One word, or several in a text or a list."""
    return value.split() if isinstance(value, str) else value


Number = Annotated[float, BeforeValidator(_no_truth), Field(allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(_no_truth), Field(gt=0, allow_inf_nan=False)]
Factor = Annotated[float, BeforeValidator(_no_truth), Field(ge=1, allow_inf_nan=False)]
Whole = Annotated[int, BeforeValidator(_no_truth)]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)]
Words = Annotated[list[str], BeforeValidator(_words)]
Args = list[Text]


class Described(BaseModel):
    """A file, or a part of one. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Multipliers(Described):
    ac_to_time_limit: Factor = 2.0
    time_limit_to_tle: Factor = 1.5


class Limits(Described):
    """`time_limit` is not in the old format, but many old packages contain it."""

    time_limit: Positive | None = None
    time_resolution: Positive = 1.0
    time_multipliers: Multipliers = Multipliers()
    time_multiplier: Factor = 5.0
    time_safety_margin: Factor = 2.0
    memory: Positive | None = None
    output: Positive | None = None
    code: Positive | None = None
    compilation_time: Positive | None = None
    compilation_memory: Positive | None = None
    validation_time: Positive | None = None
    validation_memory: Positive | None = None
    validation_output: Positive | None = None
    validation_passes: Annotated[int, BeforeValidator(_no_truth), Field(ge=2, le=100)] = 2


Range = tuple[float | None, float | None]


def _range(value: object) -> object:
    """Two numbers in a text; an infinite one becomes None."""
    parts = str(value).split()
    if len(parts) != 2:
        raise ValueError("must be two numbers, such as 0 100")
    found = [None if re.fullmatch(r"[+-]?inf(inity)?", part, re.IGNORECASE) else part for part in parts]
    return tuple(found)


class LegacyGrading(Described):
    objective: Literal["max", "min"] = "max"
    show_test_data_groups: bool = False
    # From before testdata.yaml: they hold for every group, whatever that file says.
    on_reject: Literal["first_error", "worst_error", "grade"] | None = None
    accept_score: Number | None = None
    reject_score: Number | None = None
    range: Annotated[Range | None, BeforeValidator(_range)] = None

    def every_group(self) -> dict[str, Any]:
        """In the words of `testdata.yaml`."""
        said = self.model_dump(include={"accept_score", "reject_score", "range"}, exclude_none=True)
        stops = {"first_error": "break", "grade": "continue"}.get(self.on_reject or "")
        return said if stops is None else {**said, "on_reject": stops}


Kind = Literal["pass-fail", "scoring", "interactive", "multi-pass", "submit-answer"]


class _Common(Described):
    """The keys of every version. Descriptive keys are accepted without checks."""

    problem_format_version: Text = "legacy"
    name: Text | dict[str, Text] | None = None
    uuid: Text | None = None
    license: Text | None = None
    rights_owner: Any = None
    source: Any = None
    source_url: Any = None
    keywords: Any = None
    limits: Limits = Limits()
    # Written by contest tools; they describe the contest, and do not affect judging.
    label: Any = None
    color: Any = None
    rgb: Any = None
    short_name: Any = None
    author: Any = None
    credits: Any = None


class LegacyProblem(_Common):
    type: Literal["pass-fail", "scoring"] = "pass-fail"
    validation: Words = ["default"]
    validator_flags: Text | None = None
    grading: LegacyGrading = LegacyGrading()


class NewProblem(_Common):
    type: Annotated[list[Kind], BeforeValidator(_words), Field(min_length=1)] = ["pass-fail"]
    version: Any = None
    embargo_until: Any = None
    languages: Annotated[list[Text], BeforeValidator(_words)] = ["all"]
    allow_file_writing: bool = False
    constants: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of problem.yaml, independent of its version."""

    version: Version
    names: Mapping[str, str]
    kinds: frozenset[str]
    limits: Limits
    ac_to_time_limit: float
    time_limit_to_tle: float
    custom_validator: bool | None
    """None: decided by the folders present."""
    validator_flags: str
    testlib: bool
    custom_score: bool
    """Whether the validator of an old package may award a score."""
    objective: str
    languages: Sequence[str] | None
    constants: Mapping[str, Any]
    every_group: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What problem.yaml of an old package says in the place of every `testdata.yaml`."""


def read_metadata(described: Mapping[str, Any]) -> Metadata:
    version = version_of(described)
    if "short-name" in described:
        described = {("short_name" if key == "short-name" else key): one for key, one in described.items()}
    if version.is_new:
        return _new(version, checked(NewProblem, PROBLEM, described))
    return _old(checked(LegacyProblem, PROBLEM, described))


def _old(said: LegacyProblem) -> Metadata:
    how = said.validation or ["default"]
    known = {"default", "custom", "score", "interactive", "multi-pass", "testlib"}
    if how[0] not in ("default", "custom") or set(how) - known or (how[0] == "default" and len(how) > 1):
        raise InvalidInput(
            f"{PROBLEM}: validation {' '.join(how)[:80]!r} is not known; there is default, and custom with"
            " score, interactive, multi-pass or testlib.",
            field="validation",
        )
    if "score" in how and said.type != "scoring":
        raise InvalidInput(f"{PROBLEM}: validation custom score needs type: scoring.", field="validation")
    if said.grading.on_reject == "grade" and said.type != "scoring":
        raise InvalidInput(f"{PROBLEM}: grading.on_reject: grade needs type: scoring.", field="grading")
    return Metadata(
        version=Version.LEGACY,
        names=_names(said.name),
        kinds=frozenset({said.type} | ({"interactive", "multi-pass"} & set(how))),
        limits=said.limits,
        ac_to_time_limit=said.limits.time_multiplier,
        time_limit_to_tle=said.limits.time_safety_margin,
        custom_validator=how[0] == "custom",
        validator_flags=said.validator_flags or "",
        testlib="testlib" in how,
        custom_score="score" in how,
        objective=said.grading.objective,
        languages=None,
        constants={},
        every_group=said.grading.every_group(),
    )


def _new(version: Version, said: NewProblem) -> Metadata:
    kinds = frozenset(said.type)
    if len(kinds) != len(said.type) or {"pass-fail", "scoring"} <= kinds:
        raise InvalidInput(
            f"{PROBLEM}: the type {', '.join(said.type)} names a type twice, or types that "
            "exclude each other.",
            field="type",
        )
    others = sorted({"interactive", "multi-pass"} & kinds)
    if "submit-answer" in kinds and others:
        raise InvalidInput(
            f"{PROBLEM}: answers are not run, so the type submit-answer excludes {others[0]}.", field="type"
        )
    return Metadata(
        version=version,
        names=_names(said.name),
        kinds=kinds if "scoring" in kinds else kinds | {"pass-fail"},
        limits=said.limits,
        ac_to_time_limit=said.limits.time_multipliers.ac_to_time_limit,
        time_limit_to_tle=said.limits.time_multipliers.time_limit_to_tle,
        custom_validator=None,
        validator_flags="",
        testlib=False,
        custom_score=True,
        objective="max",
        languages=None if said.languages == ["all"] else said.languages,
        constants=said.constants,
    )


def _names(name: str | dict[str, str] | None) -> Mapping[str, str]:
    return name if isinstance(name, dict) else {} if name is None else {"en": name}


class LegacyGroup(Described):
    """`testdata.yaml`. Missing keys are inherited from the folder above it."""

    on_reject: Literal["break", "continue"] | None = None
    grading: Literal["default", "custom"] | None = None
    grader_flags: Text | None = None
    input_validator_flags: Any = None
    output_validator_flags: Text | dict[str, Any] | None = None
    accept_score: Number | None = None
    reject_score: Number | None = None
    range: Annotated[Range | None, BeforeValidator(_range)] = None


class CaseFile(Described):
    """`NAME.yaml` beside a test."""

    args: Args | None = None
    input_validator_args: Any = None
    output_validator_args: Args | None = None
    input_visualizer_args: Any = None
    output_visualizer_args: Any = None
    full_feedback: bool | None = None
    hint: Text | None = None
    description: Text | None = None


class GroupFile(Described):
    """`test_group.yaml`."""

    max_score: Annotated[int, BeforeValidator(_no_truth), Field(ge=0)] | Literal["unbounded"] | None = None
    score_aggregation: Literal["pass-fail", "sum", "min"] | None = None
    static_validation_score: (
        Annotated[int, BeforeValidator(_no_truth), Field(ge=0)] | Literal["pass-fail"] | None
    ) = None
    static_validator_args: Args | None = None
    require_pass: Annotated[list[Text], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)] = []
    args: Args | None = None
    input_validator_args: Any = None
    output_validator_args: Args | None = None
    input_visualizer_args: Any = None
    output_visualizer_args: Any = None
    full_feedback: bool | None = None
    # From drafts: keys of a test, given for all tests of the group.
    hint: Text | None = None
    description: Text | None = None


M = TypeVar("M", bound=BaseModel)


def checked(kind: type[M], name: str, said: Mapping[str, Any]) -> M:
    """Validates a document. A key without a value counts as missing."""
    try:
        return kind.model_validate({key: value for key, value in said.items() if value is not None})
    except ValidationError as error:
        detail = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(part) for part in detail["loc"][:3])[:100]
        if detail["type"] == "extra_forbidden":
            raise InvalidInput(
                f"{name}: the key {key} is not known, and would be ignored. Remove it, or correct it.",
                field=key,
            ) from None
        raise InvalidInput(f"{name}: {key}: {detail['msg']}.", field=key) from None
