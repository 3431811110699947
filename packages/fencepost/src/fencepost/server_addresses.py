"""Which servers a command talks to.

`DATABASE_URL` names them, or a `fencepost up` in this directory does: while it runs, it keeps a file in its
data directory, so that `fencepost status` in another terminal needs no settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from fencepost.errors import ServerUnavailable
from fencepost.private_folder import make_private
from fencepost.settings import Settings

NOTE = "running.json"
CHECK_THE_URL = "Check that it runs, and DATABASE_URL; `fencepost doctor` says more."
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class ServerAddresses:
    """The addresses of one system, their origin, and what to do when a server does not answer."""

    origin: str
    remedy: str
    migration_url: str
    service_url: str
    viewer_url: str
    redis_url: str | None
    endpoint_url: str | None = None


def of_settings(settings: Settings) -> ServerAddresses | None:
    """The addresses from the settings, or None when the settings leave the database to the embedded pair."""
    if settings.database_url is None:
        return None
    return ServerAddresses(
        origin="DATABASE_URL",
        remedy=CHECK_THE_URL,
        migration_url=settings.migration_url or settings.database_url,
        service_url=settings.database_url,
        viewer_url=settings.database_url,
        redis_url=settings.redis_url,
    )


def of_this_directory(settings: Settings) -> ServerAddresses:
    """From the settings, or from the file of a running `fencepost up`, or an error that says what to do."""
    found = of_settings(settings) or read_note(settings.data_directory)
    if found is None:
        raise ServerUnavailable(
            f"DATABASE_URL is not set, and no `fencepost up` runs in {settings.data_directory}. "
            "Start one in another terminal, or set DATABASE_URL."
        )
    return found


def read_note(directory: Path) -> ServerAddresses | None:
    """From the file of a running `fencepost up`, or None. A killed `up` leaves it, and no server answers."""
    try:
        return ServerAddresses(**json.loads((directory / NOTE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def noted(directory: Path, server_addresses: ServerAddresses) -> Generator[None]:
    """The file exists inside the block. Only its owner may read it."""
    note = directory / NOTE
    make_private(directory)
    fresh = note.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY), "w") as file:
        json.dump(asdict(server_addresses), file)
    # Renamed into place, so that a reader never sees a partial file.
    fresh.replace(note)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
