"""Wall clocks that jump, of one node or of PostgreSQL: by libfaketime, where this machine has one that works.

A process that has it loaded reads a file at every clock call, and adds the offset in it. Files are replaced
as a whole, so that no process reads half of an offset.

Monotonic clocks are not changed: those of a real machine do not jump either, and histories use them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from fencepost_torture._schedule import NODE_CLOCK, POSTGRES_CLOCK

FILE = "FAKETIME_TIMESTAMP_FILE"
SWITCHES: Mapping[str, str] = {
    "FAKETIME_NO_CACHE": "1",
    "DONT_FAKE_MONOTONIC": "1",
    "NO_FAKE_STAT": "1",
}
PROBE_SECONDS = 60
# Some of its releases break Python's sleep, which uses the monotonic clock.
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
    """The library that the faults need, and the faults that this machine supports."""
    wanted = {NODE_CLOCK, POSTGRES_CLOCK} & set(kinds)
    library = next(filter(works, candidates()), None) if wanted else None
    return library, [kind for kind in kinds if library or kind not in wanted]


def candidates() -> Iterator[Path]:
    """Where it may be: in a wheel of this environment, or in Debian's directory."""
    package = find_spec("libfaketime")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
    for pattern in DEBIAN:
        yield from sorted(Path("/usr").glob(pattern))


def works(library: Path) -> bool:
    """Whether a process with it sees a jump, and nothing else changes for it. Tested by running one."""
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
    """Environment variables for a process that uses the clock in this file."""
    return {"LD_PRELOAD": str(library), FILE: str(file), **SWITCHES}


def put(file: Path, seconds: float) -> None:
    """Set the clock's offset from the machine's. Any user may read it: the server may run as another one."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(f"{seconds:+.3f}\n")
    new.chmod(0o644)
    new.replace(file)


def go_by(file: str) -> None:
    """Switch this process to another clock than the one that it was started with."""
    os.environ[FILE] = file
