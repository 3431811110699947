"""A package's own checks: input validators, and data that validators must reject or accept.

Judging needs none of it. `fencepost judge verify` runs it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from fencepost.errors import InvalidInput
from fencepost_judge._problem import Problem, ProgramSpec, TestCase
from fencepost_judge._store import Store
from fencepost_judge.packages._constants import Constants
from fencepost_judge.packages._documents import Documents
from fencepost_judge.packages._source_files import StoredProgram, read_programs
from fencepost_judge.packages._test_data import KNOWN_DATA, NEW_FILE, OLD_FILE

INVALID_INPUT, INVALID_OUTPUT, VALID_OUTPUT, BAD = KNOWN_DATA[2:]
PLACES = ("input_validators", "input_format_validators")
OTHER_TOOLS = (".ctd", ".viva")
"""Extensions of validators that need tools which the judge does not have."""
Args = Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class InputCheck:
    """An input, and whether the input validators must accept it."""

    name: str
    input: str
    args: Args
    valid: bool

    def args_of(self, validator: str) -> list[str]:
        if isinstance(self.args, Mapping):
            return list(self.args.get(validator, ()))
        return list(self.args)


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """An output, and the verdict that the output validator must give."""

    case: TestCase
    output: bytes
    expected: Literal["AC", "WA"]


@dataclass(frozen=True, slots=True)
class ValidationData:
    validators: Sequence[ProgramSpec] = ()
    not_run: Sequence[str] = ()
    """Validators that need other tools."""
    inputs: Sequence[InputCheck] = ()
    outputs: Sequence[OutputCheck] = ()


def read_validation_data(
    root: Path, store: Store, documents: Documents, constants: Constants, problem: Problem
) -> ValidationData:
    found, other = _validators(root, store, constants)
    # Not stored twice: a large package would take twice as long.
    known = {f"data/{case.name}.in": case.input for case in problem.data.all_cases() if not case.static}
    reader = _Reader(root, store, documents, problem.flags, known)
    return ValidationData(
        validators=[ProgramSpec(name=one.name, files=one.files, language=one.language) for one in found],
        not_run=other,
        inputs=list(reader.inputs()),
        outputs=[*reader.outputs(INVALID_OUTPUT, "WA"), *reader.outputs(VALID_OUTPUT, "AC")],
    )


def _validators(root: Path, store: Store, constants: Constants) -> tuple[list[StoredProgram], list[str]]:
    found: list[StoredProgram] = []
    other: list[str] = []
    for name in PLACES:
        place = root / name
        if not place.is_dir():
            continue
        other += sorted(path.name for path in place.rglob("*") if path.suffix in OTHER_TOOLS)
        entries = [path for path in place.iterdir() if not path.name.startswith(".")]
        if any(path.suffix not in OTHER_TOOLS for path in entries if not _only_other_tools(path)):
            found += read_programs(place, store, constants.fill_bytes, leave_out=_only_other_tools)
    return found, other


def _only_other_tools(path: Path) -> bool:
    if path.is_file():
        return path.suffix in OTHER_TOOLS
    files = [one for one in path.rglob("*") if one.is_file()]
    return bool(files) and all(one.suffix in OTHER_TOOLS for one in files)


@dataclass(frozen=True, slots=True)
class _Reader:
    root: Path
    store: Store
    documents: Documents
    flags: Sequence[str]
    known: Mapping[str, str]
    """Inputs that are stored already."""

    def inputs(self) -> Iterator[InputCheck]:
        for place in KNOWN_DATA:
            for path in self._tests(place):
                said = self._said(path)
                args = _args(path, said.get("input_validator_args", said.get("input_validator_flags")))
                if not isinstance(args, Mapping):
                    args = [*args, *(str(one) for one in said.get("args") or ())]
                name = str(path.relative_to(self.root))
                digest = self.known.get(name) or self.store.put(path.read_bytes())
                yield InputCheck(name, digest, args, place not in (INVALID_INPUT, BAD))

    def outputs(self, place: str, expected: Literal["AC", "WA"]) -> Iterator[OutputCheck]:
        for path in self._tests(place):
            beside = {ending: path.with_suffix(ending) for ending in (".ans", ".out")}
            missing = [one.name for one in beside.values() if not one.is_file()]
            if missing:
                raise InvalidInput(
                    f"data/{place}/{path.name} has no {missing[0]} beside it.", field=path.name
                )
            own = self._said(path).get("output_validator_args")
            case = TestCase(
                name=str(path.relative_to(self.root / "data").with_suffix("")),
                input=self.store.put(path.read_bytes()),
                answer=self.store.put(beside[".ans"].read_bytes()),
                flags=None if own is None else [*self.flags, *(str(one) for one in own)],
            )
            yield OutputCheck(case, beside[".out"].read_bytes(), expected)

    def _tests(self, place: str) -> list[Path]:
        folder = self.root / "data" / place
        return sorted(path for path in folder.rglob("*.in") if path.is_file()) if folder.is_dir() else []

    def _said(self, path: Path) -> dict[str, Any]:
        """The keys of the folders above the test, from the outermost, and of the test itself."""
        above = [one for one in path.parents if one.is_relative_to(self.root / "data")]
        files = [one / name for one in reversed(above) for name in (OLD_FILE, NEW_FILE)]
        said: dict[str, Any] = {}
        for file in (*files, path.with_suffix(".yaml")):
            said |= self.documents.get(file)
        return said


def _args(path: Path, said: Any) -> Args:
    """Accepts a text of words, a list, words by the validator's name, or the old format's name and flags."""
    if said is None:
        return []
    if isinstance(said, str):
        return shlex.split(said)
    if isinstance(said, list):
        return [str(one) for one in cast("list[object]", said)]
    if isinstance(said, dict):
        parts = cast("dict[str, Any]", said)
        if set(parts) <= {"name", "flags"}:
            return {str(parts.get("name", "")): shlex.split(str(parts.get("flags", "")))}
        return {
            name: [str(one) for one in cast("list[object]", own)]
            if isinstance(own, list)
            else shlex.split(str(own))
            for name, own in parts.items()
        }
    raise InvalidInput(f"{path.name}: the arguments of its input validator are no words.", field=path.name)
