"""Reads the ICPC problem package, legacy and 2023-07, which was released as 2025-09.

What the versions name differently is read into one value here. What is unknown, or unsupported, is refused by
its name: a package that is judged differently from what its author wrote is worse than none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.errors import InvalidInput
from fencepost_judge._comparison import Comparison
from fencepost_judge._language import read_specs
from fencepost_judge._problem import ANSWERS, Bounds, Group, Problem, ProgramSpec, Protocol, ValidatorSpec
from fencepost_judge._store import Store
from fencepost_judge.packages import _domjudge_ini as domjudge_ini
from fencepost_judge.packages._constants import Constants
from fencepost_judge.packages._documents import Documents, Parse, parse_in_child
from fencepost_judge.packages._domjudge_ini import DomjudgeIni, read_ini
from fencepost_judge.packages._expectations import FILE as SUBMISSIONS
from fencepost_judge.packages._metadata import PROBLEM, Metadata, Version, read_metadata
from fencepost_judge.packages._source_files import is_data, read_program, read_programs
from fencepost_judge.packages._statements import found_in, read_statements
from fencepost_judge.packages._test_data import asked_graders, asked_validators, read_tests
from fencepost_judge.packages._unsupported import out_of_range, unsupported
from fencepost_judge.packages._validation_data import ValidationData, read_validation_data

DESCRIBING = (PROBLEM, domjudge_ini.NAME)
"""A folder with data and one of these files is a package."""
INCLUDED_DATA_MAX = 10
ATTACHMENTS_MAX = 100
ATTACHED_BYTES_MAX = 256 << 20
PROVISIONAL_MS = 60_000
"""The limit while the real one is being inferred: a solution of the jury may take this long."""
CODES = {
    "pypy3": ("pypy",),
    "python3": ("python", "pypy"),
    "python3numpy": (),
    "python2": (),
    "javascript": ("javascript",),
    "nodejs": ("javascript",),
}
"""Languages whose code in the package format differs from our name for them."""


def is_package(folder: Path) -> bool:
    described = any((folder / name).is_file() for name in DESCRIBING)
    return described and (folder / "data").is_dir()


@dataclass(frozen=True, slots=True)
class Multipliers:
    """The factors that derive the time limit from the jury's solutions."""

    ac_to_time_limit: float
    time_limit_to_tle: float
    resolution_seconds: float
    strict: bool
    """Whether a solution that should be too slow must exceed the limit."""


@dataclass(frozen=True, slots=True)
class ReadPackage:
    """The problem, and everything else in the package."""

    problem: Problem
    metadata: Metadata
    constants: Constants
    submissions: Mapping[str, Any]
    """`submissions.yaml`."""
    timing: Multipliers | None
    validation: ValidationData


def read_package(
    folder: Path, store: Store, *, slug: str | None = None, parse: Parse = parse_in_child
) -> ReadPackage:
    """Read a package and put its data into the store. Raises InvalidInput naming the file."""
    documents = Documents(folder, parse)
    documents.load([folder / PROBLEM])
    metadata, ini = read_metadata(documents.get(folder / PROBLEM)), read_ini(folder)
    constants = Constants(metadata.constants)
    described = folder / SUBMISSIONS
    documents.load([described, *_data_files(folder / "data")], constants.fill)
    takes_answers = "submit-answer" in metadata.kinds
    data = read_tests(folder, store, documents, metadata)
    validators = _validators(folder, metadata, constants, store)
    _check_data(folder, data, metadata, validators)
    static = _static_validator(folder, data, constants, store, takes_answers=takes_answers)
    seconds = metadata.limits.time_limit or _time_limit_file(folder) or ini.seconds
    statements = read_statements(_statement_files(folder, metadata.version), store, constants.fill)
    problem = Problem(
        slug=slug or slug_of(folder.name),
        title=_title(metadata, ini, folder),
        bounds=_bounds(metadata, seconds),
        scoring="scoring" in metadata.kinds,
        interactive="interactive" in metadata.kinds,
        flags=shlex.split(metadata.validator_flags),
        validator=validators[0] if validators else None,
        more_validators=validators[1:],
        grader=_grader(folder, metadata, data, store),
        static_validator=static,
        validator_scores=bool(validators) and metadata.custom_score,
        objective="min" if metadata.objective == "min" else "max",
        include=_include(folder, constants, store),
        languages=[ANSWERS] if takes_answers else _languages(metadata),
        attachments=_attachments(folder, store),
        data=data,
        statement=statements.markdown,
        statements=statements.files,
    )
    timing = _multipliers(metadata) if seconds is None and not takes_answers else None
    validation = read_validation_data(folder, store, documents, constants, problem)
    return ReadPackage(problem, metadata, constants, documents.get(described), timing, validation)


def _data_files(data: Path) -> list[Path]:
    """The YAML files, without those in NAME.files, which are for the program."""
    found = sorted(data.rglob("*.yaml"))
    return [path for path in found if not any(part.endswith(".files") for part in path.parts)]


def _multipliers(metadata: Metadata) -> Multipliers:
    return Multipliers(
        metadata.ac_to_time_limit,
        metadata.time_limit_to_tle,
        metadata.limits.time_resolution,
        metadata.version.is_new,
    )


def _check_data(folder: Path, data: Group, metadata: Metadata, validators: Sequence[ValidatorSpec]) -> None:
    if not any(True for _ in data.all_cases()):
        raise InvalidInput(
            f"{folder / 'data'} has no test: a test is a pair NAME.in and NAME.ans.", field="data"
        )
    if not validators:
        flags = shlex.split(metadata.validator_flags)
        for case in data.all_cases():
            if not case.static:
                Comparison.from_flags(flags if case.flags is None else case.flags)
    unknown = sorted(set(asked_validators(data)) - {one.name for one in validators})
    if unknown:
        raise InvalidInput(
            f"output_validator_flags names the validator {unknown[0][:80]!r}, which does not exist.",
            field="output_validator_flags",
        )


def slug_of(name: str) -> str:
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:64]
    if not slug:
        raise InvalidInput(f"{name!r} gives no short name; use letters and digits.", field="slug")
    return slug


def _title(metadata: Metadata, ini: DomjudgeIni, folder: Path) -> str:
    names = metadata.names
    return (names.get("en") or next(iter(names.values()), "") or ini.name or folder.name)[:200]


def _bounds(metadata: Metadata, seconds: float | None) -> Bounds:
    limits = metadata.limits
    try:
        return Bounds(
            time_ms=PROVISIONAL_MS if seconds is None else round(seconds * 1000),
            memory_kb=round((limits.memory or 1024) * 1024),
            output_kb=round((limits.output or 8) * 1024),
            passes=limits.validation_passes if "multi-pass" in metadata.kinds else 1,
            code_kb=_scaled(limits.code, 1),
            compile_ms=_scaled(limits.compilation_time, 1000),
            compile_memory_kb=_scaled(limits.compilation_memory, 1024),
            validation_ms=_scaled(limits.validation_time, 1000),
            validation_memory_kb=_scaled(limits.validation_memory, 1024),
            validation_output_kb=_scaled(limits.validation_output, 1024),
        )
    except (ValueError, OverflowError) as error:
        raise out_of_range("problem.yaml", error) from None


def _scaled(figure: float | None, unit: int) -> int | None:
    return None if figure is None else round(figure * unit)


def _time_limit_file(folder: Path) -> float | None:
    path = folder / ".timelimit"
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    match = re.match(r"\d+(?:\.\d+)?", text)
    if text and (match is None or not float(match[0])):
        raise InvalidInput(f".timelimit: {text[:80]!r} is no time in seconds.", field="time_limit")
    return float(match[0]) if match else None


def _validators(folder: Path, metadata: Metadata, constants: Constants, store: Store) -> list[ValidatorSpec]:
    """`output_validator` is one program, `output_validators` is a folder of programs."""
    places = [folder / name for name in ("output_validator", "output_validators") if _holds(folder / name)]
    if len(places) > 1:
        raise InvalidInput(
            "The package has both output_validator and output_validators; remove one of them.",
            field="output_validators",
        )
    if metadata.custom_validator is False and places:
        raise InvalidInput(
            f"problem.yaml: there is a validator in {places[0].name}, and validation is not custom. Say"
            " validation: custom, or remove the folder.",
            field="validation",
        )
    if not places:
        _check_none_is_needed(metadata)
        return []
    one = places[0].name == "output_validator"
    fill = constants.fill_bytes
    found = [read_program(places[0], store, fill)] if one else read_programs(places[0], store, fill)
    several = sorted(metadata.kinds & {"interactive", "multi-pass"})
    if len(found) > 1 and several:
        raise InvalidInput(
            f"output_validators: {several[0]} needs one validator, and there are {len(found)}.",
            field="output_validators",
        )
    protocol = Protocol.TESTLIB if metadata.testlib else Protocol.ICPC
    return [
        ValidatorSpec(name=one.name, protocol=protocol, files=one.files, language=one.language)
        for one in found
    ]


def _check_none_is_needed(metadata: Metadata) -> None:
    needing = sorted(metadata.kinds & {"interactive", "multi-pass"})
    needing += ["validation: custom"] if metadata.custom_validator else []
    if needing:
        place = "output_validator" if metadata.version.is_new else "output_validators"
        raise InvalidInput(f"problem.yaml: {needing[0]} needs a validator in {place}.", field="validation")


def _holds(folder: Path) -> bool:
    return folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())


def _grader(folder: Path, metadata: Metadata, data: Group, store: Store) -> ProgramSpec | None:
    """At most one grader, and only for groups that request it."""
    asked = next(asked_graders(data), None)
    if not _holds(folder / "graders"):
        if asked is not None:
            raise InvalidInput(f"{asked}: grading is custom, and graders holds no grader.", field="grading")
        return None
    if metadata.version is Version.RELEASED:
        raise unsupported("graders", "a grader, which 2025-09 does not have,")
    if asked is None:
        raise InvalidInput(
            "graders holds a grader, but no testdata.yaml says grading: custom. Add that, or "
            "remove the grader.",
            field="graders",
        )
    if "scoring" not in metadata.kinds:
        raise InvalidInput("graders: only a scoring problem has a grader of its own.", field="graders")
    found = read_programs(folder / "graders", store)
    if len(found) > 1:
        raise InvalidInput(f"graders holds {len(found)} programs; one is allowed.", field="graders")
    return ProgramSpec(name=found[0].name, files=found[0].files, language=found[0].language)


def _static_validator(
    folder: Path, data: Group, constants: Constants, store: Store, *, takes_answers: bool
) -> ValidatorSpec | None:
    """One program, and groups that ask for it."""
    asked = next((case.name for case in data.all_cases() if case.static), None)
    place = folder / "static_validator"
    if not _holds(place):
        if asked is not None:
            raise InvalidInput(
                f"{asked}: static_validator holds no program.", field="static_validation_score"
            )
        return None
    if takes_answers:
        raise InvalidInput(
            "static_validator: answers are no program, so type submit-answer has no static validator.",
            field="static_validator",
        )
    if asked is None:
        raise InvalidInput(
            "static_validator holds a program, but no test_group.yaml says static_validation_score. Add that,"
            " or remove the program.",
            field="static_validator",
        )
    found = read_program(place, store, constants.fill_bytes)
    return ValidatorSpec(name=found.name, files=found.files, language=found.language)


def code_of(language: str) -> str:
    """The format's code of one of our languages."""
    return next((code for code, names in CODES.items() if names[:1] == (language,)), language)


def our_names(code: str) -> Sequence[str]:
    known = {spec.name for spec in read_specs()}
    return CODES.get(code, (code,) if code in known else ())


def _include(folder: Path, constants: Constants, store: Store) -> dict[str, dict[str, str]]:
    """Included files by our names of languages. Languages that the judge does not know are ignored."""
    made: dict[str, dict[str, str]] = {}
    if not (folder / "include").is_dir():
        return made
    for place in sorted(path for path in (folder / "include").iterdir() if not path.name.startswith(".")):
        if not place.is_dir():
            raise InvalidInput(
                f"include/{place.name} is in no language's folder; included files are in include/default or"
                " include/LANGUAGE.",
                field="include",
            )
        entries = sorted(path for path in place.iterdir() if not path.name.startswith("."))
        deeper = [path.name for path in entries if not path.is_file()]
        if deeper:
            raise unsupported(f"include/{place.name}/{deeper[0]}", "a folder of included files")
        if sum(is_data(path.name) for path in entries) > INCLUDED_DATA_MAX:
            raise unsupported(f"include/{place.name}", f"more than {INCLUDED_DATA_MAX} files of data")
        files = {path.name: store.put(constants.fill_bytes(path.read_bytes())) for path in entries}
        for name in ("default",) if place.name == "default" else our_names(place.name):
            made[name] = files
    return made


def _languages(metadata: Metadata) -> list[str] | None:
    if metadata.languages is None:
        return None
    allowed = sorted({name for code in metadata.languages for name in our_names(code)})
    if not allowed:
        raise InvalidInput(
            f"problem.yaml: the judge has none of the languages {', '.join(metadata.languages)[:200]}.",
            field="languages",
        )
    return allowed


def _attachments(folder: Path, store: Store) -> dict[str, str]:
    place = folder / "attachments"
    if not place.is_dir():
        return {}
    files = [path for path in sorted(place.iterdir()) if path.is_file() and not path.name.startswith(".")]
    if len(files) > ATTACHMENTS_MAX or sum(path.stat().st_size for path in files) > ATTACHED_BYTES_MAX:
        raise InvalidInput(
            f"attachments holds more than {ATTACHMENTS_MAX} files or {ATTACHED_BYTES_MAX} bytes.",
            field="attachments",
        )
    return {path.name: store.put(path.read_bytes()) for path in files}


def _statement_files(folder: Path, version: Version) -> list[tuple[str, Path]]:
    """In the folder of the version, or in that of the other one; `problem.pdf` and the like beside
    problem.yaml are DOMjudge's."""
    new, old = "statement", "problem_statement"
    for place in (new, old) if version.is_new else (old, new):
        if found := found_in(folder / place):
            return found
    return found_in(folder)
