"""The rights that a migration needs, on a server of its own: roles belong to the whole server."""

import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from fencepost.embedded import Database, PostgresServer
from fencepost.errors import MigrationFailed, ServerUnavailable
from fencepost.kernel.migrate import kernel, migrate, schema_version
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.catalog import describe
from tests.integration.kernel.test_migrate import SECONDS_MAX, STEPS, live, start
from tests.tmp_dirs import server_directory

ROLES = ("fencepost_owner", "fencepost_app", "fencepost_read")


@pytest.fixture
def virgin() -> Iterator[PostgresServer]:
    """A server that has never seen us: no role of ours is there."""
    directory = server_directory()
    with PostgresServer(directory, settings={"fsync": "off"}, ephemeral=True) as server:
        yield server


@pytest.fixture
def superuser(virgin: PostgresServer) -> Iterator[Caller]:
    with closing(Caller(virgin.url())) as caller:
        yield caller


@pytest.fixture
def owned(virgin: PostgresServer, superuser: Caller) -> Callable[[Any], str]:
    """The URL of a database and of the login that owns it, made with these options."""

    def create(options: Any) -> str:
        superuser.execute("create role migrator login " + options)
        superuser.execute("create database shop owner migrator")
        return virgin.url("shop", "migrator")

    return create


def test_an_owner_that_may_create_roles_migrates(
    virgin: PostgresServer, superuser: Caller, owned: Callable[[Any], str]
) -> None:
    url = owned("createrole")

    assert migrate(url).version == kernel().version
    assert migrate(url).applied == ()

    superuser.execute("create role service login in role fencepost_app")
    service_url = virgin.url("shop", "service")
    assert schema_version(service_url) == kernel().version
    with closing(Caller(service_url)) as service:
        live(service)


def test_the_schema_is_the_same_the_caller_that_migrates(
    virgin: PostgresServer, owned: Callable[[Any], str]
) -> None:
    migrate(owned("createrole"))
    other = Database(virgin, "other")
    other.create()
    migrate(other.admin_url)

    with closing(Caller(virgin.url("shop"))) as left, closing(Caller(other.admin_url)) as right:
        assert describe(left) == describe(right)


def test_a_login_without_rights_is_told_what_it_lacks(
    virgin: PostgresServer, superuser: Caller, owned: Callable[[Any], str]
) -> None:
    url = owned("")

    with pytest.raises(
        MigrationFailed, match='The login "migrator" may not migrate the database "shop"'
    ) as caught:
        migrate(url)

    assert "superuser" in str(caught.value)
    assert "CREATEROLE" in str(caught.value)
    for role in ROLES:
        assert f"create role {role} nologin;" in str(caught.value)
    assert schema_version(virgin.url("shop")) is None


def test_a_login_for_which_an_administrator_prepared_the_way_migrates(
    virgin: PostgresServer, superuser: Caller
) -> None:
    superuser.execute("create role migrator login")
    superuser.execute("create database shop")
    url = virgin.url("shop", "migrator")
    with pytest.raises(MigrationFailed) as caught:
        migrate(url)
    advice: Any = str(caught.value).partition("run this once: ")[2]

    for statement in advice.rstrip(";").split("; "):
        superuser.execute(statement)

    assert migrate(url).version == kernel().version


def test_a_login_without_a_group_is_told_which_it_needs(virgin: PostgresServer, superuser: Caller) -> None:
    superuser.execute("create database shop")
    migrate(virgin.url("shop"))
    superuser.execute("create role stranger login")

    with pytest.raises(ServerUnavailable, match="fencepost_app"):
        schema_version(virgin.url("shop", "stranger"))


def test_two_databases_of_a_new_server_are_migrated_at_once(virgin: PostgresServer) -> None:
    databases = [Database(virgin, f"m_{uuid.uuid4().hex}") for _ in range(3)]
    for database in databases:
        database.create()

    programs: list[subprocess.Popen[str]] = [start(database.admin_url) for database in databases]
    applied = [int(program.communicate(timeout=SECONDS_MAX)[0]) for program in programs]

    assert applied == [STEPS] * 3
    descriptions: list[object] = []
    for database in databases:
        with closing(Caller(database.admin_url)) as admin:
            descriptions.append(describe(admin))
    assert descriptions[0] == descriptions[1] == descriptions[2]
