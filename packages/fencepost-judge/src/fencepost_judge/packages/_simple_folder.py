"""The simplest problem: a folder of NAME.in beside NAME.ans or NAME.out. `problem.yaml` may say more.

title: Sum
time_limit: 1.5        # seconds
memory: 256            # MiB
output: 8              # MiB
flags: [float_tolerance, "1e-6"]
checker: check.cpp     # beside it; its protocol is testlib's
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from fencepost.errors import InvalidInput
from fencepost_judge._comparison import Comparison
from fencepost_judge._problem import Bounds, Group, Problem, Protocol, TestCase, ValidatorSpec
from fencepost_judge._store import Store
from fencepost_judge.packages._documents import Documents, Parse, parse_in_child
from fencepost_judge.packages._icpc import slug_of
from fencepost_judge.packages._source_files import language_of
from fencepost_judge.packages._unsupported import out_of_range

KEYS = {"title", "time_limit", "memory", "output", "flags", "checker"}
OF_PACKAGES = {"license", "limits", "problem_format_version", "rights_owner", "source", "type", "validation"}
SHOWN_MAX = 100


def read_folder(
    folder: Path, store: Store, *, slug: str | None = None, parse: Parse = parse_in_child
) -> Problem:
    documents = Documents(folder, parse)
    documents.load([folder / "problem.yaml"])
    described = documents.get(folder / "problem.yaml")
    unknown = sorted(str(key) for key in set(described) - KEYS)
    if OF_PACKAGES & {*unknown}:
        raise InvalidInput(
            f"{folder.name} is a package in the ICPC format, and has no folder data: it has no tests.",
            field="data",
        )
    if unknown:
        raise InvalidInput(
            f"problem.yaml: unknown {', '.join(unknown)}; there is {sorted(KEYS)}.", field=unknown[0]
        )
    inputs = sorted(path for path in folder.rglob("*.in") if path.is_file())
    if not inputs:
        raise InvalidInput(f"{folder.name} has no test: a test is NAME.in and NAME.ans.", field="data")
    lone = [path for path in sorted(folder.rglob("*.ans")) if not path.with_suffix(".in").is_file()]
    if lone:
        name = lone[0].relative_to(folder)
        raise InvalidInput(f"{name} has no {lone[0].stem}.in beside it.", field=lone[0].name)
    cases = [
        TestCase(
            name=str(path.relative_to(folder).with_suffix("")),
            input=store.put(path.read_bytes()),
            answer=store.put(_answer(path).read_bytes()),
            sample=path.relative_to(folder).parts[0] == "sample",
        )
        for path in inputs
    ]
    try:
        bounds = Bounds(
            time_ms=round(float(described.get("time_limit", 1)) * 1000),
            memory_kb=round(float(described.get("memory", 256)) * 1024),
            output_kb=round(float(described.get("output", 8)) * 1024),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise out_of_range("problem.yaml", error) from None
    flags = _flags(described.get("flags", ()))
    if described.get("checker") is None:
        Comparison.from_flags(flags)
    return Problem(
        slug=slug or slug_of(folder.name),
        title=str(described.get("title", folder.name)),
        bounds=bounds,
        flags=flags,
        validator=_checker(folder, described.get("checker"), store),
        data=Group(name="data", cases=cases),
        statement=_statement(folder),
    )


def _answer(path: Path) -> Path:
    for suffix in (".ans", ".out"):
        if path.with_suffix(suffix).is_file():
            return path.with_suffix(suffix)
    raise InvalidInput(f"{path.name} has neither .ans nor .out beside it.", field=path.name)


def _flags(given: object) -> list[str]:
    if not isinstance(given, list | tuple):
        raise InvalidInput("problem.yaml: flags must be a list.", field="flags")
    return [str(flag) for flag in cast("Sequence[object]", given)]


def _checker(folder: Path, name: object, store: Store) -> ValidatorSpec | None:
    if name is None:
        return None
    # Looked up among the existing files: the untrusted name may not be a valid file name.
    files_here = [path for path in folder.iterdir() if path.is_file()]
    path = next((path for path in files_here if path.name == Path(str(name)).name), None)
    if path is None:
        raise InvalidInput(f"There is no checker {str(name)[:SHOWN_MAX]!r}.", field="checker")
    beside = [path for path in files_here if path.suffix == ".h"]
    sources = {other.name: other.read_bytes() for other in [path, *beside]}
    files = {name: store.put(text) for name, text in sources.items()}
    return ValidatorSpec(protocol=Protocol.TESTLIB, files=files, language=language_of(sources))


def _statement(folder: Path) -> str:
    path = folder / "statement.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""
