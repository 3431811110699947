"""Services are plugins: distributions that are installed beside the library and found by entry point.

A distribution declares one in its `pyproject.toml`:

    [project.entry-points."fencepost.plugins"]
    orders = "fencepost_orders.plugin:PLUGIN"

`PLUGIN` is an instance of the class below. It names what the service provides: schema, settings, commands,
routes, pages, checks. Everything but the schema is a reference, `module:attribute`, which is imported when it
is needed: a plugin costs a process nothing until it is used. Our own services use the same mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, LiteralString

from fencepost.errors import SettingsError

GROUP = "fencepost.plugins"
OWN_COMPONENTS = ("kernel", "flows", "webhooks")
OWN_COMMANDS: Mapping[str, str] = {
    "up": "fencepost.cli._up:up",
    "migrate": "fencepost.cli._migrate:migrate",
    "recover": "fencepost.cli._recover:recover",
    "verify": "fencepost.cli._verify:verify",
    "lost": "fencepost.cli._lost:lost",
    "doctor": "fencepost.cli._doctor:doctor",
    "status": "fencepost.cli._status:status",
    "explain": "fencepost.cli._explain:explain",
    "demo": "fencepost.cli._demo:demo",
    "url": "fencepost.cli._servers:url",
    "psql": "fencepost.cli._servers:psql",
    "grant": "fencepost.cli._servers:grant",
    "worker": "fencepost.cli._worker:worker",
    "workers": "fencepost.cli._workers:app",
    "jobs": "fencepost.cli._jobs:app",
    "schedules": "fencepost.cli._schedules:app",
    "flows": "fencepost.cli._flows:app",
    "workflows": "fencepost.cli._workflows:app",
    "webhooks": "fencepost.cli._webhooks:app",
    "docs": "fencepost.cli._docs:docs",
    "completion": "fencepost.cli._completion:completion",
}
"""The library brings components and commands itself: no plugin may bring one of these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What a service provides."""

    name: str
    about: str
    """One line, which `fencepost doctor` shows."""
    schemas: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Components of the database by name: folders with `schema/NNNN_name.sql` and `functions/*.sql`."""
    requires: tuple[str, ...] = ()
    """Components, its own or of other plugins, that its tables refer to: they are migrated before them."""
    settings: tuple[str, ...] = ()
    """Settings classes: their keys are allowed in config.yaml."""
    commands: Mapping[str, str] = field(default_factory=dict[str, str])
    """Commands of `fencepost` by name: each a function, or a typer application with commands of its own."""
    http_service: str | None = None
    """`make_service(fp) -> HttpService`: routes, and the background tasks that run beside them."""
    console: str | None = None
    """Its pages of the console: a `ConsolePages` of fencepost-server."""
    needs: LiteralString | None = None
    """A query that returns `need, name, things`: what needs attention. `console` describes each row."""
    doctor: str | None = None
    """`probe(machine) -> list[Finding]`: what the service requires of a machine, for `fencepost doctor`."""
    demo: str | None = None
    """A `DemoPart`: what it shows in `fencepost demo`."""
    names: str | None = None
    """A `CompatibleNames`: what the service offers under names of earlier systems (COMPATIBLE_NAMES)."""
    announce: str | None = None
    """`announce(addresses, to_person=...) -> Mapping[str, str]`: what `fencepost up` prints beside its URL.

    Output that only the person at the terminal may see, such as a login link, is left out for anyone else.
    """


@dataclass(frozen=True, slots=True)
class _Found:
    plugins: Mapping[str, Plugin]
    broken: Mapping[str, str]


def plugins() -> Mapping[str, Plugin]:
    """Every plugin that is installed and can be loaded, by name, in order of the names."""
    return _find().plugins


def broken_plugins() -> Mapping[str, str]:
    """Plugins that are installed and cannot be loaded, each with the reason.

    Commands go on without them and say so; a migration is refused, because their schema is not known.
    """
    return _find().broken


def compatible_plugins() -> tuple[str, ...]:
    """The plugins that know names of earlier systems; COMPATIBLE_NAMES turns those off."""
    return tuple(name for name, plugin in plugins().items() if plugin.names)


@cache
def _find() -> _Found:
    found: dict[str, Plugin] = {}
    broken: dict[str, str] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found[point.name] = _checked(point.name, point.load(), found)
        except Exception as error:
            # Whatever a foreign module raises, the other plugins still work.
            origin = point.dist.name if point.dist else "an unknown distribution"
            broken[point.name] = (
                f"{type(error).__name__}: {str(error).rstrip(chr(46))}. Repair or uninstall {origin}."
            )
    return _Found(found, broken)


def load(reference: str) -> Any:
    """The object that `module:attribute` names; the module itself when there is no colon."""
    module, _, attribute = reference.partition(":")
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def _checked(name: str, value: object, others: Mapping[str, Plugin]) -> Plugin:
    """The value, if it is a plugin of this name that takes nothing that another one has."""
    if not isinstance(value, Plugin) or value.name != name:
        raise SettingsError(f"The entry point does not name a fencepost.plugin.Plugin called {name!r}.")
    taken = {*OWN_COMPONENTS, *(component for other in others.values() for component in other.schemas)}
    if both := sorted(taken & value.schemas.keys()):
        raise SettingsError(f"It provides the component {both[0]!r}, which another plugin provides already.")
    if both := sorted(OWN_COMMANDS.keys() & value.commands.keys()):
        raise SettingsError(f"It provides the command {both[0]!r}, which the library has itself.")
    taken = {command for other in others.values() for command in other.commands}
    if both := sorted(taken & value.commands.keys()):
        raise SettingsError(f"It provides the command {both[0]!r}, which another plugin provides already.")
    return value
