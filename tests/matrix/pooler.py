"""PgBouncer in transaction mode, between the services and an embedded PostgreSQL."""

import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from fencepost.embedded import Database, FoundBinaries, PostgresServer
from fencepost.embedded import _data_dir as data_dir
from fencepost.embedded._database import SERVICE, VIEWER
from fencepost.embedded._deadline import Deadline
from fencepost.embedded._process import KeptProcess, StartPlan
from tests.tmp_dirs import server_place

PORT = 6432
SECONDS_MAX = 30
FAREWELL = (signal.SIGTERM, signal.SIGKILL)

SETTINGS = """\
[databases]
* = host={server}
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {sockets}
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {backends}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"""


class Pooler:
    """One PgBouncer for every database of one server. Logins without a password, as there."""

    def __init__(self, program: Path, server: PostgresServer, *, backends: int = 20) -> None:
        self._program = FoundBinaries(program, "the matrix")
        self._server = server
        self._backends = backends
        self._directory = tempfile.TemporaryDirectory(
            prefix="fencepost-test-", dir=server_place(), ignore_cleanup_errors=True
        )
        self._process: KeptProcess | None = None

    @property
    def sockets(self) -> Path:
        return Path(self._directory.name)

    def __enter__(self) -> Self:
        log = self.sockets / "log"
        log.touch()
        settings, users = self.sockets / "pgbouncer.ini", self.sockets / "users"
        users.write_text("".join(f'"{name}" ""\n' for name in (data_dir.SUPERUSER, SERVICE, VIEWER)))
        server = conninfo_to_dict(self._server.url())["host"]
        settings.write_text(
            SETTINGS.format(
                server=server, port=PORT, sockets=self.sockets, users=users, backends=self._backends
            )
        )
        # PgBouncer refuses root, as PostgreSQL does.
        identity = data_dir.choose_identity(self._program, self.sockets / "data", self.sockets, log)
        identity.own_tree(self.sockets)
        plan = StartPlan([self._program.path, "-q", settings], identity, log, FAREWELL, sweep=(self.sockets,))
        self._process = KeptProcess(plan)
        Deadline(SECONDS_MAX, f"PgBouncer accepts connections; {log} says why not").wait(self._is_ready)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
        self._directory.cleanup()

    def url(self, database: str, user: str) -> str:
        host = quote(str(self.sockets), safe="")
        return f"postgresql://{quote(user)}@/{quote(database)}?host={host}&port={PORT}"

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.url("postgres", data_dir.SUPERUSER)).close()
        except psycopg.OperationalError:
            return False
        return True


@dataclass(frozen=True)
class PooledDatabase(Database):
    """A database whose services come through the pooler. Migrations and sessions go to the server itself."""

    pooler: Pooler

    @property
    def url(self) -> str:
        return self.pooler.url(self.name, SERVICE)
