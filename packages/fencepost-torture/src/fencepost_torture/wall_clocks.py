"""Wall clocks that jump, of one node or of PostgreSQL: by libfaketime, where this machine has one that works.

A process into which it is loaded reads a file at every look at the clock, and adds what stands there. Files
are replaced whole, so that nobody reads half of a time.

Monotonic clocks are left alone: those of a real machine do not jump either, and histories are told by them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from fencepost_torture.schedule import NODE_CLOCK, POSTGRES_CLOCK

FILE = "FAKETIME_TIMESTAMP_FILE"
SWITCHES: Mapping[str, str] = {
    "FAKETIME_NO_CACHE": "1",
    "DONT_FAKE_MONOTONIC": "1",
    "NO_FAKE_STAT": "1",
}
PROBE_SECONDS = 60
# Some of its releases break the sleep of Python, which is by the monotonic clock.
PROBE = """
import sys, time
first, began = time.time(), time.monotonic()
with open(sys.argv[1], "w") as file:
    file.write("+3600")
time.sleep(0.01)
ahead, took = time.time() - first, time.monotonic() - began
sys.exit(0 if ahead > 3000 and took < 3000 else 1)
"""
DEBIAN = ("lib/*/faketime/libfaketimeMT.so.1", "lib/faketime/libfaketimeMT.so.1")


def choose_clocks(kinds: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The library that the faults need, and the faults that this machine can do."""
    wanted = {NODE_CLOCK, POSTGRES_CLOCK} & set(kinds)
    library = next(filter(works, candidates()), None) if wanted else None
    return library, [kind for kind in kinds if library or kind not in wanted]


def candidates() -> Iterator[Path]:
    """Where it may be: in a wheel of this environment, or where Debian has it."""
    package = find_spec("libfaketime")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
    for pattern in DEBIAN:
        yield from sorted(Path("/usr").glob(pattern))


def works(library: Path) -> bool:
    """Whether a process with it sees a jump, and nothing else happens to it. Seen by doing it."""
    if not library.is_file():
        return False
    with tempfile.TemporaryDirectory(prefix="fencepost-clock-") as directory:
        file = Path(directory) / "clock"
        put(file, 0)
        try:
            probe = subprocess.run(
                [sys.executable, "-I", "-S", "-c", PROBE, str(file)],
                env={**os.environ, **environment(library, file)},
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return probe.returncode == 0


def environment(library: Path, file: Path) -> Mapping[str, str]:
    """For a process that goes by the clock in this file."""
    return {"LD_PRELOAD": str(library), FILE: str(file), **SWITCHES}


def put(file: Path, seconds: float) -> None:
    """The clock is so far from the machine's, from now on. Whoever goes by it may be somebody else."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(f"{seconds:+.3f}\n")
    new.chmod(0o644)
    new.replace(file)


def go_by(file: str) -> None:
    """This process goes by another clock than the one that it was born with."""
    os.environ[FILE] = file
