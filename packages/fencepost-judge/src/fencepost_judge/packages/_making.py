"""How the tests are made that a package only describes: by its generators and its main solution."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost_judge._problem import Group, Problem, ProgramSpec


@dataclass(frozen=True, slots=True)
class Recipe:
    """One test that is made. What is not there yet has a digest in its place, see `absent`."""

    input: str
    """The digest of its input; of one that is made, the digest in its place."""
    answer: str | None
    """The digest in the place of its answer; None when the answer is stored."""
    program: str | None = None
    """The generator by its name; None when the input is stored."""
    args: Sequence[str] = ()
    given: str | None = None
    """The generator's standard input, by its digest."""
    file: str = ""
    """The file with the input that the generator writes, if it is not its standard output."""
    answers: bool = False
    """Whether the generator writes the answer on its stderr; otherwise the main solution does."""


@dataclass(frozen=True, slots=True)
class Making:
    """Everything that is needed to make the absent tests."""

    recipes: Sequence[Recipe]
    programs: Mapping[str, ProgramSpec] = field(default_factory=dict[str, ProgramSpec])
    solution: ProgramSpec | None = None
    """Writes the answers."""


def absent(name: str) -> str:
    """A digest in the place of content that is to be made. No content has it."""
    return hashlib.sha256(f"to be made: {name}".encode()).hexdigest()


def with_made(problem: Problem, made: Mapping[str, str]) -> Problem:
    """The problem with the digests of what was made."""
    return problem.model_copy(update={"data": _group(problem.data, made)})


def _group(group: Group, made: Mapping[str, str]) -> Group:
    cases = [
        case.model_copy(
            update={
                "input": made.get(case.input, case.input),
                "answer": made.get(case.answer, case.answer),
            }
        )
        for case in group.cases
    ]
    return group.model_copy(update={"cases": cases, "groups": [_group(one, made) for one in group.groups]})
