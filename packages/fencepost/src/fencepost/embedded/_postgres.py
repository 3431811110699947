"""A PostgreSQL server that we start and stop."""

import signal
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from fencepost.embedded import _data_dir as data_dir
from fencepost.embedded._binaries import FoundBinaries, find_postgres
from fencepost.embedded._identity import Identity
from fencepost.embedded._process import StartPlan
from fencepost.embedded._server import EmbeddedServer

PORT = 5432

# Fast shutdown, immediate shutdown, kill.
FAREWELL = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)

# PostgreSQL holds the durable state: an acknowledged commit is on disk.
DEFAULTS: Mapping[str, str | int] = {
    "fsync": "on",
    "synchronous_commit": "on",
    "listen_addresses": "",
    "port": PORT,
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Files in the data directory are removed with it. Elsewhere a killed server's would stay, and /dev/shm,
    # the usual place, has 64 MB in a container. pgbench shows no difference.
    "dynamic_shared_memory_type": "mmap",
}


class PostgresServer(EmbeddedServer):
    """One PostgreSQL server in one directory, with a new data directory at the first start.

    `settings` are server settings by name; they override postgresql.conf. `cache` is where the result of
    initdb is kept for the next new data directory. `environment` is added to the environment that every
    server gets.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str | int] | None = None,
        ephemeral: bool = False,
        binary: FoundBinaries | None = None,
        identity: Identity | None = None,
        cache: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, socket_name=f".s.PGSQL.{PORT}", ephemeral=ephemeral)
        self.binary = binary or find_postgres()
        self.settings = {**DEFAULTS, **(settings or {})}
        self._data = self.directory / "data"
        self._identity = identity
        self._cache = cache or data_dir.default_cache()
        self._environment = environment or {}

    def url(self, database: str = "postgres", user: str = data_dir.SUPERUSER) -> str:
        """The URL of a database, over the server's own socket."""
        host = quote(str(self._home.sockets), safe="")
        return f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?host={host}"

    def _plan(self) -> StartPlan:
        identity = self._take_identity()
        if self._data.exists():
            data_dir.refuse_or_clear_pid_file(self._data)
        else:
            data_dir.create(
                self._data,
                self.binary,
                identity,
                cache=self._cache,
                durable=self.settings["fsync"] != "off",
                log=self.log,
            )
        return StartPlan(
            command=[self.binary.path, "-D", self._data, *self._options()],
            identity=identity,
            log=self.log,
            farewell=FAREWELL,
            sweep=self._stray_paths(),
            lock=self._home.lock,
            environment=self._environment,
        )

    def _take_identity(self) -> Identity:
        if self._identity is not None:
            return data_dir.settle(self._identity, self.binary, self._data, self._home.sockets)
        return data_dir.choose_identity(self.binary, self._data, self._home.sockets, self.log)

    def _options(self) -> list[str]:
        # The value is a list of directories; quotes protect a comma in the path.
        settings = {**self.settings, "unix_socket_directories": f'"{self._home.sockets}"'}
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def _clear_up(self) -> None:
        data_dir.release_shared_memory(self._data)

    def _is_ready(self, pid: int) -> bool:
        note = data_dir.PidFile.read(self._data)
        return note is not None and note.pid == pid and note.is_ready()
