"""The source of a program in a package: a file or a folder, in a language known by the extension."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fencepost.errors import InvalidInput
from fencepost_judge._language import read_specs
from fencepost_judge._problem import SCRIPT
from fencepost_judge._store import Store

FILES_MAX = 64
BYTES_MAX = 4 << 20
IGNORED_FILES = ("__pycache__", "__MACOSX")
SCRIPTS = ("build", "run")
HEADERS = (".h", ".hh", ".hpp", ".hxx")
Fill = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """File names to the digests of their contents, and the language of the first file that has one."""

    name: str
    files: Mapping[str, str]
    language: str


def read_program(place: Path, store: Store, fill: Fill = bytes) -> StoredProgram:
    """The only program in the folder, whether it is a file or a folder of files."""
    return _stored(place, read_sources(place), store, fill)


def read_programs(
    place: Path, store: Store, fill: Fill = bytes, *, leave_out: Callable[[Path], bool] = lambda _: False
) -> list[StoredProgram]:
    """Every source file and every folder is a program of its own. A file in no language, such as a header,
    belongs to each of the single-file programs."""
    entries = [path for path in _entries(place) if not leave_out(path)]
    if any(path.name in SCRIPTS for path in entries):
        return [read_program(place, store, fill)]
    files = [path for path in entries if path.is_file()]
    shared = [path for path in files if not is_source(path.name)]
    programs = [
        _stored(path, {one.name: one.read_bytes() for one in (path, *shared)}, store, fill)
        for path in files
        if is_source(path.name)
    ]
    programs += [read_program(path, store, fill) for path in entries if path.is_dir()]
    if not programs:
        raise InvalidInput(f"{place.name} holds no program.", field=place.name)
    return sorted(programs, key=lambda one: one.name)


def _stored(place: Path, sources: Mapping[str, bytes], store: Store, fill: Fill) -> StoredProgram:
    language = SCRIPT if any(name in SCRIPTS for name in sources) else language_of(sources)
    files = {name: store.put(fill(text)) for name, text in sources.items()}
    return StoredProgram(place.stem if place.is_file() else place.name, files, language)


def read_sources(place: Path) -> dict[str, bytes]:
    """Names to contents. A folder that contains only one folder is replaced by that one."""
    if place.is_file():
        return {place.name: place.read_bytes()}
    entries = _entries(place)
    if len(entries) == 1 and entries[0].is_dir():
        return read_sources(entries[0])
    folders = [path.name for path in entries if path.is_dir()]
    if folders:
        raise InvalidInput(
            f"{place.name} holds the folder {folders[0]} beside others; a program is a file, or files in one"
            " folder.",
            field=place.name,
        )
    files = [path for path in entries if path.is_file()]
    if not files or len(files) > FILES_MAX or sum(path.stat().st_size for path in files) > BYTES_MAX:
        raise InvalidInput(f"{place.name} holds no program, or too large a one.", field=place.name)
    return {path.name: path.read_bytes() for path in files}


def language_of(sources: Mapping[str, bytes] | Sequence[str], *, python: str = "python") -> str:
    """By the first extension that a language has; `python` is the language of `.py` files."""
    extensions = {ext: spec.name for spec in read_specs() for ext in spec.extensions}
    for name in sources:
        if Path(name).suffix in extensions:
            found = extensions[Path(name).suffix]
            return python if found == "python" else found
    raise InvalidInput(f"{', '.join(sources)}: no language has such an extension.", field="language")


def is_source(name: str) -> bool:
    """Whether a file of this name is source of a known language."""
    return any(Path(name).suffix in spec.extensions for spec in read_specs())


def is_data(name: str) -> bool:
    """Whether a file is read by a program, and not compiled or imported."""
    return not is_source(name) and Path(name).suffix not in HEADERS


def _entries(place: Path) -> list[Path]:
    return [
        path
        for path in sorted(place.iterdir())
        if not path.name.startswith(".") and path.name not in IGNORED_FILES
    ]
