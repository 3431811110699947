"""The ICPC problem package, legacy and 2023-07, which was released as 2025-09.

What the versions call differently is read into one value here. What is not known, or not supported, is
refused by its name: a package that is judged differently from what its author wrote is worse than none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fencepost.errors import InvalidInput
from fencepost.judge.comparison import Comparison
from fencepost.judge.packages.documents import Documents, Parse, parse_in_child
from fencepost.judge.packages.metadata import (
    PROBLEM,
    CaseFile,
    GroupFile,
    LegacyGroup,
    Metadata,
    checked,
    read_metadata,
)
from fencepost.judge.packages.source_files import read_program
from fencepost.judge.problem import Aggregation, Bounds, Group, Problem, Protocol, TestCase, ValidatorSpec
from fencepost.judge.store import Store

Yaml = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where the two versions of the format differ. Drafts of the new one have the old one's group file."""

    is_new: bool
    group_files: Sequence[str]
    validators: Sequence[str]
    statements: Sequence[str]


LEGACY = Dialect(False, ("testdata.yaml",), ("output_validators",), ("problem_statement",))
NEW = Dialect(
    True,
    ("test_group.yaml", "testdata.yaml"),
    ("output_validator", "output_validators"),
    ("statement", "problem_statement"),
)


def is_package(folder: Path) -> bool:
    return (folder / "problem.yaml").is_file() and (folder / "data").is_dir()


def read_package(
    folder: Path, store: Store, *, slug: str | None = None, parse: Parse = parse_in_child
) -> Problem:
    """Read a package and put its data into the store. Raises InvalidInput naming the file."""
    documents = Documents(folder, parse)
    documents.load([folder / PROBLEM, *(folder / "data").rglob("*.yaml")])
    metadata = read_metadata(documents.get(folder / PROBLEM))
    _refuse_unsupported(folder, metadata)
    check_tests(folder / "data")
    dialect = NEW if metadata.version.is_new else LEGACY
    flags = shlex.split(metadata.validator_flags)
    validator = _validator(folder, metadata, dialect, store)
    scoring = "scoring" in metadata.kinds
    reader = _Reader(folder, store, documents, dialect, scoring, tuple(flags))
    above = reader.described(folder / "data", {})
    secret = _group(folder / "data/secret", "secret", reader, above)
    sample = _group(folder / "data/sample", "sample", reader, above)
    samples = [case.model_copy(update={"sample": True}) for case in sample.all_cases()]
    if not samples and not any(True for _ in secret.all_cases()):
        raise InvalidInput(
            f"{folder / 'data'} has no test: a test is a pair NAME.in and NAME.ans.", field="data"
        )
    if validator is None:
        for case in (*samples, *secret.all_cases()):
            Comparison.from_flags(flags if case.flags is None else case.flags)
    scored_samples = Group(name="sample", cases=samples, score=0)
    return Problem(
        slug=slug or slug_of(folder.name),
        title=_title(metadata, folder),
        bounds=_bounds(folder, metadata),
        scoring=scoring,
        interactive="interactive" in metadata.kinds,
        flags=flags,
        validator=validator,
        data=Group(name="data", groups=[scored_samples, secret]),
        statement=_statement(folder, dialect),
    )


_UNSUPPORTED = {
    "include": "code that is compiled with every submission",
    "graders": "a grader of the package's own",
    "grader": "a grader of the package's own",
    "static_validator": "static validation",
    "submissions/submissions.yaml": "what submissions.yaml says of the jury's submissions",
}
"""What would change verdicts, and is not read."""


def _refuse_unsupported(folder: Path, metadata: Metadata) -> None:
    for name, what in _UNSUPPORTED.items():
        if (folder / name).exists():
            raise _unsupported(name, what)
    if "submit-answer" in metadata.kinds:
        raise _unsupported("problem.yaml", "type submit-answer")
    if metadata.languages is not None:
        raise _unsupported("problem.yaml", "languages, a choice of programming languages,")
    if metadata.constants:
        raise _unsupported("problem.yaml", "constants")
    for key in ("compilation_time", "compilation_memory", "code"):
        if getattr(metadata.limits, key) is not None:
            raise _unsupported("problem.yaml", f"limits.{key}")
    for key in ("validation_time", "validation_memory", "validation_output"):
        if getattr(metadata.limits, key) is not None:
            raise _unsupported("problem.yaml", f"limits.{key}")


def _unsupported(name: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: {what} is not supported, and verdicts would be wrong without it. Nothing was imported.",
        field=name.rpartition("/")[2],
    )


KNOWN_DATA = ("sample", "secret", "invalid_input", "invalid_output", "valid_output")
VALIDATION_DATA = KNOWN_DATA[2:]


def check_tests(data: Path) -> None:
    """No test may be left out in silence."""
    for path in sorted(data.rglob("*")):
        where = path.relative_to(data)
        if any(part.startswith(".") for part in where.parts) or not path.is_file():
            continue
        if path.suffix == ".in" and (len(where.parts) < 2 or where.parts[0] not in KNOWN_DATA):
            raise InvalidInput(
                f"data/{where} is judged nowhere: tests are in data/sample and data/secret.", field=path.name
            )
        if path.suffix == ".ans" and where.parts[0] in KNOWN_DATA and not path.with_suffix(".in").is_file():
            raise InvalidInput(f"data/{where} has no {path.stem}.in beside it.", field=path.name)


def slug_of(name: str) -> str:
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:64]
    if not slug:
        raise InvalidInput(f"{name!r} gives no short name; use letters and digits.", field="slug")
    return slug


def _title(metadata: Metadata, folder: Path) -> str:
    names = metadata.names
    return (names.get("en") or next(iter(names.values()), "") or folder.name)[:200]


def _bounds(folder: Path, metadata: Metadata) -> Bounds:
    limits = metadata.limits
    seconds = limits.time_limit or _time_limit_file(folder) or 1.0
    try:
        return Bounds(
            time_ms=round(seconds * 1000),
            memory_kb=round((limits.memory or 1024) * 1024),
            output_kb=round((limits.output or 8) * 1024),
            passes=limits.validation_passes if "multi-pass" in metadata.kinds else 1,
        )
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"problem.yaml: a limit is out of its range: {error}", field="limits") from None


def _time_limit_file(folder: Path) -> float | None:
    for name in (".timelimit", "domjudge-problem.ini"):
        path = folder / name
        if path.is_file():
            match = re.search(r"(?:timelimit\s*=\s*)?['\"]?(\d+(?:\.\d+)?)", path.read_text(encoding="utf-8"))
            if match:
                return float(match[1])
    return None


def _validator(folder: Path, metadata: Metadata, dialect: Dialect, store: Store) -> ValidatorSpec | None:
    places = [folder / name for name in ("output_validator", "output_validators") if _holds(folder / name)]
    if len(places) > 1:
        raise InvalidInput(
            "There is output_validator and output_validators; leave one of them.", field="output_validators"
        )
    if metadata.custom_validator is False and places:
        raise InvalidInput(
            f"problem.yaml: there is a validator in {places[0].name}, and validation is not custom. Say"
            " validation: custom, or remove the folder.",
            field="validation",
        )
    if not places:
        needing = sorted(metadata.kinds & {"interactive", "multi-pass"})
        needing += ["validation: custom"] if metadata.custom_validator else []
        if needing:
            raise InvalidInput(
                f"problem.yaml: {needing[0]} needs a validator in {dialect.validators[0]}.",
                field="validation",
            )
        return None
    program = read_program(places[0], store)
    protocol = Protocol.TESTLIB if metadata.testlib else Protocol.ICPC
    return ValidatorSpec(protocol=protocol, files=program.files, language=program.language)


def _holds(folder: Path) -> bool:
    return folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())


@dataclass(frozen=True, slots=True)
class _Reader:
    root: Path
    store: Store
    documents: Documents
    dialect: Dialect
    scoring: bool
    flags: Sequence[str]
    """Of problem.yaml: what a group adds comes behind them."""

    def described(self, folder: Path, above: Yaml) -> Yaml:
        """What is said of a group. In the old format it is said of all below it too; in the new one only what
        is handed to programs is."""
        files = (folder / name for name in self.dialect.group_files)
        own = next((self._own(path) for path in files if path.is_file()), dict[str, Any]())
        kept = above if not self.dialect.is_new else {key: above[key] for key in _HANDED_ON if key in above}
        return {**kept, **own}

    def _own(self, path: Path) -> dict[str, Any]:
        name, said = str(path.relative_to(self.root)), self.documents.get(path)
        kind = GroupFile if path.name == "test_group.yaml" else LegacyGroup
        found = checked(kind, name, said)
        if isinstance(found, LegacyGroup):
            _refuse_grading(name, found)
        elif found.static_validation_score is not None:
            raise _unsupported(name, "static_validation_score")
        return found.model_dump(exclude_unset=True)

    def is_group(self, folder: Path) -> bool:
        return not self.dialect.is_new or any((folder / name).is_file() for name in self.dialect.group_files)


_GRADER_WORDS = {"sum", "avg", "min", "max", "worst_error", "first_error", "ignore_sample"}


def _refuse_grading(name: str, found: LegacyGroup) -> None:
    if found.grading == "custom":
        raise _unsupported(name, "grading: custom, a grader of the package's own,")
    if found.reject_score:
        raise _unsupported(name, "reject_score")
    other = sorted(set((found.grader_flags or "").split()) - _GRADER_WORDS - {"accept_if_any_accepted"})
    if other:
        raise _unsupported(name, f"the grader flag {other[0][:40]}")


_FLAGS = ("output_validator_flags", "output_validator_args")
_HANDED_ON = (*_FLAGS, "args")


def _group(folder: Path, name: str, reader: _Reader, above: Yaml) -> Group:
    if not folder.is_dir():
        return Group(name=name)
    described = reader.described(folder, above)
    cases, below = _cases(folder, reader, described), list[Group]()
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        if path.suffix == ".files":
            raise InvalidInput(f"{path.name}: files beside the input are not supported.", field=path.name)
        if reader.is_group(path):
            below.append(_group(path, f"{name}/{path.name}", reader, described))
        else:
            inner = _group(path, name, reader, described)
            cases, below = [*cases, *inner.cases], [*below, *inner.groups]
    return Group(name=name, cases=cases, groups=below, **_scores(name, described, len(cases), reader))


def _cases(folder: Path, reader: _Reader, described: Yaml) -> list[TestCase]:
    return [
        _case(path, reader, described)
        for path in sorted(folder.glob("*.in"))
        if path.is_file() and not path.name.endswith((".statement.in", ".download.in"))
    ]


def _case(path: Path, reader: _Reader, described: Yaml) -> TestCase:
    if reader.dialect.is_new:
        beside = path.with_suffix(".yaml")
        said = checked(CaseFile, str(beside.relative_to(reader.root)), reader.documents.get(beside))
        described = {**described, **said.model_dump(exclude_unset=True)}
    own = next((described[key] for key in reversed(_FLAGS) if key in described), None)
    return TestCase(
        name=str(path.relative_to(reader.root / "data").with_suffix("")),
        input=reader.store.put(path.read_bytes()),
        answer=reader.store.put(_answer(path)),
        flags=None if own is None else [*reader.flags, *_words(own)],
        args=_words(described.get("args", ())),
    )


def _words(value: Any) -> list[str]:
    """A text of words, a list of them, or the old format's name and flags."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("flags", "")
    return shlex.split(value) if isinstance(value, str) else [str(word) for word in value]


def _answer(path: Path) -> bytes:
    answer = path.with_suffix(".ans")
    if not answer.is_file():
        raise InvalidInput(f"{path.name} has no {answer.name} beside it.", field=path.name)
    return answer.read_bytes()


def _scores(name: str, described: Yaml, count: int, reader: _Reader) -> dict[str, Any]:
    if not reader.scoring:
        return {}
    require: Any = described.get("require_pass", ())
    scores: dict[str, Any] = {
        "stop_at_failure": described.get("on_reject") == "break",
        "require": [require] if isinstance(require, str) else list(require),
    }
    new = reader.dialect.is_new and not {"accept_score", "grader_flags"} & set(described)
    return scores | (_new_scores(name, described, count) if new else _old_scores(described))


def _old_scores(described: Yaml) -> dict[str, Any]:
    """What a test is worth, and how the default grader puts them together; its last mode counts."""
    modes = [word for word in str(described.get("grader_flags", "")).split() if word in _MODES]
    return {
        "aggregation": _MODES[modes[-1]] if modes else Aggregation.SUM,
        "score": float(described.get("accept_score", 1)),
    }


_MODES = {one.value: one for one in (Aggregation.SUM, Aggregation.MIN, Aggregation.MAX, Aggregation.AVG)}
_NEW_MODES = {"sum": Aggregation.SUM, "min": Aggregation.MIN, "pass-fail": Aggregation.ALL}


def _new_scores(name: str, described: Yaml, count: int) -> dict[str, Any]:
    """What a group is worth, and whether its tests share that. Unbounded: only what a validator says."""
    whole = name == "secret"
    mode = str(described.get("score_aggregation", "sum" if whole else "pass-fail"))
    if mode not in _NEW_MODES:
        raise InvalidInput(f"{name}: score_aggregation {mode!r} is not sum, min or pass-fail.", field=name)
    most: Any = described.get("max_score", 100 if whole else None)
    if most == "unbounded":
        score = 0.0
    elif most is None:
        score = 1.0
    else:
        score = float(most) / count if mode == "sum" and count else float(most)
    return {"aggregation": _NEW_MODES[mode], "score": score}


def _statement(folder: Path, dialect: Dialect) -> str:
    """In English, or else in the first language that there is."""
    for place in dialect.statements:
        others = sorted((folder / place).glob("problem.*.md"))
        for path in (folder / place / "problem.en.md", folder / place / "problem.md", *others):
            if path.is_file():
                return path.read_text(encoding="utf-8")[:500_000]
    return ""
