"""One database of an embedded server, and its three logins."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from fencepost.embedded._postgres import PostgresServer

SERVICE = "fencepost_service"
VIEWER = "fencepost_viewer"


@dataclass(frozen=True)
class Database:
    """A database by name. The URLs are valid as long as the server keeps its address."""

    server: PostgresServer
    name: str

    @property
    def admin_url(self) -> str:
        """As the superuser, for migrations."""
        return self.server.url(self.name)

    @property
    def url(self) -> str:
        """As a service, which may call the functions and read the views."""
        return self.server.url(self.name, SERVICE)

    @property
    def viewer_url(self) -> str:
        """As a read-only user."""
        return self.server.url(self.name, VIEWER)

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection as a service, each statement its own transaction."""
        return psycopg.connect(self.url, autocommit=True)

    def connect_admin(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection as the superuser, each statement its own transaction."""
        return psycopg.connect(self.admin_url, autocommit=True)

    def exists(self) -> bool:
        """Whether the server has it."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            query = "select 1 from pg_database where datname = %s"
            return connection.execute(query, (self.name,)).fetchone() is not None

    def create(self, *, template: str = "template1") -> None:
        """Create it as a copy of a template."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            # By file copy: writing a whole template through the WAL takes five times the CPU time.
            statement = sql.SQL("create database {} template {} strategy file_copy")
            connection.execute(statement.format(sql.Identifier(self.name), sql.Identifier(template)))

    def drop(self) -> None:
        """Drop it, even if clients are connected."""
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            connection.execute(
                sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(self.name))
            )

    def create_logins(self) -> None:
        """Create the roles behind `url` and `viewer_url`, members of groups that the migrations have made."""
        statements = files("fencepost.embedded").joinpath("logins.sql").read_text()
        with self.connect_admin() as connection:
            connection.execute(statements.encode())
