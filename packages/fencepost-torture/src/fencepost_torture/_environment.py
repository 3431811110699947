"""The servers of a run (our own PostgreSQL and Valkey), and an environment with proxies for each system."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString, Self, cast

import psycopg

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.kernel.migrate import migrate
from fencepost.redis_streams.connection import connect_sync
from fencepost.testing import Breach, Clock, Proxy
from fencepost_torture._disk import Disk
from fencepost_torture._small_disk import SmallDisk
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._wall_clocks import environment, put
from fencepost_torture.cluster import Cluster

TEMPLATE = "torture_template"
SETTINGS: dict[str, str | int] = {
    "max_connections": 400,
    "shared_buffers": "64MB",
    "max_prepared_transactions": 50,
    "autovacuum_naptime": "5s",
    "log_checkpoints": "off",
    # The disk that can be full is a small one.
    "min_wal_size": "32MB",
    "max_wal_size": "96MB",
    # A server that was killed syncs each file of every database before it reads its log: that takes most of
    # the time of a restart. Linux can sync the file system as a whole.
    **({"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}),
}

MORE: LiteralString = """
    create temporary table more on commit drop as select repeat('x', 1000) from generate_series(1, 1000)
"""


class Environment:
    """Both servers, while the block runs. All files are below one new directory, removed at the end."""

    def __init__(
        self,
        systems: Sequence[str],
        *,
        seed: int,
        lease_seconds: float,
        server_settings: Mapping[str, str | int],
        disk: Disk | None,
        wired: bool = True,
        faketime: Path | None = None,
        clustered: bool = False,
    ) -> None:
        """Without `wired` no connection goes through a proxy, and no network fault can be injected. With
        `faketime` the wall clock of PostgreSQL can jump, which every system then has to tolerate. With
        `clustered` PostgreSQL is a cluster that fails over."""
        self.directory = Path(tempfile.mkdtemp(prefix="fencepost-torture-"))
        self.disk = disk
        small = disk if isinstance(disk, SmallDisk) else None
        self.cluster = Cluster(self.directory / "cluster", disk=small) if clustered else None
        self._faketime = faketime
        self._ahead_seconds = 0.0
        self._systems = systems
        self._seed = seed
        self._lease_seconds = lease_seconds
        self._wired = wired
        self._settings = {**SETTINGS, **(disk.server_settings if disk else {}), **server_settings}
        self._open = ExitStack()
        self.envs: dict[str, SystemEnvironment] = {}

    def __enter__(self) -> Self:
        self._open.callback(shutil.rmtree, self.directory, ignore_errors=True)
        with ExitStack() as undo:
            undo.push(self._open.__exit__)
            self._start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    def jump(self, seconds: float) -> None:
        """Move PostgreSQL's own clock by `seconds`; does nothing where that clock cannot jump."""
        self._ahead_seconds += seconds
        put(self._clock, self._ahead_seconds)

    def has_no_room(self) -> bool:
        """Whether the disk is full for PostgreSQL, and not only for this process. Its own log may have no
        room either, so the server is asked."""
        [env, *_] = self.envs.values()
        try:
            with psycopg.connect(env.admin_url, connect_timeout=3) as connection:
                connection.execute(MORE)
        except psycopg.OperationalError as error:
            return isinstance(error, psycopg.errors.DiskFull)
        return False

    def left_behind(self) -> list[Breach]:
        """The clients that are still connected to Redis, except the one that asks."""
        client: Any = connect_sync(self.valkey.url, reply_seconds=5)
        with closing(client):
            others = len(client.client_list()) - 1
        return [Breach("left behind", "connections to Redis", f"{others} are still there")] if others else []

    @property
    def _clock(self) -> Path:
        # Not on the disk that can be full, but above it, where the user that the server runs as has access.
        return self.directory / "clock"

    def _start(self) -> None:
        place = self.directory / "postgres"
        if self.disk is not None and self.cluster is None:
            self._open.enter_context(self.disk.mounted(place))
        put(self._clock, 0)
        if self.cluster is None:
            self.postgres = self._open.enter_context(
                PostgresServer(
                    place / "server",
                    settings=self._settings,
                    environment=environment(self._faketime, self._clock) if self._faketime else {},
                )
            )
        else:
            self._open.enter_context(self.cluster)
        self.valkey = self._open.enter_context(ValkeyServer(self.directory / "valkey"))
        self._open.callback(self._end_servers)
        template = self._database(TEMPLATE)
        template.create()
        migrate(template.admin_url)
        if self.cluster is None:
            template.create_logins()
        else:
            self.cluster.create_logins()
        for number, name in enumerate(self._systems):
            self.envs[name] = self._env(name, number)

    def _end_servers(self) -> None:
        """Kills both servers: the data is not needed any more, so there is no wait for writing it."""
        servers = [self.valkey] if self.cluster is not None else [self.postgres, self.valkey]
        for server in servers:
            if server.running:
                server.kill()

    def _database(self, name: str) -> Database:
        # A database asks its server for addresses alone, and a cluster has them too.
        return Database(cast("PostgresServer", self.cluster or self.postgres), name)

    def _wire(self, database: Database) -> Proxy:
        """A cluster has several addresses, and a proxy one: no network fault reaches it."""
        url = database.url if self.cluster is None else self.cluster.node_url(self.cluster.nodes[0])
        return self._open.enter_context(Proxy.for_postgres(url))

    def _env(self, name: str, number: int) -> SystemEnvironment:
        database = self._database(f"torture_{number}")
        database.create(template=TEMPLATE)
        clock = Clock(database.admin_url).install()
        directory = self.directory / f"stage-{number}"
        directory.mkdir()
        env = SystemEnvironment(
            name,
            database,
            self._wire(database),
            self._open.enter_context(Proxy.for_redis(self.valkey.url)),
            clock,
            directory,
            random.Random(f"{self._seed} {name}"),  # noqa: S311 - Repeatable work, no secret.
            self._lease_seconds,
            redis_address=None if self._wired else self.valkey.url,
        )
        self._open.callback(env.close)
        return env
