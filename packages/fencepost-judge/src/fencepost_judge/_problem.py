"""A problem as a value: what a submission must do, within which limits, and how it is scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Frozen(BaseModel):
    """Stored as JSON, read back strictly."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    LATER: ClassVar[frozenset[str]] = frozenset()
    """Fields added later: omitted when they have their default. So a problem that uses none of them is
    stored as before, keeps its version, and can be read by a worker that does not know them yet."""

    @model_serializer(mode="wrap")
    def _lean(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name in self.LATER:
            value, usual = getattr(self, name), type(self).model_fields[name].default
            if value == usual or (usual == () and not value):
                written.pop(name, None)
        return written


class Protocol(StrEnum):
    """How a validator is called and how it answers."""

    ICPC = "icpc"  # input answer feedback/ < output; 42 right, 43 wrong
    TESTLIB = "testlib"  # input output answer; 0 right, 1 wrong, 2 presentation, 7 points
    TESTLIB_POINTS = "testlib-points"  # the same; what follows `points` is never a fraction
    DMOJ = "dmoj"  # input output answer, of an interactor input answer; 0 right, 1 wrong
    CMS = "cms"  # input answer output; a fraction on its output, a message on its stderr

    @property
    def accepted(self) -> int:
        """The exit code of a validator that accepts."""
        return 42 if self is Protocol.ICPC else 0


ANSWERS = "answers"
"""Used in place of a language: the submission is the answers to the tests, and nothing is compiled or run."""
SCRIPT = "script"
"""Used in place of a language: the program is built by its script `build`, and run by its script `run`."""


class ProgramSpec(Frozen):
    """A program that belongs to the problem. Its files are stored by content."""

    LATER = frozenset({"name"})

    name: str = ""
    files: Mapping[str, Digest]
    language: str


class ValidatorSpec(ProgramSpec):
    """A program that decides whether an output is right."""

    protocol: Protocol = Protocol.ICPC


class TestCase(Frozen):
    """One input and its answer, by the digest of their content."""

    __test__ = False
    LATER = frozenset({"files", "validator", "static", "worth"})

    name: str
    input: Digest
    answer: Digest
    sample: bool = False
    flags: Sequence[str] | None = None
    args: Sequence[str] = ()
    """Arguments of the program, not of the validator."""
    files: Mapping[str, Digest] = {}
    """Files beside the program while it runs, by name."""
    validator: str | None = None
    """If set, only the validator of this name is asked."""
    static: bool = False
    """The program is not run: the static validator is asked about its files, with `flags` as arguments."""
    worth: float | None = None
    """The best score of the test, where it is not that of its group's tests."""


class Aggregation(StrEnum):
    """The score of a group: the sum, the minimum, the maximum or the mean of its tests and groups; or its
    score when all of them are right."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    ALL = "all"


class VerdictMode(StrEnum):
    """How the default grader of the old format combines several verdicts into one."""

    WORST = "worst_error"
    FIRST = "first_error"
    ALWAYS = "always_accept"


class Rules(Frozen):
    """How a package in the old format grades a group: by the default grader, or by one of its own."""

    verdict: VerdictMode = VerdictMode.WORST
    score: Aggregation = Aggregation.SUM
    accept_if_any: bool = False
    ignore_sample: bool = False
    accept_score: float = 1
    reject_score: float = 0
    stops: bool = True
    """Whether a rejected test or group ends this one."""
    grader_flags: Sequence[str] | None = None
    """Arguments of the package's own grader; None for the default one."""
    least: float | None = None
    most: float | None = None


class Group(Frozen):
    """Tests that are scored together. A problem without scores has one group."""

    LATER = frozenset({"rules"})

    name: str
    cases: Sequence[TestCase] = ()
    groups: Sequence[Group] = ()
    aggregation: Aggregation = Aggregation.SUM
    score: float = 1
    """The score of one accepted test; where all must be right, of the whole group."""
    stop_at_failure: bool = False
    require: Sequence[str] = ()
    """Groups that must be solved first."""
    rules: Rules | None = None
    """The rules of the old format; they replace the fields above."""

    def items(self) -> list[TestCase | Group]:
        """Tests and groups in the order in which they are judged: by name."""
        found: list[TestCase | Group] = [*self.cases, *self.groups]
        return sorted(found, key=lambda one: one.name) if self.cases and self.groups else found

    def all_cases(self) -> Iterator[TestCase]:
        for item in self.items():
            if isinstance(item, Group):
                yield from item.all_cases()
            else:
                yield item


class Bounds(Frozen):
    LATER = frozenset(
        {
            "code_kb",
            "compile_ms",
            "compile_memory_kb",
            "validation_ms",
            "validation_memory_kb",
            "validation_output_kb",
        }
    )

    time_ms: Annotated[int, Field(ge=10, le=600_000)] = 1000
    memory_kb: Annotated[int, Field(ge=4096, le=1 << 26)] = 262_144
    output_kb: Annotated[int, Field(ge=1, le=1 << 20)] = 8192
    passes: Annotated[int, Field(ge=1, le=100)] = 1
    code_kb: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """The largest program; None for the judge's limit."""
    compile_ms: Annotated[int, Field(ge=1, le=600_000)] | None = None
    compile_memory_kb: Annotated[int, Field(ge=1024, le=1 << 26)] | None = None
    validation_ms: Annotated[int, Field(ge=1, le=600_000)] | None = None
    validation_memory_kb: Annotated[int, Field(ge=1024, le=1 << 26)] | None = None
    validation_output_kb: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    """The least that compilers and validators get; None for the judge's default."""


class JuryRun(Frozen):
    """How long one of the jury's solutions took."""

    name: str
    bound: Literal["lower", "upper"]
    time_ms: int
    verdict: str


class Timing(Frozen):
    """The origin of the time limit: the package, a person, or the jury's solutions."""

    origin: Literal["package", "given", "inferred"] = "package"
    slowest: str = ""
    slowest_ms: int = 0
    factor: float = 1.0
    safety: float = 1.0
    note: str = ""
    runs: Sequence[JuryRun] = ()


class StatementFile(Frozen):
    """A statement in one language, as its author wrote it."""

    language: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")] = "en"
    format: Literal["markdown", "html", "tex", "pdf"]
    content: Digest

    @property
    def name(self) -> str:
        """The language and the form, such as `en.pdf`."""
        return f"{self.language}.{'md' if self.format == 'markdown' else self.format}"


FileName = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,99})?$")]


class Problem(Frozen):
    """The stored form of a problem."""

    LATER = frozenset(
        {
            "more_validators",
            "grader",
            "static_validator",
            "validator_scores",
            "objective",
            "include",
            "languages",
            "attachments",
            "timing",
            "input_file",
            "output_file",
            "statements",
        }
    )

    slug: Slug
    title: Annotated[str, Field(min_length=1, max_length=200)]
    bounds: Bounds = Bounds()
    scoring: bool = False
    interactive: bool = False
    flags: Sequence[str] = ()
    validator: ValidatorSpec | None = None
    more_validators: Sequence[ValidatorSpec] = ()
    """Further validators. All of them must accept an output; of a conversation they check what its interactor
    wrote."""
    grader: ProgramSpec | None = None
    static_validator: ValidatorSpec | None = None
    validator_scores: bool = False
    """Whether the validator awards points; then the best score is unknown, unless the package states it."""
    objective: Literal["max", "min"] = "max"
    include: Mapping[str, Mapping[str, Digest]] = {}
    """Files added to every program in a language, by their names; those of `default` for all languages."""
    languages: Sequence[str] | None = None
    """The allowed languages; None for all."""
    attachments: Mapping[str, Digest] = {}
    data: Group
    input_file: FileName = ""
    """The file that a program reads, if it is not its standard input."""
    output_file: FileName = ""
    """The file that a program writes, if it is not its standard output."""
    statement: str = ""
    """The statement in Markdown, in English where there is one."""
    statements: Sequence[StatementFile] = ()
    """The statements in other forms and languages."""
    timing: Timing = Timing()

    @property
    def takes_answers(self) -> bool:
        """Whether contestants submit answers in place of programs."""
        return self.languages is not None and list(self.languages) == [ANSWERS]

    @property
    def programs(self) -> Sequence[ProgramSpec]:
        """The programs that must be compiled besides a submission."""
        return [
            *([self.validator] if self.validator else ()),
            *self.more_validators,
            *([self.grader] if self.grader else ()),
            *([self.static_validator] if self.static_validator else ()),
        ]

    def included(self, language: str) -> dict[str, str]:
        """Names to digests of the files added to a program in this language."""
        return {**self.include.get("default", {}), **self.include.get(language, {})}

    @property
    def digests(self) -> set[str]:
        """Every stored content that judging needs."""
        found = {digest for case in self.data.all_cases() for digest in (case.input, case.answer)}
        found |= {digest for case in self.data.all_cases() for digest in case.files.values()}
        found |= {digest for files in self.include.values() for digest in files.values()}
        return found | {digest for program in self.programs for digest in program.files.values()}
