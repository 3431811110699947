"""bench-install: what an installation brings, beside four libraries: packages, megabytes, seconds, and the
CPU time of an import. Each is in an empty virtual environment.

Seconds are those of the installation alone: what is downloaded is in uv's cache already, and the files are
copied, as pip does.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.environments import CannotInstall, EmptyEnvironment, build_wheels
from bench.jobs_peers import STRANGERS
from bench.report import Goal, Report, Row, machine

NAMES = ("procrastinate", "pgqueuer", "dbos", "celery")
IMPORTS = 20
INSTALLATIONS = 3
WHEEL_KB_MAX = 600
PACKAGES_MAX = 15
MEGABYTES_MAX = 35
IMPORT_MS_MAX = 60


@dataclass(frozen=True, slots=True)
class Candidate:
    title: str
    module: str
    packages: tuple[str, ...]
    options: tuple[str | Path, ...] = ()


def run(*, quick: bool) -> Report:
    imports, installations = (IMPORTS // 4, 1) if quick else (IMPORTS, INSTALLATIONS)
    with tempfile.TemporaryDirectory(prefix="fencepost-install-") as directory:
        place = Path(directory)
        (wheel,) = build_wheels(["fencepost"], place / "wheels")
        ours = Candidate("fencepost", "fencepost", ("fencepost",), ("--find-links", wheel.parent))
        embedded = Candidate(
            "fencepost with servers", "fencepost", ("fencepost[embedded]",), ("--find-links", wheel.parent)
        )
        peers = [Candidate(peer.title, peer.name, peer.packages) for peer in STRANGERS if peer.name in NAMES]
        rows = measured((ours, embedded, *peers), place, imports, installations)
        goals = _goals(rows[0], wheel)
    return Report("install", quick, rows, goals, machine())


def measured(candidates: Sequence[Candidate], place: Path, imports: int, installations: int) -> list[Row]:
    """A row for each, with the reason where it could not be installed. They take turns: the machine may be
    busier a minute later."""
    seconds: dict[Candidate, list[float]] = {candidate: [] for candidate in candidates}
    rows: dict[Candidate, Row] = {}
    for candidate in candidates:
        try:
            # Fills uv's cache.
            environment = EmptyEnvironment(place / "env")
            environment.install(candidate.packages, *candidate.options)
        except CannotInstall as error:
            rows[candidate] = {"installed": candidate.title, "note": str(error)}
            continue
        rows[candidate] = {
            "installed": candidate.title,
            "packages": len(environment.packages),
            "MB": round(environment.megabytes, 1),
            "import, CPU ms": round(import_ms(environment, candidate.module, imports), 1),
        }
    for _ in range(installations):
        for candidate in (one for one in candidates if "note" not in rows[one]):
            environment = EmptyEnvironment(place / "env")
            started = time.perf_counter()
            environment.install(candidate.packages, "--link-mode", "copy", *candidate.options)
            seconds[candidate].append(time.perf_counter() - started)
    return [
        {**row, "seconds": round(min(seconds[candidate]), 2)} if seconds[candidate] else row
        for candidate, row in rows.items()
    ]


def import_ms(environment: EmptyEnvironment, module: str, times: int) -> float:
    """The median CPU time of `import module`, without the time that Python itself takes to start."""
    with_it, without = (
        # The first one compiles the bytecode, and is not counted.
        statistics.median([_cpu_ms(environment, code) for _ in range(times + 1)][1:])
        for code in (f"import {module}", "pass")
    )
    return with_it - without


def _cpu_ms(environment: EmptyEnvironment, code: str) -> float:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([environment.python, "-c", code], check=True, cwd=environment.home, env=variables)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _bytes_of(wheel: Path) -> int:
    """Of the wheel, without the documentation that it has if `make docs` was run before."""
    with zipfile.ZipFile(wheel) as archive:
        pages = sum(
            one.compress_size for one in archive.infolist() if one.filename.endswith("documentation.zip")
        )
    return wheel.stat().st_size - pages


def _goals(bare: Row, wheel: Path) -> list[Goal]:
    if "note" in bare:
        return []
    return [
        Goal(
            "the wheel of fencepost without its documentation, KB",
            _bytes_of(wheel) / 1000,
            WHEEL_KB_MAX,
            at_most=True,
        ),
        Goal("packages of fencepost alone", float(bare["packages"]), PACKAGES_MAX, at_most=True),
        Goal("MB of fencepost alone", float(bare["MB"]), MEGABYTES_MAX, at_most=True),
        Goal("import fencepost, CPU ms", float(bare["import, CPU ms"]), IMPORT_MS_MAX, at_most=True),
    ]
