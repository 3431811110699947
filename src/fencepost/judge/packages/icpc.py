"""The ICPC problem package, legacy and 2023-07.

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

import yaml

from fencepost.errors import InvalidInput
from fencepost.judge.packages.source_files import read_program
from fencepost.judge.problem import Aggregation, Bounds, Group, Problem, Protocol, TestCase, ValidatorSpec
from fencepost.judge.store import Store

Yaml = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where the two versions of the format differ."""

    group_file: str
    validators: Sequence[str]
    statements: Sequence[str]


LEGACY = Dialect("testdata.yaml", ("output_validators",), ("problem_statement",))
V2023 = Dialect(
    "test_group.yaml", ("output_validator", "output_validators"), ("statement", "problem_statement")
)


def is_package(folder: Path) -> bool:
    return (folder / "problem.yaml").is_file() and (folder / "data").is_dir()


def read_package(folder: Path, store: Store, *, slug: str | None = None) -> Problem:
    """Read a package and put its data into the store. Raises InvalidInput naming the file."""
    described = read_yaml(folder / "problem.yaml")
    dialect = V2023 if "problem_format_version" in described and _is_new(described) else LEGACY
    kinds = _kinds(described)
    validator, protocol_flags = _validator(folder, described, dialect, store)
    secret = _group(
        folder / "data/secret", "secret", _Reader(folder, store, dialect, "scoring" in kinds), None
    )
    sample = _group(folder / "data/sample", "sample", _Reader(folder, store, dialect, False), None)
    samples = [case.model_copy(update={"sample": True}) for case in sample.cases]
    if not samples and not any(True for _ in secret.all_cases()):
        raise InvalidInput(
            f"{folder / 'data'} has no test: a test is a pair NAME.in and NAME.ans.", field="data"
        )
    scored_samples = Group(name="sample", cases=samples, score=0)
    return Problem(
        slug=slug or slug_of(folder.name),
        title=_title(described, folder),
        bounds=_bounds(folder, described, kinds),
        scoring="scoring" in kinds,
        interactive="interactive" in kinds,
        flags=protocol_flags,
        validator=validator,
        data=Group(name="data", groups=[scored_samples, secret]),
        statement=_statement(folder, dialect),
    )


def read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path.name} is not YAML: {error}", field=path.name) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidInput(f"{path.name} must hold keys and values.", field=path.name)
    return cast("dict[str, Any]", document)


def slug_of(name: str) -> str:
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:64]
    if not slug:
        raise InvalidInput(f"{name!r} gives no short name; use letters and digits.", field="slug")
    return slug


def _is_new(described: Yaml) -> bool:
    return not str(described["problem_format_version"]).startswith("legacy")


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
    folder: Path, described: Yaml, dialect: Dialect, store: Store
) -> tuple[ValidatorSpec | None, Sequence[str]]:
    flags = shlex.split(str(described.get("validator_flags", "") or ""))
    validation = str(described.get("validation", "")).split()
    places = [folder / name for name in dialect.validators if (folder / name).is_dir()]
    if not places or (validation and validation[0] == "default"):
        return None, flags
    program = read_program(places[0], store)
    protocol = Protocol.TESTLIB if "testlib" in validation else Protocol.ICPC
    return ValidatorSpec(protocol=protocol, files=program.files, language=program.language), flags


@dataclass(frozen=True, slots=True)
class _Reader:
    root: Path
    store: Store
    dialect: Dialect
    scoring: bool


def _group(folder: Path, name: str, reader: _Reader, flags: Sequence[str] | None) -> Group:
    if not folder.is_dir():
        return Group(name=name)
    described = read_yaml(folder / reader.dialect.group_file)
    own = described.get("output_validator_flags", described.get("output_validator_args"))
    if own is not None:
        flags = shlex.split(own) if isinstance(own, str) else [str(word) for word in own]
    cases = [
        TestCase(
            name=str(path.relative_to(reader.root / "data").with_suffix("")),
            input=reader.store.put(path.read_bytes()),
            answer=reader.store.put(_answer(path)),
            flags=flags,
        )
        for path in sorted(folder.glob("*.in"))
    ]
    below = [
        _group(path, f"{name}/{path.name}", reader, flags)
        for path in sorted(folder.iterdir())
        if path.is_dir()
    ]
    return Group(name=name, cases=cases, groups=below, **_scores(described, len(cases), reader.scoring))


def _answer(path: Path) -> bytes:
    answer = path.with_suffix(".ans")
    if not answer.is_file():
        raise InvalidInput(f"{path.name} has no {answer.name} beside it.", field=path.name)
    return answer.read_bytes()


def _scores(described: Yaml, count: int, scoring: bool) -> dict[str, Any]:
    """A group with a score of its own is all or nothing; without one, each test is worth the same."""
    if not scoring:
        return {}
    flags = str(described.get("grader_flags", "")).split()
    wanted = str(described.get("score_aggregation", "min" if "min" in flags else ""))
    score = described.get("max_score", described.get("accept_score"))
    all_or_nothing = wanted in ("min", "pass-fail") or (score is not None and wanted != "sum")
    require: Any = described.get("require_pass", ())
    scores: dict[str, Any] = {
        "stop_at_failure": described.get("on_reject") == "break" or all_or_nothing,
        "require": [require] if isinstance(require, str) else list(require),
    }
    if all_or_nothing:
        return scores | {"aggregation": Aggregation.MIN, "score": float(1 if score is None else score)}
    if score is not None and count and "max_score" in described:
        return scores | {"score": float(score) / count}
    return scores | {"score": float(1 if score is None else score)}


def _statement(folder: Path, dialect: Dialect) -> str:
    for place in dialect.statements:
        for name in ("problem.en.md", "problem.md"):
            path = folder / place / name
            if path.is_file():
                return path.read_text(encoding="utf-8")[:500_000]
    return ""
