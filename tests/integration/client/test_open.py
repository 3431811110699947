"""A client opens on a database that it can work with, and says plainly why not otherwise."""

import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from fencepost import (
    Fencepost,
    FencepostError,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    ServerUnavailable,
    SettingsError,
)
from fencepost.embedded import Database, PostgresServer
from fencepost.kernel import lease
from fencepost.kernel.migrate import kernel, migrate
from fencepost.settings import Settings
from tests.integration.client.conftest import MakeFacade

VERSION = kernel().version


@pytest.fixture
def empty_database(postgres: PostgresServer, template_database: Database) -> Iterator[Database]:
    """A database without our schema, on a server that has our logins."""
    database = Database(postgres, f"t_{uuid.uuid4().hex}")
    database.create()
    yield database
    database.drop()


def set_version(admin: psycopg.Connection, version: int) -> None:
    admin.execute("delete from fencepost.migration where component = 'kernel' and version > %s", (version,))
    for missing in range(VERSION + 1, version + 1):
        admin.execute(
            "insert into fencepost.migration (component, version, name, digest) values (%s, %s, '', '')",
            ("kernel", missing),
        )


def refusal_to_open(face: MakeFacade, client: Fencepost) -> FencepostError:
    facade = face(client)
    with pytest.raises(FencepostError) as caught:
        facade.open()
    facade.close()
    return caught.value


def test_a_database_without_a_schema_is_refused(face: MakeFacade, empty_database: Database) -> None:
    refused = refusal_to_open(face, Fencepost(empty_database.url))

    assert isinstance(refused, SchemaMissing)
    assert "fencepost migrate" in str(refused)


def test_a_client_that_was_refused_opens_after_the_migration(
    face: MakeFacade, empty_database: Database
) -> None:
    facade = face(Fencepost(empty_database.url))
    with pytest.raises(SchemaMissing):
        facade.open()
    migrate(empty_database.admin_url)

    facade.open()

    assert facade.run(lease.acquire("door", "me", 60)).token == 1
    facade.close()


@pytest.mark.parametrize(
    ("version", "error"), [(VERSION - 1, SchemaTooOld), (VERSION + 2, SchemaTooNew)], ids=["old", "new"]
)
def test_a_schema_that_is_behind_or_two_versions_ahead_is_refused(
    face: MakeFacade,
    database: Database,
    admin: psycopg.Connection,
    version: int,
    error: type[FencepostError],
) -> None:
    set_version(admin, version)

    refused = refusal_to_open(face, Fencepost(database.url))

    assert isinstance(refused, error)
    assert f"schema version {version} of kernel" in str(refused)
    assert str(VERSION) in str(refused)


def test_a_schema_one_version_ahead_serves_a_rolling_upgrade(
    face: MakeFacade, database: Database, admin: psycopg.Connection
) -> None:
    set_version(admin, VERSION + 1)
    facade = face(Fencepost(database.url))

    facade.open()

    assert facade.run(lease.acquire("door", "me", 60)).token == 1
    facade.close()


def test_a_login_without_our_role_is_told_which_to_be_granted(
    face: MakeFacade, database: Database, admin: psycopg.Connection
) -> None:
    stranger = sql.Identifier(name := f"stranger_{uuid.uuid4().hex}")
    admin.execute(sql.SQL("create role {} login").format(stranger))
    try:
        refused = refusal_to_open(face, Fencepost(database.server.url(database.name, name)))
    finally:
        admin.execute(sql.SQL("drop role {}").format(stranger))

    assert isinstance(refused, ServerUnavailable)
    assert "fencepost_app" in str(refused)


def test_a_server_that_is_not_there_is_told_at_once(face: MakeFacade, tmp_path: Path) -> None:
    began = time.monotonic()
    refused = refusal_to_open(face, Fencepost(f"postgresql:///shop?host={tmp_path}"))

    assert isinstance(refused, ServerUnavailable)
    assert "cannot be reached" in str(refused)
    assert time.monotonic() - began < 3, "it waited although the refusal was immediate"


def test_a_server_that_never_answers_is_given_up_after_the_settings_time(face: MakeFacade) -> None:
    # A listening socket whose owner never accepts; its path must be short.
    with tempfile.TemporaryDirectory(prefix="fp-") as directory, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(Path(directory) / ".s.PGSQL.5432"))
        silent.listen(5)
        began = time.monotonic()
        refused = refusal_to_open(
            face, Fencepost(f"postgresql:///shop?host={directory}", settings=Settings(connect_seconds=1))
        )

    assert isinstance(refused, ServerUnavailable)
    assert time.monotonic() - began < 20, "connect_seconds was not passed on"


def test_an_address_that_cannot_be_read_is_refused_without_its_password(face: MakeFacade) -> None:
    refused = refusal_to_open(face, Fencepost("postgresql://me:secret@host:not-a-port/shop?nonsense=1"))

    assert isinstance(refused, SettingsError)
    assert "DATABASE_URL" in str(refused)
    assert "secret" not in f"{refused!r} {refused.__cause__!r}"


async def test_the_environment_says_which_database(database: Database) -> None:
    async with Fencepost.from_env({"DATABASE_URL": database.url}) as fp:
        held = await fp.run(lease.acquire("door", fp.owner, 60))

    assert held.owner == fp.owner
