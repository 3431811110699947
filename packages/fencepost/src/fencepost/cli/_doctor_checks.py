"""All checks of `doctor`, in the order in which they are shown."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fencepost import server_addresses
from fencepost.cli.findings import Finding, FindingState
from fencepost.cli.probes._postgres import probe_postgres
from fencepost.cli.probes._redis import probe_redis
from fencepost.cli.probes._servers import probe_binaries, probe_python
from fencepost.cli.probes.folders import probe_folders
from fencepost.cli.probes.machine import Machine, ThisMachine
from fencepost.cli.probes.programs import probe_programs
from fencepost.compatible_names import CompatibleNames
from fencepost.plugin import broken_plugins, compatible_plugins, load, plugins
from fencepost.settings import Settings


def examine(settings: Settings | None = None, machine: Machine | None = None) -> list[Finding]:
    settings, machine = settings or Settings.load(), machine or ThisMachine()
    return [
        probe_python(),
        *probe_binaries(
            machine, postgres_needed=settings.database_url is None, redis_needed=settings.redis_url is None
        ),
        *probe_folders({"data directory": settings.data_directory}),
        *examine_servers(settings),
        *probe_programs(machine),
        *probe_plugins(machine),
        *probe_compatible_names(settings, os.environ),
    ]


def probe_plugins(machine: Machine) -> list[Finding]:
    """The installed plugins, and the findings of each about what it needs."""
    found = plugins().values()
    listed = [Finding("plugins", plugin.name, FindingState.OK, plugin.about) for plugin in found]
    listed += [
        Finding("plugins", name, FindingState.LACKING, "cannot be loaded", why, required=True)
        for name, why in broken_plugins().items()
    ]
    probed = [finding for plugin in found if plugin.doctor for finding in load(plugin.doctor)(machine)]
    return [*listed, *probed]


def probe_compatible_names(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """Which services use names of earlier systems; and which variables are ignored because none does."""
    services = compatible_plugins()
    if not services:
        return []
    if settings.compatible_names:
        detail = f"on in {', '.join(services)}; COMPATIBLE_NAMES=false turns them off"
        return [Finding("plugins", "compatible names", FindingState.OK, detail)]
    tables: list[CompatibleNames] = [load(plugins()[name].names or "") for name in services]
    ignored = {old.name: old.env for names in tables for old in names.settings if environ.get(old.name)}
    found = [Finding("plugins", "compatible names", FindingState.OK, "off: COMPATIBLE_NAMES is false")]
    return found + [
        Finding(
            "plugins",
            name,
            FindingState.DEGRADED,
            "is set and ignored: COMPATIBLE_NAMES is false",
            f"Set {env} instead, or COMPATIBLE_NAMES=true.",
        )
        for name, env in sorted(ignored.items())
    ]


def examine_servers(settings: Settings) -> list[Finding]:
    """Findings about the running servers, from the settings or from a `fencepost up` in this directory."""
    running = server_addresses.of_settings(settings) or server_addresses.read_note(settings.data_directory)
    redis_url = settings.redis_url or (running.redis_url if running else None)
    return [
        *(probe_postgres(running, seconds=settings.connect_seconds) if running else ()),
        *(probe_redis(redis_url, seconds=settings.connect_seconds) if redis_url else ()),
    ]
