"""A primary and one standby of it, from the binaries of the embedded server. No manager: tests decide."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from fencepost.embedded import Database, PostgresServer
from fencepost.embedded._data_dir import choose_identity
from fencepost.embedded._deadline import Deadline
from fencepost.embedded._process import run_to_end
from fencepost.kernel.migrate import migrate
from tests.tmp_dirs import server_directory

NAME = "shop"
STANDBY = "standby"
SETTINGS: dict[str, str | int] = {
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": 60,
    "wal_keep_size": "64MB",
    "wal_retrieve_retry_interval": "100ms",
    "autovacuum": "off",
}


@dataclass
class Replicas:
    """What was migrated and has logins, on the primary and on the standby that follows it."""

    primary: PostgresServer
    standby: PostgresServer

    @property
    def database(self) -> Database:
        return Database(self.primary, NAME)

    @property
    def successor(self) -> Database:
        return Database(self.standby, NAME)

    def wait_until_caught_up(self) -> None:
        """Return when the standby has all that the primary wrote."""
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            Deadline(60, "the standby has everything").wait(
                lambda: bool(
                    connection.execute(
                        "select count(*) from pg_stat_replication where flush_lsn >= pg_current_wal_lsn()"
                    ).fetchone()
                    == (1,)
                )
            )

    def require_standby(self, required: bool) -> None:
        """Whether a commit waits for the standby."""
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            connection.execute(
                b"alter system set synchronous_standby_names = '"
                + (STANDBY.encode() if required else b"")
                + b"'"
            )
            connection.execute("select pg_reload_conf()")
            wanted = STANDBY if required else ""
            Deadline(60, "the setting is in force").wait(
                lambda: connection.execute("show synchronous_standby_names").fetchone() == (wanted,)
            )

    def promote(self) -> Database:
        """The standby becomes a primary."""
        with psycopg.connect(self.standby.url(), autocommit=True) as connection:
            connection.execute("select pg_promote()")
        return self.successor

    def waits_for_standby(self, admin: psycopg.Connection[Any]) -> list[int]:
        rows = admin.execute("select pid from pg_stat_activity where wait_event = 'SyncRep'").fetchall()
        return [pid for (pid,) in rows]


@contextmanager
def replicas() -> Generator[Replicas]:
    with PostgresServer(server_directory(), settings=SETTINGS, ephemeral=True) as primary:
        database = Database(primary, NAME)
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        with standby_of(primary, server_directory()) as standby:
            both = Replicas(primary, standby)
            both.wait_until_caught_up()
            yield both


def standby_of(primary: PostgresServer, place: Path) -> PostgresServer:
    """A copy of the primary that follows it once it is started."""
    data, log = place / "data", place / "backup.log"
    place.mkdir(exist_ok=True)
    identity = choose_identity(primary.binary, data, place, log)
    backup: list[str | Path] = [
        primary.binary.beside("pg_basebackup"),
        "-d",
        primary.url(),
        "-D",
        data,
        "-c",
        "fast",
        "--no-sync",
    ]
    assert run_to_end([*backup, "-R"], identity, log, seconds=60) == 0, log.read_text()
    with psycopg.connect(primary.url()) as connection:
        conninfo = connection.info.dsn
    return PostgresServer(
        place,
        settings={**SETTINGS, "primary_conninfo": f"{conninfo} application_name={STANDBY}"},
        ephemeral=True,
    )
