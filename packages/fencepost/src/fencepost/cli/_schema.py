"""Compares the schema in the database with the one of this code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost import server_addresses
from fencepost.cli.database_reader import reading
from fencepost.kernel.migrate import (
    KERNEL,
    Component,
    Installed,
    Migrated,
    components,
    installed,
    kernel,
    migrate,
)
from fencepost.settings import Settings


@dataclass(frozen=True, slots=True)
class SchemaComparison:
    """The kernel's version, and the pending steps of every component. Without a schema `found` is None.

    `renew` names the components whose functions or grants were made from files that differ from this code's.
    """

    found: int | None
    wanted: int
    pending: tuple[str, ...]
    renew: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every step of this code is applied: enough to work, whatever a later version has added."""
        return self.found is not None and not self.pending

    @property
    def fits(self) -> bool:
        return self.found == self.wanted and not self.pending and not self.renew

    def describe(self) -> str:
        if self.fits:
            return f"The schema has version {self.found}, as this code needs."
        if self.found is None:
            return f"There is no schema; this code needs version {self.wanted}. Run `fencepost migrate`."
        if self.pending:
            steps = ", ".join(self.pending)
            return f"The schema has version {self.found}; to apply: {steps}. Run `fencepost migrate`."
        if self.found == self.wanted:
            return (
                f"The schema has version {self.found}, and other functions or grants of "
                f"{', '.join(self.renew)} than this code brings. Run `fencepost migrate`."
            )
        return (
            f"The schema has version {self.found}, this code knows {self.wanted}: upgrade this installation."
        )


def migration_url(settings: Settings | None = None) -> str:
    settings = settings or Settings.load()
    # A deployment's migration step may have no other URL than the one for migrations.
    return settings.migration_url or server_addresses.of_this_directory(settings).migration_url


def compare(url: str, wanted: Sequence[Component] = ()) -> SchemaComparison:
    """Compare the database with `wanted`, or with every installed component."""
    wanted = wanted or components()
    with reading(url):
        found = installed(url)
    nothing = Installed(0, None)
    pending = [
        known.title(step)
        for known in wanted
        for step in known.steps
        if step.version > found.get(known.name, nothing).version
    ]
    renew = [known.name for known in wanted if found.get(known.name, nothing).digest != known.digest]
    version = found[KERNEL].version if KERNEL in found else None
    return SchemaComparison(version, kernel().version, tuple(pending), tuple(renew))


def bring_up_unless_it_fits(url: str) -> Migrated | None:
    """Migrate only when something differs: reapplying everything would be most of the startup time."""
    return None if compare(url).fits else bring_up(url)


def bring_up(url: str, wanted: Sequence[Component] = ()) -> Migrated:
    # Connects through `reading` first: its error says what to do.
    with reading(url):
        return migrate(url, *wanted)
