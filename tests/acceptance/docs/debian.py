"""Programs of Debian's packages for a page that installs them: of the machine, or unpacked below .fencepost.

Nothing is installed on the machine. A program that is found nowhere skips the test, and says so."""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HOME = ROOT / ".fencepost" / "debian"
SECONDS_MAX = 100
SYSTEM_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
NOT_AS_ROOT = ("pgbouncer",)
"""Servers that refuse to run as root, as PostgreSQL does."""


def bring(package: str, programs: Path) -> None:
    """Put the program of a package into this directory, under its own name."""
    found = shutil.which(package, path=SYSTEM_PATH)
    command = [found] if found else _unpacked(package)
    if package in NOT_AS_ROOT and os.geteuid() == 0:
        # The files stay ours: only the name of the user is another one.
        unprivileged = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
        command = [*unprivileged, *command]
    script = programs / package
    script.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
    script.chmod(0o755)


def _unpacked(package: str) -> list[str]:
    """The command that runs it, with the libraries that came with it."""
    HOME.mkdir(parents=True, exist_ok=True)
    place = HOME / package
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _fetch(package, place)
    (program,) = (file for file in place.glob(f"usr/*bin/{package}") if file.is_file())
    libraries = ":".join(str(folder) for folder in sorted(place.glob("usr/lib/*-linux-gnu")))
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(program)]


def _fetch(package: str, place: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip(f"{package} is not installed, and apt-get is not there to bring it")
    listed = _run("apt-get", "install", "--print-uris", "--yes", "-qq", "--no-install-recommends", package)
    names = re.findall(r"^'\S+' ([^_\s]+)_\S+\.deb ", listed, re.MULTILINE)
    fetched = place.with_name(f"{package}.part")
    shutil.rmtree(fetched, ignore_errors=True)
    (fetched / "files").mkdir(parents=True)
    _run("apt-get", "download", *names, directory=fetched)
    for archive in fetched.glob("*.deb"):
        _run("dpkg", "--extract", str(archive), str(fetched / "files"))
    (fetched / "files").rename(place)
    shutil.rmtree(fetched)


def _run(*command: str, directory: Path = HOME) -> str:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    if done.returncode:
        pytest.skip(f"{' '.join(command[:2])} cannot bring it: {done.stderr.strip()[-200:]}")
    return done.stdout
