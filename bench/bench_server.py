"""The PostgreSQL server of a benchmark: its own, in a temporary directory, with durable commits."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.report import Row
from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import migrate

# Durable as in production. A checkpoint in the middle of one side's round would be noise: none is due.
SETTINGS: dict[str, str | int] = {
    "shared_buffers": "512MB",
    "min_wal_size": "1GB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
    "log_checkpoints": "off",
}
LOG_FILES = 32
"""Half a gigabyte, in files of 16 MB."""


def make_log_files(server: PostgresServer) -> None:
    """Create the WAL files that a server has after running for a while, and reuses.

    A new server fills each file with zeros first, and the fastest writer waits for most of them.
    """
    with Database(server, "postgres").connect_admin() as connection:
        for _ in range(LOG_FILES):
            connection.execute("select pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()")
        connection.execute("checkpoint")


@contextmanager
def migrated_database() -> Generator[Database]:
    """A database with the kernel's schema, on a server that is removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="fencepost-bench-"))
    with PostgresServer(directory, settings=SETTINGS, ephemeral=True) as server:
        make_log_files(server)
        database = Database(server, "bench")
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        yield database


def another_database(database: Database, name: str) -> Database:
    """A second database with the kernel's schema, on the same server."""
    another = Database(database.server, name)
    another.create()
    migrate(another.admin_url)
    another.create_logins()
    return another


def server_facts(database: Database) -> Row:
    """The settings in which servers differ, for the machine of a report."""
    with database.connect_admin() as connection:
        names = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
        return {
            name: connection.execute("select current_setting(%s)", (name,)).fetchall()[0][0] for name in names
        }
