"""Users that the console and the judge had of their own are accounts after the upgrade."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, LiteralString, TypeVar

import psycopg
import pytest

from fencepost.embedded import Database, PostgresServer
from fencepost.errors import MigrationFailed
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.kernel.migrate import component, components, kernel, migrate
from fencepost_judge._role import ACCOUNTS as JUDGE
from fencepost_judge._role import JudgeRole
from fencepost_server.accounts.calls import audit_entries
from fencepost_server.accounts.role import Identity
from fencepost_server.console._role import ACCOUNTS as CONSOLE
from fencepost_server.console._role import Role
from tests.integration.kernel.bare_databases import bare_databases, schema_of

T = TypeVar("T")
CONSOLE_BEFORE = replace(component("console"), steps=component("console").steps[:6], functions=())
JUDGE_BEFORE = replace(component("judge"), steps=component("judge").steps[:8], functions=())
OLD_FUNCTION: LiteralString = (
    "create function fencepost.console_users(text, integer) returns integer language sql return 1;"
    "create function fencepost.judge_users(text, integer) returns integer language sql return 1"
)
CONSOLE_ROWS: LiteralString = """
    insert into fencepost.console_user
      (name, role, password, made_at, made_by, disabled_at, issuer, subject) values
      ('ada', 'admin', 'ada at the console', '2026-01-01', 'cli', null, null, null),
      ('local', 'admin', null, '2026-01-02', 'login link', null, null, null),
      ('gone', 'operator', 'gone', '2026-01-03', 'ada', '2026-02-01', null, null),
      ('eve@x.example', 'viewer', null, '2026-01-04', 'single sign-on', null, 'https://id', 'e1'),
      ('of a link', 'viewer', null, '2026-01-05', 'login link', null, null, null);
    insert into fencepost.console_session values (sha256('s'), 'ada', now(), now(), now() + '1 day', '', '');
    insert into fencepost.console_ticket values
      (sha256('ticket'), 'local', now(), now() + '1 hour'),
      (sha256('odd'), 'of a link', now(), now() + '1 hour');
    insert into fencepost.console_token
      (digest, name, label, role, made_at, expires_at, used_at, revoked_at) values
      (sha256('fpc_revoked'), 'ada', 'old', 'admin', now(), now() + '1 day', now(), now()),
      (sha256('fpc_ada'), 'ada', 'ci', 'operator', now(), now() + '1 day', null, null);
    insert into fencepost.console_attempt (at, name, address) values (now(), 'ada', '127.0.0.1');
    insert into fencepost.console_audit (at, actor, role, action, subject, outcome, detail, address) values
      ('2026-01-06', 'ada', 'admin', 'job.cancel', '7', 'done', '{"a": 1}', '127.0.0.1'),
      ('2026-01-07', 'ada', 'admin', 'login', 'ada', 'done', '{}', '127.0.0.1')"""
JUDGE_ROWS: LiteralString = """
    insert into fencepost.judge_user (name, role, made_at, made_by, disabled_at, password) values
      ('ada', 'jury', '2026-03-01', 'cli', null, 'ada at the judge'),
      ('local', 'contestant', '2026-03-02', 'ada', null, 'local at the judge'),
      ('con', 'contestant', '2026-03-03', 'ada', null, 'con'),
      ('out', 'admin', '2026-03-04', 'ada', '2026-04-01', 'out');
    insert into fencepost.judge_session values (sha256('j'), 'con', now(), now(), now() + '1 day');
    insert into fencepost.judge_token (digest, name, label, made_at, expires_at, revoked_at) values
      (sha256('fpj_ada'), 'ada', 'laptop', now(), now() + '1 day', null),
      (sha256('fpj_con'), 'con', 'laptop', now(), now() + '1 day', null),
      (sha256('fpj_out'), 'out', 'laptop', now(), now() + '1 day', now());
    insert into fencepost.judge_allowance values ('con', 3, now());
    insert into fencepost.judge_attempt (at, name, address) values (now(), 'con', '127.0.0.1')"""


@pytest.fixture
def empty(postgres: PostgresServer, template_database: Database) -> Iterator[Callable[[], Database]]:
    """Databases without a schema, on a server that has the roles."""
    with bare_databases(postgres) as create:
        yield create


def ask(database: Database, call: Call[T]) -> T:
    with psycopg.connect(database.admin_url, autocommit=True) as connection:
        return run(connection, call)


def rows(database: Database, query: LiteralString) -> list[Any]:
    with psycopg.connect(database.admin_url) as connection:
        return connection.execute(query).fetchall()


def before(database: Database) -> Database:
    """A database of the version before the accounts, with users in both services."""
    migrate(database.admin_url, kernel(), CONSOLE_BEFORE, JUDGE_BEFORE)
    with psycopg.connect(database.admin_url) as connection:
        connection.execute("set role fencepost_owner")
        for statement in (OLD_FUNCTION, CONSOLE_ROWS, JUDGE_ROWS):
            connection.execute(statement)
    return database


def password(database: Database, accounts: Any, name: str) -> str | None:
    kept: str | None = ask(database, accounts.begin_login(name, "192.0.2.1", window_seconds=60)).password
    return kept


def all_at_once(database: Database) -> None:
    migrate(database.admin_url)


def the_judge_first(database: Database) -> None:
    migrate(database.admin_url, *components(["judge"]))
    assert rows(database, "select count(*) from fencepost.console_user") == [(5,)]
    migrate(database.admin_url)


@pytest.mark.parametrize("upgrade", [all_at_once, the_judge_first])
def test_users_keep_their_accounts_passwords_and_tokens(
    database: Database, empty: Callable[[], Database], upgrade: Callable[[Database], None]
) -> None:
    upgraded = before(empty())
    upgrade(upgraded)

    assert schema_of(upgraded) == schema_of(database)
    roles = rows(
        upgraded, "select service, name, role, disabled_at is null from fencepost.account_role order by 1, 2"
    )
    assert roles == [
        ("console", "ada", "admin", True),
        ("console", "eve@x.example", "viewer", True),
        ("console", "gone", "operator", False),
        ("console", "local", "admin", True),
        ("judge", "ada", "jury", True),
        ("judge", "con", "contestant", True),
        ("judge", "local", "contestant", True),
        ("judge", "out", "admin", False),
    ]
    assert password(upgraded, JUDGE, "con") == "con"
    assert password(upgraded, JUDGE, "out") is None
    assert password(upgraded, CONSOLE, "gone") is None
    # One account, with the console's password; the judge's would open the console.
    assert password(upgraded, CONSOLE, "ada") == password(upgraded, JUDGE, "ada") == "ada at the console"
    assert password(upgraded, CONSOLE, "local") is password(upgraded, JUDGE, "local") is None

    known = {
        secret: [ask(upgraded, CONSOLE.use_token(secret)), ask(upgraded, JUDGE.use_token(secret))]
        for secret in ("fpc_ada", "fpc_revoked", "fpj_ada", "fpj_con", "fpj_out")
    }
    assert known == {
        "fpc_ada": [Identity("ada", Role.OPERATOR), None],
        "fpc_revoked": [None, None],
        "fpj_ada": [None, Identity("ada", JudgeRole.JURY)],
        "fpj_con": [None, Identity("con", JudgeRole.CONTESTANT)],
        "fpj_out": [None, None],
    }
    assert ask(upgraded, CONSOLE.use_ticket("ticket", "here")) == Identity("local", Role.ADMIN)
    assert ask(upgraded, CONSOLE.use_ticket("odd", "here")) is None
    again = CONSOLE.sign_on("eve", Role.VIEWER, issuer="https://id", subject="e1", address="here")
    assert (ask(upgraded, again).name, ask(upgraded, again).refused) == ("eve@x.example", None)
    assert rows(upgraded, "select count(*) from fencepost.account_session") == [(0,)]
    assert rows(upgraded, "select name, tokens from fencepost.judge_allowance") == [("con", 3)]


def test_the_audit_stays_in_its_order(empty: Callable[[], Database]) -> None:
    upgraded = before(empty())
    migrate(upgraded.admin_url)
    kept = ask(upgraded, audit_entries(actor=None, before=None, limit=10))
    assert [(one.service, one.actor, one.action, one.detail) for one in kept] == [
        ("console", "ada", "login", {}),
        ("console", "ada", "job.cancel", {"a": 1}),
    ]


def test_a_failure_leaves_the_old_tables(empty: Callable[[], Database]) -> None:
    upgraded = before(empty())
    with psycopg.connect(upgraded.admin_url) as connection:
        connection.execute("create view public.reads as select name from fencepost.judge_user")
    with pytest.raises(MigrationFailed, match="was rolled back"):
        migrate(upgraded.admin_url)
    assert rows(upgraded, "select count(*) from fencepost.console_user") == [(5,)]
    assert rows(upgraded, "select name from public.reads where name = 'con'") == [("con",)]


@pytest.mark.parametrize("name", ["console", "judge"])
def test_either_service_is_migrated_without_the_other(empty: Callable[[], Database], name: str) -> None:
    alone = empty()
    applied = migrate(alone.admin_url, *components([name])).applied
    assert {title.partition("/")[0] for title in applied if "/" in title} == {"accounts", "webhooks", name}
    assert rows(alone, "select distinct service from fencepost.account_service_role") == [(name,)]


@pytest.mark.parametrize("accounts", [CONSOLE, JUDGE])
def test_the_roles_of_the_code_are_those_of_the_database(database: Database, accounts: Any) -> None:
    known = rows(database, "select service, role, rank from fencepost.account_service_role order by rank")
    assert [(role, rank) for service, role, rank in known if service == accounts.service] == [
        (role.word, role.value) for role in accounts.roles
    ]
