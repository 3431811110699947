"""Reads a problem in any supported form."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.errors import InvalidInput
from fencepost_judge._problem import Problem
from fencepost_judge._store import Store
from fencepost_judge.packages._archive import unpack
from fencepost_judge.packages._documents import Parse, parse_in_child
from fencepost_judge.packages._expectations import EXPECTED, Expectations, check_document, expectations_of
from fencepost_judge.packages._icpc import (
    DESCRIBING,
    Multipliers,
    ReadPackage,
    is_package,
    our_names,
    read_package,
    slug_of,
)
from fencepost_judge.packages._metadata import PROBLEM
from fencepost_judge.packages._simple_folder import read_folder
from fencepost_judge.packages._source_files import language_of, read_sources
from fencepost_judge.packages._validation_data import ValidationData


@dataclass(frozen=True, slots=True)
class JurySubmission:
    """A submission that belongs to the package, and its expected results."""

    name: str
    sources: Mapping[str, bytes]
    expectations: Expectations

    @property
    def expected(self) -> frozenset[str]:
        """The verdicts that meet the expectation."""
        return self.expectations.verdicts

    def language(self, *, python: str = "python") -> str:
        """As the package says, or by the extension; `python` is the language of `.py` files."""
        said = self.expectations.language
        if said is None:
            return language_of(self.sources, python=python)
        return next(iter(our_names(said)), said)


@dataclass(frozen=True, slots=True)
class ReadProblem:
    problem: Problem
    submissions: tuple[JurySubmission, ...]
    timing: Multipliers | None = None
    """How to infer the time limit, if the package gives none: until then the problem has none."""
    validation: ValidationData = field(default_factory=ValidationData)


def read_problem(
    place: Path, store: Store, *, slug: str | None = None, parse: Parse = parse_in_child
) -> ReadProblem:
    """Read a package, a simple folder, or a zip of one. `parse` reads its YAML, by default in a separate
    process."""
    if place.is_dir():
        return _read(place, store, slug, parse)
    if not place.is_file():
        raise InvalidInput(f"There is no {place}.", field="package")
    with tempfile.TemporaryDirectory(prefix="fencepost-package-") as scratch:
        folder = Path(scratch) / "package"
        folder.mkdir()
        unpack(place, folder)
        return _read(_innermost(folder), store, slug or slug_of(place.stem), parse)


def _read(folder: Path, store: Store, slug: str | None, parse: Parse) -> ReadProblem:
    try:
        if is_package(folder):
            package = read_package(folder, store, slug=slug, parse=parse)
            return ReadProblem(
                package.problem, tuple(_submissions(folder, package)), package.timing, package.validation
            )
        _refuse_hidden_package(folder)
        problem = read_folder(folder, store, slug=slug, parse=parse)
        return ReadProblem(problem, tuple(_submissions(folder, None)))
    except InvalidInput:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        # Untrusted YAML may hold any type where a text, a number or a mapping is expected.
        raise InvalidInput(f"The package is not a valid problem: {error}.", field="package") from error


def _innermost(folder: Path) -> Path:
    """Many archives hold one folder with everything in it, some of them nested twice."""
    while not is_package(folder) and not (folder / PROBLEM).is_file():
        entries = [path for path in folder.iterdir() if not _is_ignored(path)]
        if len(entries) != 1 or not entries[0].is_dir():
            break
        folder = entries[0]
    return folder


def _is_ignored(path: Path) -> bool:
    return path.name.startswith(".") or path.name == "__MACOSX"


def _refuse_hidden_package(folder: Path) -> None:
    """Refuses a folder that contains packages: read as a simple folder it would lose everything but its
    tests."""
    found = {path.parent for name in DESCRIBING for path in folder.rglob(name)}
    below = [place for place in sorted(found) if is_package(place)]
    if below:
        names = ", ".join(str(path.relative_to(folder)) for path in below[:3])
        raise InvalidInput(
            f"The package lies deeper, in {names}. Give that folder, or a zip of it.", field="package"
        )


def _submissions(folder: Path, package: ReadPackage | None) -> Iterator[JurySubmission]:
    places = folder / "submissions"
    own = sorted(path.name for path in places.iterdir() if path.is_dir()) if places.is_dir() else []
    kinds = [kind for kind in EXPECTED if kind in own] + [name for name in own if name not in EXPECTED]
    document: Mapping[str, Any] = package.submissions if package else {}
    check_document(document)
    fill = package.constants.fill_bytes if package else bytes
    for kind in kinds:
        for path in sorted((places / kind).iterdir()):
            if not path.name.startswith("."):
                name = f"{kind}/{path.name}"
                sources = {one: fill(text) for one, text in read_sources(path).items()}
                is_new = package is not None and package.metadata.version.is_new
                expected = expectations_of(name, document, is_new=is_new)
                yield JurySubmission(name, sources, expected)
