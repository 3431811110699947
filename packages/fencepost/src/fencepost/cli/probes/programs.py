"""Probes programs: path, version, and what is unavailable without them. Plugins probe theirs with the same
functions."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fencepost.cli.findings import Finding, FindingState
from fencepost.cli.probes.machine import Machine

_VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True, slots=True)
class NeededProgram:
    """A program under any of its names. `version_option` None skips the version, which would take seconds."""

    area: str
    name: str
    names: tuple[str, ...]
    without: str
    install: str
    version_option: str | None = "--version"
    version_min: tuple[int, ...] = ()


PROGRAMS = (
    NeededProgram(
        "checking", "browser", ("chromium", "google-chrome"), "no browser tests", "Debian: chromium"
    ),
    NeededProgram(
        "checking", "java for TLC", ("java",), "no model checking", "Debian: default-jre", "-version", (11,)
    ),
    NeededProgram(
        "checking", "anvil", ("anvil",), "nonces are tested on a simulated chain", "npm: @foundry-rs/anvil"
    ),
    NeededProgram(
        "operation", "prometheus", ("prometheus",), "metrics are shown, not kept", "Debian: prometheus"
    ),
    NeededProgram(
        "operation", "promtool", ("promtool",), "alert rules are not checked", "Debian: prometheus"
    ),
    NeededProgram("operation", "pgbouncer", ("pgbouncer",), "no test behind a pooler", "Debian: pgbouncer"),
)


def probe_programs(machine: Machine, programs: tuple[NeededProgram, ...] = PROGRAMS) -> list[Finding]:
    """Probe all concurrently: each waits for a child process, so the total time is that of the slowest."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(partial(probe_program, machine), programs))


def probe_program(machine: Machine, program: NeededProgram) -> Finding:
    """Whether the program is here, and new enough."""
    path = next((found for name in program.names if (found := machine.which(name))), None)
    if path is None:
        return _lacking(program, f"not found; {program.without}")
    if program.version_option is None:
        return Finding(program.area, program.name, FindingState.OK, str(path))
    return _judge_version(program, path, machine.output(path, program.version_option))


def _judge_version(program: NeededProgram, path: Path, said: str | None) -> Finding:
    # A shim may be on PATH while its target is not installed.
    if said is None:
        return _lacking(program, f"{path} does not run; {program.without}")
    version = version_in(said)
    if program.version_min and version and version < program.version_min:
        needed = ".".join(map(str, program.version_min))
        return _lacking(program, f"{path} is {_dotted(version)}, and {needed} is needed; {program.without}")
    return Finding(program.area, program.name, FindingState.OK, f"{_dotted(version)}  {path}".strip())


def version_in(text: str) -> tuple[int, ...]:
    """The first version number in a text, or an empty tuple."""
    found = _VERSION.search(text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _lacking(program: NeededProgram, detail: str) -> Finding:
    return Finding(
        program.area, program.name, FindingState.LACKING, detail, f"Install it ({program.install})."
    )
