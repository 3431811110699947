"""Probes the server binaries that could be started here, and Python itself."""

from __future__ import annotations

import sys
from collections.abc import Callable

from fencepost.cli.findings import Finding, FindingState
from fencepost.cli.probes.machine import Machine
from fencepost.cli.probes.programs import version_in
from fencepost.embedded import BinaryMissingError, FoundBinaries, find_postgres, find_valkey

AREA = "this machine"
PYTHON_MIN = (3, 11)


def probe_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    shown = ".".join(map(str, version))
    if version < PYTHON_MIN:
        return Finding(
            AREA, "Python", FindingState.LACKING, shown, "Install Python 3.11 or newer.", required=True
        )
    return Finding(AREA, "Python", FindingState.OK, f"{shown}  {sys.executable}", required=True)


def probe_binaries(machine: Machine, *, postgres_needed: bool, redis_needed: bool) -> list[Finding]:
    """Each is required only when no URL names an external server."""
    return [
        _probe_binary(machine, "PostgreSQL server", find_postgres, required=postgres_needed),
        _probe_binary(machine, "Valkey server", find_valkey, required=redis_needed),
    ]


def _probe_binary(
    machine: Machine, name: str, find: Callable[[], FoundBinaries], *, required: bool
) -> Finding:
    try:
        found = find()
    except BinaryMissingError as error:
        said, _, remedy = str(error).partition(". ")
        return Finding(AREA, name, FindingState.LACKING, said, remedy, required=required)
    version = machine.output(found.path, "--version")
    if version is None:
        remedy = "Install another one: pip install 'fencepost[embedded]'."
        return Finding(
            AREA, name, FindingState.LACKING, f"{found.path} does not run", remedy, required=required
        )
    shown = ".".join(map(str, version_in(version)))
    return Finding(AREA, name, FindingState.OK, f"{shown}  from {found.origin}", required=required)
