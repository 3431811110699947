"""The ICPC problem package, legacy and 2023-07, which was released as 2025-09.

What the two call differently is read into one value here; what we do not know in problem.yaml is left alone,
as the format asks, but a wrong value of what we do know is an error that names the file.
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
    documents.load([folder / "problem.yaml", *(folder / "data").rglob("*.yaml")])
    described = documents.get(folder / "problem.yaml")
    dialect = NEW if _is_new(described) else LEGACY
    kinds = _kinds(described)
    flags = shlex.split(str(described.get("validator_flags", "") or ""))
    validator = _validator(folder, described, dialect, kinds, store)
    if (folder / "static_validator").is_dir():
        raise InvalidInput("static_validator: static validation is not supported.", field="static_validator")
    reader = _Reader(folder, store, documents, dialect, "scoring" in kinds, tuple(flags))
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
        title=_title(described, folder),
        bounds=_bounds(folder, described, kinds),
        scoring="scoring" in kinds,
        interactive="interactive" in kinds,
        flags=flags,
        validator=validator,
        data=Group(name="data", groups=[scored_samples, secret]),
        statement=_statement(folder, dialect),
    )


def slug_of(name: str) -> str:
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:64]
    if not slug:
        raise InvalidInput(f"{name!r} gives no short name; use letters and digits.", field="slug")
    return slug


def _is_new(described: Yaml) -> bool:
    return not str(described.get("problem_format_version", "legacy")).startswith("legacy")


def _kinds(described: Yaml) -> set[str]:
    """pass-fail, scoring, interactive, multi-pass: by `type`, and in the old format by `validation`."""
    kinds: Any = described.get("type", "pass-fail")
    words = set(cast("list[str]", kinds) if isinstance(kinds, list) else str(kinds).split())
    validation = str(described.get("validation", "default")).split()
    words |= {word for word in validation if word in ("interactive", "multi-pass")}
    unknown = words - {"pass-fail", "scoring", "interactive", "multi-pass", "submit-answer"}
    if unknown or "submit-answer" in words:
        raise InvalidInput(f"problem.yaml: the type {', '.join(sorted(words))} is not known.", field="type")
    return words


def _title(described: Yaml, folder: Path) -> str:
    name: Any = described.get("name", folder.name)
    if isinstance(name, dict):
        names = cast("dict[str, str]", name)
        name = names.get("en") or next(iter(names.values()), folder.name)
    return str(name)[:200]


def _bounds(folder: Path, described: Yaml, kinds: set[str]) -> Bounds:
    limits: Any = described.get("limits") or {}
    seconds = limits.get("time_limit") or _time_limit_file(folder) or 1.0
    passes = int(limits.get("validation_passes", 2)) if "multi-pass" in kinds else 1
    try:
        return Bounds(
            time_ms=round(float(seconds) * 1000),
            memory_kb=round(float(limits.get("memory", 1024)) * 1024),
            output_kb=round(float(limits.get("output", 8)) * 1024),
            passes=passes,
        )
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"problem.yaml: a limit is out of its range: {error}", field="limits") from None


def _time_limit_file(folder: Path) -> float | None:
    for name in (".timelimit", "domjudge-problem.ini"):
        path = folder / name
        if path.is_file():
            match = re.search(r"(?:timelimit\s*=\s*)?['\"]?(\d+(?:\.\d+)?)", path.read_text(encoding="utf-8"))
            if match:
                return float(match[1])
    return None


def _validator(
    folder: Path, described: Yaml, dialect: Dialect, kinds: set[str], store: Store
) -> ValidatorSpec | None:
    validation = str(described.get("validation", "")).split()
    places = [folder / name for name in dialect.validators if (folder / name).is_dir()]
    if not places or (validation and validation[0] == "default"):
        needing = sorted(kinds & {"interactive", "multi-pass"}) + [
            one for one in validation if one == "custom"
        ]
        if needing:
            raise InvalidInput(
                f"problem.yaml: {needing[0]} needs a validator in {dialect.validators[0]}.",
                field="validation",
            )
        return None
    program = read_program(places[0], store)
    protocol = Protocol.TESTLIB if "testlib" in validation else Protocol.ICPC
    return ValidatorSpec(protocol=protocol, files=program.files, language=program.language)


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
        own = next((self.documents.get(path) for path in files if path.is_file()), dict[str, Any]())
        kept = above if not self.dialect.is_new else {key: above[key] for key in _HANDED_ON if key in above}
        return {**kept, **own}

    def is_group(self, folder: Path) -> bool:
        return not self.dialect.is_new or any((folder / name).is_file() for name in self.dialect.group_files)


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
        described = {**described, **reader.documents.get(path.with_suffix(".yaml"))}
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
