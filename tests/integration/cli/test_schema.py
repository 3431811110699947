"""migrate, and what the other commands say about a schema that is not there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from psycopg import sql

from fencepost.cli import _schema as schema
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database, PostgresServer
from fencepost.kernel import migrate as migrating
from fencepost.kernel.migrate import components, kernel
from tests.integration.cli.conftest import Fencepost


@pytest.fixture
def bare(postgres: PostgresServer) -> Iterator[Database]:
    """A database without our schema."""
    database = Database(postgres, f"bare_{uuid.uuid4().hex}")
    database.create()
    yield database
    database.drop()


def test_migrate_makes_the_schema_once(
    fencepost: Fencepost, bare: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATION_DATABASE_URL", bare.admin_url)
    before = fencepost("migrate", "--check", "--json")
    assert before.code == ExitCode.SCHEMA
    assert (before.json["fits"], before.json["found"]) == (False, None)
    done = fencepost("migrate", "--json")
    assert done.code == ExitCode.OK
    assert (done.json["applied"], done.json["version"]) == (before.json["pending"], kernel().version)
    after = fencepost("migrate", "--check")
    assert (after.code, after.out) == (
        ExitCode.OK,
        f"The schema has version {kernel().version}, as this code needs.\n",
    )
    assert fencepost("migrate").out.startswith("Nothing to apply")


def test_what_is_there_is_not_made_again_and_what_has_changed_is(
    bare: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> object:
        """When each function was last made: by which transaction."""
        with bare.connect_admin() as connection:
            return connection.execute(
                "select oid, xmin::text from pg_proc"
                " where pronamespace = 'fencepost'::regnamespace order by 1"
            ).fetchall()

    assert schema.bring_up_unless_it_fits(bare.admin_url) is not None
    before = made()

    assert schema.bring_up_unless_it_fits(bare.admin_url) is None
    assert made() == before

    first, *others = components()
    changed = replace(first, grants=first.grants + "-- changed")
    for module in (schema, migrating):
        monkeypatch.setattr(module, "components", lambda: (changed, *others))
    found = schema.compare(bare.admin_url)
    assert (found.renew, found.is_complete, found.fits) == (("kernel",), True, False)
    assert schema.bring_up_unless_it_fits(bare.admin_url) is not None
    assert made() != before
    assert schema.bring_up_unless_it_fits(bare.admin_url) is None


@pytest.mark.parametrize("arguments", [("status",), ("explain", "7"), ("migrate", "--check")])
def test_a_missing_schema_is_named_with_its_remedy(
    fencepost: Fencepost, bare: Database, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DATABASE_URL", bare.admin_url)
    answer = fencepost(*arguments)
    assert answer.code == ExitCode.SCHEMA
    assert "Run `fencepost migrate`." in answer.err


def test_a_role_that_may_not_migrate_is_told_so(fencepost: Fencepost, database: Database) -> None:
    answer = fencepost("migrate")
    assert answer.code == ExitCode.PROBLEM
    assert "Traceback" not in answer.err


def test_a_role_without_rights_is_told_which_to_grant(
    fencepost: Fencepost, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = f"stranger_{uuid.uuid4().hex}"
    with database.connect_admin() as connection:
        connection.execute(sql.SQL("create role {} login").format(sql.Identifier(stranger)))
        monkeypatch.setenv("DATABASE_URL", database.server.url(database.name, stranger))
        answer = fencepost("status")
        findings = {
            f["name"]: f for f in fencepost("doctor", "--json").json["findings"] if f["area"] == "PostgreSQL"
        }
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(stranger)))
    assert answer.code == ExitCode.PROBLEM
    assert "Grant it fencepost_read (to look) or fencepost_app (to work)." in answer.err
    assert findings["schema"]["detail"] == f"exists, but {stranger} may not use it"
