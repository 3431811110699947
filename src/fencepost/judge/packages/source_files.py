"""The source of a program in a package: a file or a folder, in a language known by the extension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fencepost.errors import InvalidInput
from fencepost.judge.language import read_specs
from fencepost.judge.store import Store

FILES_MAX = 64
BYTES_MAX = 4 << 20
LITTER = ("__pycache__",)


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """File names to the digests of their contents, and the language of the first that has one."""

    files: Mapping[str, str]
    language: str


def read_program(place: Path, store: Store) -> StoredProgram:
    """A validator: the only program in the folder, whether it is a file or a folder of files."""
    sources = read_sources(place)
    scripts = sorted({"build", "run"} & set(sources))
    if scripts:
        raise InvalidInput(f"{place.name}: the script {scripts[0]} is not supported.", field=place.name)
    return StoredProgram({name: store.put(text) for name, text in sources.items()}, language_of(sources))


def read_sources(place: Path) -> dict[str, bytes]:
    """Names to contents. A folder that holds nothing but one folder is that one."""
    if place.is_file():
        return {place.name: place.read_bytes()}
    entries = [path for path in sorted(place.iterdir()) if not path.name.startswith(".")]
    if len(entries) == 1 and entries[0].is_dir():
        return read_sources(entries[0])
    folders = [path.name for path in entries if path.is_dir() and path.name not in LITTER]
    if folders:
        raise InvalidInput(
            f"{place.name} holds the folder {folders[0]} beside others; a program is a file or a folder of files.",
            field=place.name,
        )
    files = [path for path in entries if path.is_file()]
    if not files or len(files) > FILES_MAX or sum(path.stat().st_size for path in files) > BYTES_MAX:
        raise InvalidInput(f"{place.name} holds no program, or too large a one.", field=place.name)
    return {path.name: path.read_bytes() for path in files}


def language_of(sources: Mapping[str, bytes]) -> str:
    extensions = {ext: spec.name for spec in read_specs() for ext in spec.extensions}
    for name in sources:
        if Path(name).suffix in extensions:
            return extensions[Path(name).suffix]
    raise InvalidInput(f"{', '.join(sources)}: no language has such an extension.", field="language")
