"""Reads a problem in any supported form."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.errors import InvalidInput
from fencepost_judge._problem import ANSWERS, Problem
from fencepost_judge._store import Store
from fencepost_judge.packages._archive import unpack
from fencepost_judge.packages._cms import NAME as CMS
from fencepost_judge.packages._cms import is_cms, read_cms
from fencepost_judge.packages._dmoj import NAME as DMOJ
from fencepost_judge.packages._dmoj import is_dmoj, read_dmoj
from fencepost_judge.packages._documents import Parse, parse_in_child
from fencepost_judge.packages._expectations import (
    EXPECTED,
    Bound,
    Expectations,
    Requirement,
    Rule,
    check_document,
    expectations_of,
    tagged,
)
from fencepost_judge.packages._icpc import (
    DESCRIBING,
    Multipliers,
    ReadPackage,
    is_package,
    our_names,
    read_package,
    slug_of,
)
from fencepost_judge.packages._making import Making
from fencepost_judge.packages._metadata import PROBLEM
from fencepost_judge.packages._polygon import NAME as POLYGON
from fencepost_judge.packages._polygon import is_polygon, read_polygon
from fencepost_judge.packages._simple_folder import read_folder
from fencepost_judge.packages._source_files import language_of, read_sources
from fencepost_judge.packages._validation_data import ValidationData

FORMS = (PROBLEM, POLYGON, DMOJ, CMS)
"""A folder with one of these files is not only a folder around another one."""
DISABLED = ".disabled"
UNSAID = Multipliers(ac_to_time_limit=2, time_limit_to_tle=1.5, resolution_seconds=1, strict=False)
"""Of forms that say nothing of how to infer a limit: as in the newest ICPC format."""


@dataclass(frozen=True, slots=True)
class JurySubmission:
    """A submission that belongs to the package, and its expected results."""

    name: str
    sources: Mapping[str, bytes]
    expectations: Expectations
    answers: bool = False
    """Whether it may be answers: files of no language."""

    @property
    def expected(self) -> frozenset[str]:
        """The verdicts that meet the expectation."""
        return self.expectations.verdicts

    def language(self, *, python: str = "python") -> str:
        """As the package says, or by the extension; `python` is the language of `.py` files. Empty when no
        language has the extension."""
        said = self.expectations.language
        if said is None:
            try:
                return language_of(self.sources, python=python)
            except InvalidInput:
                return ANSWERS if self.answers else ""
        return next(iter(our_names(said)), said)


@dataclass(frozen=True, slots=True)
class ReadProblem:
    problem: Problem
    submissions: tuple[JurySubmission, ...]
    timing: Multipliers | None = None
    """How to infer the time limit, if the package gives none: until then the problem has none."""
    validation: ValidationData = field(default_factory=ValidationData)
    making: Making | None = None
    """How to make the tests that are not in the package, if there are any."""
    disabled: Sequence[str] = ()
    """Submissions that are left out, because their author says so."""


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
        if is_polygon(folder):
            return _polygon(folder, store, slug)
        if is_dmoj(folder):
            dmoj = read_dmoj(folder, store, slug=slug, parse=parse)
            return ReadProblem(dmoj.problem, (), UNSAID, making=dmoj.making)
        if is_cms(folder):
            return _cms(folder, store, slug, parse)
        if is_package(folder):
            package = read_package(folder, store, slug=slug, parse=parse)
            return ReadProblem(
                package.problem,
                tuple(_submissions(folder, package)),
                package.timing,
                package.validation,
                disabled=_disabled(folder),
            )
        _refuse_hidden_package(folder)
        problem = read_folder(folder, store, slug=slug, parse=parse)
        return ReadProblem(problem, tuple(_submissions(folder, None)), disabled=_disabled(folder))
    except InvalidInput:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        # Untrusted YAML may hold any type where a text, a number or a mapping is expected.
        raise InvalidInput(f"The package is not a valid problem: {error}.", field="package") from error


def _innermost(folder: Path) -> Path:
    """Many archives hold one folder with everything in it, some of them nested twice."""
    while not any((folder / name).is_file() for name in FORMS) and not is_package(folder):
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
    found = {path.parent for name in (*DESCRIBING, *FORMS) for path in folder.rglob(name)}
    kinds = (is_package, is_polygon, is_dmoj, is_cms)
    below = [place for place in sorted(found - {folder}) if any(kind(place) for kind in kinds)]
    if below:
        names = ", ".join(str(path.relative_to(folder)) for path in below[:3])
        raise InvalidInput(
            f"The package lies deeper, in {names}. Give that folder, or a zip of it.", field="package"
        )


def _polygon(folder: Path, store: Store, slug: str | None) -> ReadProblem:
    package = read_polygon(folder, store, slug=slug)
    problem = package.problem
    submissions: list[JurySubmission] = []
    disabled: list[str] = []
    for one in package.solutions:
        name = f"{one.tag}/{one.path.name}"
        if one.expected is None:
            disabled.append(name)
            continue
        # Where there are points, a solution that is wrong in some tests may have some of them.
        wrong = problem.scoring and "AC" not in one.expected
        verdicts = one.expected | {"PA"} if wrong else one.expected
        expectations = Expectations(verdicts, language=one.language)
        submissions.append(JurySubmission(name, read_sources(one.path), expectations))
    return ReadProblem(
        problem, tuple(submissions), validation=package.validation, making=package.making, disabled=disabled
    )


def _cms(folder: Path, store: Store, slug: str | None, parse: Parse) -> ReadProblem:
    package = read_cms(folder, store, slug=slug, parse=parse)
    accepted = frozenset({"AC"})
    bound: tuple[Bound, Rule] = "lower", Rule(None, Requirement(permitted=["AC"]))
    submissions = [
        JurySubmission(f"sol/{path.name}", read_sources(path), Expectations(accepted, bounds=[bound]))
        for path in package.solutions
    ]
    return ReadProblem(package.problem, tuple(submissions), None if package.has_limit else UNSAID)


def _disabled(folder: Path) -> list[str]:
    """Submissions that are left out: `NAME.disabled`, a file or a folder."""
    found = sorted((folder / "submissions").rglob(f"*{DISABLED}"))
    return [str(path.relative_to(folder / "submissions")) for path in found]


def _submissions(folder: Path, package: ReadPackage | None) -> Iterator[JurySubmission]:
    places = folder / "submissions"
    own = sorted(path.name for path in places.iterdir() if path.is_dir()) if places.is_dir() else []
    kinds = [kind for kind in EXPECTED if kind in own] + [name for name in own if name not in EXPECTED]
    document: Mapping[str, Any] = package.submissions if package else {}
    check_document(document)
    fill = package.constants.fill_bytes if package else bytes
    for kind in kinds:
        for path in sorted((places / kind).iterdir()):
            if not path.name.startswith(".") and path.suffix != DISABLED:
                name = f"{kind}/{path.name}"
                sources = {one: fill(text) for one, text in read_sources(path).items()}
                is_new = package is not None and package.metadata.version.is_new
                expected = tagged(expectations_of(name, document, is_new=is_new), name, sources)
                takes = package is not None and package.problem.takes_answers
                yield JurySubmission(name, sources, expected, answers=takes)
