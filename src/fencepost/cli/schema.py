"""The schema in the database against the one that this code brings."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost import whereabouts
from fencepost.cli.reading import reading
from fencepost.kernel.migrate import KERNEL, Migrated, components, kernel, migrate, schema_version
from fencepost.settings import Settings


@dataclass(frozen=True, slots=True)
class Comparison:
    """The kernel's version, and what every component still lacks. No schema at all is `found` None."""

    found: int | None
    wanted: int
    pending: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.found == self.wanted and not self.pending

    def describe(self) -> str:
        if self.fits:
            return f"The schema has version {self.found}, which this code wants."
        if self.found is None:
            return f"There is no schema; this code brings version {self.wanted}. Run `fencepost migrate`."
        if self.pending:
            steps = ", ".join(self.pending)
            return f"The schema has version {self.found}; to apply: {steps}. Run `fencepost migrate`."
        return (
            f"The schema has version {self.found}, this code knows {self.wanted}: upgrade this installation."
        )


def migration_url(settings: Settings | None = None) -> str:
    settings = settings or Settings.load()
    # A URL for migrations may be all that a deployment's migration step is given.
    return settings.migration_url or whereabouts.of_this_directory(settings).migration_url


def compare(url: str) -> Comparison:
    with reading(url):
        found = {known.name: schema_version(url, known.name) for known in components()}
        pending = [
            known.title(step)
            for known in components()
            for step in known.steps
            if step.version > (found[known.name] or 0)
        ]
        return Comparison(found[KERNEL], kernel().version, tuple(pending))


def bring_up(url: str) -> Migrated:
    # Reached first in our own way, whose error says what to do.
    with reading(url):
        return migrate(url)
