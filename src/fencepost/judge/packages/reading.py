"""One door for every form that a problem comes in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fencepost.errors import InvalidInput
from fencepost.judge.packages.archive import unpack
from fencepost.judge.packages.documents import Parse, parse_in_child
from fencepost.judge.packages.icpc import is_package, read_package, slug_of
from fencepost.judge.packages.simple_folder import read_folder
from fencepost.judge.packages.source_files import read_sources
from fencepost.judge.problem import Problem
from fencepost.judge.store import Store

EXPECTED = {
    "accepted": frozenset({"AC"}),
    "partially_accepted": frozenset({"PA"}),
    "wrong_answer": frozenset({"WA", "PE"}),
    "time_limit_exceeded": frozenset({"TLE"}),
    "run_time_error": frozenset({"RE"}),
    "memory_limit_exceeded": frozenset({"MLE"}),
    "output_limit_exceeded": frozenset({"OLE"}),
    "compiler_error": frozenset({"CE"}),
    "brute_force": frozenset({"TLE", "RE", "MLE", "OLE"}),
    "rejected": frozenset({"WA", "PE", "TLE", "RE", "MLE", "OLE", "CE"}),
}
"""What a submission gets that lies in a folder of this name."""
ANYTHING = frozenset[str]().union(*EXPECTED.values())
"""What it gets in a folder that the format does not know: it is run, and nothing is asked of it."""


@dataclass(frozen=True, slots=True)
class JurySubmission:
    """A submission of the package's own, and the verdicts that would be right."""

    name: str
    sources: Mapping[str, bytes]
    expected: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReadProblem:
    problem: Problem
    submissions: tuple[JurySubmission, ...]


def read_problem(
    place: Path, store: Store, *, slug: str | None = None, parse: Parse = parse_in_child
) -> ReadProblem:
    """A package, a simple folder, or a zip of one. `parse` reads its YAML, in a process of its own."""
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
    read = read_package if is_package(folder) else read_folder
    if read is read_folder:
        _refuse_hidden_package(folder)
    try:
        problem = read(folder, store, slug=slug, parse=parse)
    except InvalidInput:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        # A stranger's YAML may hold anything where a word, a number or a mapping is meant.
        raise InvalidInput(f"The package describes no problem: {error}.", field="package") from error
    return ReadProblem(problem, tuple(_submissions(folder)))


def _innermost(folder: Path) -> Path:
    """Many archives hold one folder with everything in it, some of them twice."""
    while not (folder / "problem.yaml").is_file():
        entries = [path for path in folder.iterdir() if not _is_litter(path)]
        if len(entries) != 1 or not entries[0].is_dir():
            break
        folder = entries[0]
    return folder


def _is_litter(path: Path) -> bool:
    return path.name.startswith(".") or path.name == "__MACOSX"


def _refuse_hidden_package(folder: Path) -> None:
    """A folder that holds packages is none: read as a simple one it would lose everything but its tests."""
    below = [path.parent for path in sorted(folder.rglob("problem.yaml")) if is_package(path.parent)]
    if below:
        names = ", ".join(str(path.relative_to(folder)) for path in below[:3])
        raise InvalidInput(
            f"The package lies deeper, in {names}. Give that folder, or a zip of it.", field="package"
        )


def _submissions(folder: Path) -> Iterator[JurySubmission]:
    places = folder / "submissions"
    own = sorted(path.name for path in places.iterdir() if path.is_dir()) if places.is_dir() else []
    kinds = [kind for kind in EXPECTED if kind in own] + [name for name in own if name not in EXPECTED]
    for kind in kinds:
        for path in sorted((places / kind).iterdir()):
            if not path.name.startswith("."):
                expected = EXPECTED.get(kind, ANYTHING)
                yield JurySubmission(f"{kind}/{path.name}", read_sources(path), expected)
