"""Which servers this machine has, by what they say of themselves."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fencepost.embedded._binaries import POSTGRES_WHEELS, VALKEY_WHEELS, installed_package

SEARCH_PATH = "FENCEPOST_MATRIX_PATH"
DEBIAN_POSTGRES = Path("/usr/lib/postgresql")
DEBIAN_SBIN = Path("/usr/sbin")
ANSWER_SECONDS_MAX = 30


@dataclass(frozen=True)
class Server:
    """A program and the version that it names."""

    path: Path
    product: str
    version: str

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


def postgres_servers() -> list[Server]:
    """One for each major version, from 15 on."""
    found = (_ask(path, r"postgres \((PostgreSQL)\) ([\d.]+)") for path in _postgres_candidates())
    return _one_each([server for server in found if server and server.path.with_name("initdb").exists()])


def redis_servers() -> list[Server]:
    """One for each product and major version."""
    found = (_ask(path, r"(Redis|Valkey) server v=([\d.]+)") for path in _redis_candidates())
    return _one_each([server for server in found if server])


def pgbouncer() -> Server | None:
    path = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), str(DEBIAN_SBIN)]))
    return _ask(Path(path), r"(PgBouncer) ([\d.]+)") if path else None


def _postgres_candidates() -> Iterator[Path]:
    for package in (*POSTGRES_WHEELS, "pgserver"):
        if directory := installed_package(package):
            yield from sorted(directory.glob("pginstall*/bin/postgres"))
    yield from sorted(DEBIAN_POSTGRES.glob("*/bin/postgres"))
    yield from _beside("bin/postgres")


def _redis_candidates() -> Iterator[Path]:
    for package in VALKEY_WHEELS:
        if directory := installed_package(package):
            for name in ("valkey-server", "redis-server"):
                yield from sorted(directory.glob(f"**/{name}"))
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            yield Path(path)
        yield from _beside(name)


def _beside(pattern: str) -> Iterator[Path]:
    """In the directories that the person names, however deep."""
    for directory in filter(None, os.environ.get(SEARCH_PATH, "").split(os.pathsep)):
        yield from sorted(Path(directory).glob(f"**/{pattern}"))


def _ask(path: Path, pattern: str) -> Server | None:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
    except OSError:
        return None
    match = re.search(pattern, answer.stdout)
    return Server(path, match[1], match[2]) if match else None


def _one_each(servers: list[Server]) -> list[Server]:
    """The first of each product and major version: wheels are looked at before the system."""
    chosen: dict[tuple[str, int], Server] = {}
    for server in servers:
        chosen.setdefault((server.product, server.major), server)
    return [chosen[key] for key in sorted(chosen)]
