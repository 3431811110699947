"""An old and a new server, of the oldest and the newest major version that this machine has."""

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo

from fencepost.embedded import Database, PostgresServer
from fencepost.embedded._binaries import FoundBinaries
from fencepost.kernel.migrate import migrate
from tests.integration.client.page import Owners
from tests.integration.replication.replicas import SETTINGS
from tests.matrix.servers import postgres_servers
from tests.tmp_dirs import server_directory

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "upgrade-postgresql.md"


@dataclass(frozen=True)
class TwoVersions:
    """The old database is migrated and has its logins. The new one is empty."""

    old: Database
    new: Database
    psql: Path

    @property
    def owners(self) -> Owners:
        """Connects to the servers that the page names."""
        return {"old": self.old.connect_admin, "new": self.new.connect_admin}

    @property
    def instead(self) -> dict[str, str]:
        """The addresses that the page prints, and those of these two."""
        return {
            "postgresql://owner@old/shop": f"'{self.old.admin_url}'",
            "postgresql://owner@new/shop": f"'{self.new.admin_url}'",
            "host=old dbname=shop user=owner": make_conninfo(self.old.admin_url).replace("'", "''"),
        }


@contextmanager
def two_versions() -> Generator[TwoVersions]:
    found = postgres_servers()
    oldest, newest = (FoundBinaries(server.path, server.version) for server in (found[0], found[-1]))
    with _server(oldest) as first, _server(newest) as second:
        old, new = (Database(server, f"shop_{uuid.uuid4().hex[:8]}") for server in (first, second))
        for database in (old, new):
            database.create()
        migrate(old.admin_url)
        old.create_logins()
        yield TwoVersions(old, new, newest.beside("psql"))


def _server(binary: FoundBinaries) -> PostgresServer:
    settings = {**SETTINGS, "wal_level": "logical"}
    return PostgresServer(server_directory(), settings=settings, ephemeral=True, binary=binary)
