"""A problem, as a value: what a submission must do, within which limits, and how it is scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Frozen(BaseModel):
    """Stored as JSON, read back strictly."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Protocol(StrEnum):
    """How a validator is called and how it answers."""

    ICPC = "icpc"  # input answer feedback/ < output; 42 right, 43 wrong
    TESTLIB = "testlib"  # input output answer; 0 right, 1 wrong, 2 presentation, 7 points


class ValidatorSpec(Frozen):
    """A program of the problem's own that decides. Its files are stored by content."""

    protocol: Protocol = Protocol.ICPC
    files: Mapping[str, Digest]
    language: str


class TestCase(Frozen):
    """One input and its answer, by the digest of their content."""

    __test__ = False

    name: str
    input: Digest
    answer: Digest
    sample: bool = False
    flags: Sequence[str] | None = None
    args: Sequence[str] = ()
    """Of the program, not of the validator."""


class Aggregation(StrEnum):
    """What a group is worth: its tests and groups added up, the least, the most or the mean of them; or its
    score when all of them are right."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    ALL = "all"


class Group(Frozen):
    """Tests that are scored together. In a problem without scores there is one."""

    name: str
    cases: Sequence[TestCase] = ()
    groups: Sequence[Group] = ()
    aggregation: Aggregation = Aggregation.SUM
    score: float = 1
    """What one accepted case is worth; where all must be right, the whole group."""
    stop_at_failure: bool = False
    require: Sequence[str] = ()
    """Groups that must be solved first."""

    def all_cases(self) -> Iterator[TestCase]:
        yield from self.cases
        for group in self.groups:
            yield from group.all_cases()


class Bounds(Frozen):
    time_ms: Annotated[int, Field(ge=10, le=600_000)] = 1000
    memory_kb: Annotated[int, Field(ge=4096, le=1 << 26)] = 262_144
    output_kb: Annotated[int, Field(ge=1, le=1 << 20)] = 8192
    passes: Annotated[int, Field(ge=1, le=100)] = 1


class Problem(Frozen):
    """What is stored about a problem."""

    slug: Slug
    title: Annotated[str, Field(min_length=1, max_length=200)]
    bounds: Bounds = Bounds()
    scoring: bool = False
    interactive: bool = False
    flags: Sequence[str] = ()
    validator: ValidatorSpec | None = None
    data: Group
    statement: str = ""

    @property
    def digests(self) -> set[str]:
        """Every stored content that judging needs."""
        found = {digest for case in self.data.all_cases() for digest in (case.input, case.answer)}
        return found | set(self.validator.files.values() if self.validator else ())
