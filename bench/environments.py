"""Empty virtual environments, and the wheels of this tree: what a new user installs, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV_SECONDS_MAX = 600


class CannotInstall(Exception):
    """uv is missing, or could not install something; the last line that it wrote says why."""


def run_uv(*arguments: str | Path) -> None:
    """uv uses the package index that this machine is configured for."""
    _run([find_uv(), *arguments])


def _run(command: Sequence[str | Path]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=UV_SECONDS_MAX)
    if ended.returncode != 0:
        lines = ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"]
        raise CannotInstall(f"cannot be installed: {lines[-1][:200]}")


def find_uv() -> str:
    """On PATH, or beside our own Python, where `make setup` puts it."""
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        raise CannotInstall("uv is missing, which makes the environments: pip install uv")
    return found


def from_the_cache_first(*arguments: str | Path) -> None:
    """Run uv without the network, and with it when its cache lacks something: a question to the index takes
    longer than the installation."""
    try:
        run_uv(*arguments, "--offline")
    except CannotInstall:
        run_uv(*arguments)


def build_wheels(projects: Iterable[str], directory: Path) -> list[Path]:
    """The wheels of these distributions, built from the tree, in the directory."""
    for project in projects:
        from_the_cache_first("build", "--wheel", "--out-dir", directory, ROOT / "packages" / project)
    return sorted(directory.glob("*.whl"))


class EmptyEnvironment:
    """A virtual environment with nothing in it but what is installed into it here."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.python = home / "bin" / "python"
        run_uv("venv", "--quiet", "--clear", "--python", sys.executable, home)

    def install(self, packages: Iterable[str], *options: str | Path, offline_first: bool = True) -> None:
        run = from_the_cache_first if offline_first else run_uv
        run("pip", "install", "--quiet", "--python", self.python, *options, *packages)

    def install_for_node(self, package: str) -> None:
        """A package of npm and what it needs, beside those of Python."""
        npm = shutil.which("npm")
        if npm is None:
            raise CannotInstall("npm is missing, which comes with Node.js")
        _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", self.home, package])

    @property
    def packages(self) -> list[str]:
        """The names of the distributions that are installed in it."""
        return sorted(folder.name.partition("-")[0] for folder in self._site_packages.glob("*.dist-info"))

    @property
    def megabytes(self) -> float:
        """The installed files, without compiled bytecode, which Python writes when it runs."""
        files = (file for file in self._site_packages.rglob("*") if file.is_file() and file.suffix != ".pyc")
        return sum(file.stat().st_size for file in files) / 1e6

    @property
    def _site_packages(self) -> Path:
        return next(self.home.glob("lib/python*/site-packages"))


def pinned(directory: Path) -> Path:
    """The versions of the lock file as constraints, without the hashes: our own wheels have none."""
    lines = (ROOT / "requirements-dev.lock").read_text().splitlines()
    file = directory / "pinned.txt"
    file.write_text(
        "".join(line.rstrip("\\ ") + "\n" for line in lines if line and not line.startswith((" ", "#")))
    )
    return file
