"""All checks of `doctor`, in the order in which they are shown."""

from __future__ import annotations

from fencepost import server_addresses
from fencepost.cli.findings import Finding, FindingState
from fencepost.cli.probes.folders import probe_folders
from fencepost.cli.probes.machine import Machine, ThisMachine
from fencepost.cli.probes.postgres import probe_postgres
from fencepost.cli.probes.programs import probe_programs
from fencepost.cli.probes.redis import probe_redis
from fencepost.cli.probes.servers import probe_binaries, probe_python
from fencepost.plugin import broken_plugins, load, plugins
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


def examine_servers(settings: Settings) -> list[Finding]:
    """Findings about the running servers, from the settings or from a `fencepost up` in this directory."""
    running = server_addresses.of_settings(settings) or server_addresses.read_note(settings.data_directory)
    redis_url = settings.redis_url or (running.redis_url if running else None)
    return [
        *(probe_postgres(running, seconds=settings.connect_seconds) if running else ()),
        *(probe_redis(redis_url, seconds=settings.connect_seconds) if redis_url else ()),
    ]
