"""Migrations go forward only, all or nothing, and lead to one schema whatever the way."""

import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import fencepost.kernel
from fencepost.embedded import Database, PostgresServer
from fencepost.errors import MigrationFailed, SchemaTooNew, SchemaTooOld, ServerUnavailable
from fencepost.kernel.migrate import (
    Component,
    SchemaStep,
    check_version,
    components,
    kernel,
    migrate,
    schema_version,
)
from tests.integration.kernel import job_calls
from tests.integration.kernel.bare_databases import bare_databases, schema_of
from tests.integration.kernel.caller import Caller

KERNEL = Path(fencepost.kernel.__file__).parent
STEPS = sum(len(component.steps) for component in components())
"""Of everything that has a schema, the kernel first."""
PROGRAM = "import sys; from fencepost.kernel.migrate import migrate; print(len(migrate(sys.argv[1]).applied))"
SECONDS_MAX = 60


@pytest.fixture
def empty(postgres: PostgresServer, template_database: Database) -> Iterator[Callable[[], Database]]:
    """Databases without a schema, on a server that has the roles."""
    with bare_databases(postgres) as create:
        yield create


@pytest.fixture
def newer(tmp_path: Path) -> Component:
    """The kernel of the next version: a column more, a table more, a function more."""
    folder = tmp_path / "newer"
    for part in ("schema", "functions"):
        shutil.copytree(KERNEL / part, folder / part)
    shutil.copy(KERNEL / "grants.sql", folder)
    version = kernel().version + 1
    (folder / "schema" / f"{version:04}_more.sql").write_text(
        """alter table fencepost.job_running add column mood text default 'calm';
           alter table fencepost.lease add column region text;
           alter table fencepost.outbox add column priority int not null default 0;
           create table fencepost.more (id bigint primary key);"""
    )
    (folder / "functions" / "more.sql").write_text(
        """create or replace function fencepost.more() returns text language sql stable security definer
           set search_path = pg_catalog, fencepost, pg_temp as $$ select 'more' $$;"""
    )
    return Component.read("kernel", folder)


def live(caller: Caller) -> None:
    """A little of everything: what a service of this version does all day."""
    token = caller.row("select * from fencepost.lease_acquire('shard:1', 'a/boot-1', '1 minute')")["token"]
    caller.execute("select fencepost.lease_fence('shard:1', %s)", token)
    caller.execute("select fencepost.claim('player:7', %s)", uuid.uuid4().hex)
    message_id = caller.value("select fencepost.outbox_put('orders', null, '{}')")
    take = caller.row("select * from fencepost.outbox_take('orders', 'relay-1', '1 minute', 1)")["take"]
    caller.execute("select fencepost.outbox_settle(%s, %s, 'relay-1', 'sent')", message_id, take)
    job_id = job_calls.running(caller)
    with caller.transaction():
        caller.execute("select fencepost.job_fence(%s, 1, %s)", job_id, job_calls.OWNER)
        caller.execute("select fencepost.job_finish(%s, 1, %s)", job_id, job_calls.OWNER)
    assert job_calls.state(caller, job_id) == "finished"


def test_a_second_migration_finds_nothing_to_do(empty: Callable[[], Database]) -> None:
    database = empty()
    first = migrate(database.admin_url)
    before = schema_of(database)

    second = migrate(database.admin_url)

    assert (len(first.applied), first.version) == (STEPS, kernel().version)
    assert (second.applied, second.version) == ((), kernel().version)
    assert schema_of(database) == before
    assert schema_version(database.admin_url) == kernel().version


@pytest.mark.parametrize("reached", range(1, kernel().version))
def test_an_upgraded_schema_is_a_fresh_one(
    database: Database, empty: Callable[[], Database], reached: int
) -> None:
    upgraded = empty()
    migrate(upgraded.admin_url, replace(kernel(), steps=kernel().steps[:reached], functions=()))

    migrated = migrate(upgraded.admin_url)

    assert len(migrated.applied) == STEPS - reached
    assert schema_of(upgraded) == schema_of(database)


def test_the_next_version_is_the_same_upgraded_and_fresh(
    empty: Callable[[], Database], newer: Component
) -> None:
    fresh, upgraded = empty(), empty()
    migrate(upgraded.admin_url, kernel())
    migrate(fresh.admin_url, newer)

    assert migrate(upgraded.admin_url, newer).applied == (f"{newer.version:04}_more",)

    assert schema_of(upgraded) == schema_of(fresh)


def test_this_version_works_on_a_database_of_the_next(database: Database, newer: Component) -> None:
    with closing(Caller(database.url)) as service:
        live(service)

        migrate(database.admin_url, newer)

        check_version(schema_version(database.url))
        live(service)
    with closing(Caller(database.url)) as service:
        live(service)
        assert service.value("select fencepost.more()") == "more"


def test_the_next_version_does_not_start_on_a_database_of_this_one(
    database: Database, newer: Component
) -> None:
    with pytest.raises(SchemaTooOld, match="Run `fencepost migrate` before you start it"):
        check_version(schema_version(database.url), newer)


def test_an_older_program_does_not_migrate_a_newer_database(database: Database, newer: Component) -> None:
    migrate(database.admin_url, newer)
    before = schema_of(database)

    with pytest.raises(SchemaTooNew, match=f"has version {newer.version} of kernel"):
        migrate(database.admin_url)

    assert schema_of(database) == before


BROKEN_STEP = SchemaStep(kernel().version + 1, "broken", "create table fencepost.half (); select 1 / 0;")
BROKEN = {
    "schema": replace(kernel(), steps=(*kernel().steps, BROKEN_STEP)),
    "function": replace(
        kernel(), functions=(*kernel().functions, ("zz.sql", "create function fencepost.half("))
    ),
    "grants": replace(kernel(), grants=kernel().grants + "; grant fencepost_app to nobody_knows"),
}


@pytest.mark.parametrize("part", BROKEN)
def test_a_migration_that_fails_half_way_leaves_the_database_as_it_was(
    database: Database, empty: Callable[[], Database], part: str
) -> None:
    untouched, before = empty(), schema_of(database)

    for target in (database, untouched):
        with pytest.raises(MigrationFailed, match="was rolled back"):
            migrate(target.admin_url, BROKEN[part])

    assert schema_of(database) == before
    assert schema_of(untouched) == {}
    assert schema_version(untouched.admin_url) is None


def test_the_error_of_a_failed_migration_names_its_file(database: Database) -> None:
    with pytest.raises(MigrationFailed) as caught:
        migrate(database.admin_url, BROKEN["schema"])

    assert getattr(caught.value.__cause__, "__notes__", []) == [f"in {kernel().version + 1:04}_broken.sql"]


def test_a_changed_file_that_was_applied_is_refused(database: Database) -> None:
    first = replace(kernel().steps[0], text=kernel().steps[0].text + "-- harmless\n")
    changed = replace(kernel(), steps=(first, *kernel().steps[1:]))
    before = schema_of(database)

    with pytest.raises(MigrationFailed, match=r"kernel version 1 \(foundation\) differs"):
        migrate(database.admin_url, changed)

    assert schema_of(database) == before


def start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, url], stdout=subprocess.PIPE, text=True)


def test_processes_that_migrate_at_once_do_not_harm_each_other(
    database: Database, empty: Callable[[], Database]
) -> None:
    target = empty()

    programs = [start(target.admin_url) for _ in range(3)]
    applied = [int(program.communicate(timeout=SECONDS_MAX)[0]) for program in programs]

    assert [program.returncode for program in programs] == [0, 0, 0]
    assert sorted(applied) == [0, 0, STEPS]
    assert schema_of(target) == schema_of(database)


def test_a_server_that_cannot_be_reached_is_said_so(tmp_path: Path) -> None:
    url = f"postgresql:///postgres?host={tmp_path}"

    with pytest.raises(ServerUnavailable, match="PostgreSQL cannot be reached for the migration"):
        migrate(url)
    with pytest.raises(ServerUnavailable, match="PostgreSQL cannot be reached"):
        schema_version(url)
