"""`fencepost verify` finds what a damaged or badly restored database has."""

import asyncio
from contextlib import closing
from typing import LiteralString

import pytest

from fencepost import Fencepost, Job
from fencepost.cli._app import run
from fencepost.embedded import Database
from fencepost.kernel._recover import recover
from fencepost.kernel._verify import verify
from tests.reused_databases import release

DISABLED: LiteralString = "set session_replication_role = replica"
"""Without triggers and foreign keys: as damage comes."""


def broken(database: Database) -> dict[str, int]:
    with closing(database.connect_admin()) as admin:
        return {check.what: check.broken for check in verify(admin) if not check.is_met}


async def fill(database: Database) -> None:
    async with Fencepost(database.url) as fp:

        @fp.job("mail")
        async def mail(_job: Job, number: int) -> int:
            return number

        async with fp.transaction() as tx:
            for number in range(3):
                await mail.submit(tx, number=number)
            await fp.outbox.put(tx, "letters", {"n": 1})
        await fp.leases.acquire("printer", ttl=60)
        await fp.testing.drain()


async def test_a_database_that_was_used_and_recovered_is_whole(database: Database) -> None:
    await fill(database)
    assert broken(database) == {}
    recover(database.admin_url, "anna")
    assert broken(database) == {}


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (
            "delete from fencepost.job_finished where job_id = (select min(job_id) from fencepost.job)",
            "jobs in no state, or in two",
        ),
        (
            "delete from fencepost.job where job_id = (select min(job_id) from fencepost.job_finished)",
            "states of jobs that do not exist",
        ),
        ("update fencepost.token_floor set floor = 10^9", "leases held with a token of a lost time"),
        (
            "update pg_index set indisvalid = false where indexrelid = 'fencepost.lease_pkey'::regclass",
            "indexes that are not valid",
        ),
        (
            "select setval(pg_get_serial_sequence('fencepost.job', 'job_id'), 1)",
            "ids that would be issued again",
        ),
    ],
)
async def test_damage_is_found(database: Database, damage: LiteralString, found: str) -> None:
    await fill(database)
    with closing(database.connect_admin()) as admin:
        admin.execute(DISABLED)
        admin.execute("set allow_system_table_mods = on")
        admin.execute(damage)
    assert broken(database) == {found: 1}


async def test_a_table_whose_pages_are_damaged_is_found(database: Database) -> None:
    await fill(database)
    release(database)
    # Of a copy nothing is in memory yet: what is read comes from its files.
    copy = Database(database.server, f"{database.name}_d")
    copy.create(template=database.name)
    with closing(database.connect_admin()) as admin:
        [(path,)] = admin.execute(
            "select current_setting('data_directory') || '/base/' || d.oid || '/' ||"
            " pg_relation_filenode('fencepost.job_finished') from pg_database d where d.datname = %s",
            (copy.name,),
        ).fetchall()
    damage(path)
    assert broken(copy) == {"tables that cannot be read": 1}
    copy.drop()


def damage(path: str) -> None:
    """Overwrite the middle of each page: checksums do not fit any more."""
    with open(path, "r+b") as file:  # noqa: PTH123 - A file of the server.
        file.seek(100)
        file.write(b"\xff" * 200)


async def test_the_command_says_so_and_exits_with_1(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(database)
    monkeypatch.setenv("MIGRATION_DATABASE_URL", database.admin_url)
    assert await asyncio.to_thread(run, ["verify"]) == 0
    assert "The database is whole." in capsys.readouterr().out
    with closing(database.connect_admin()) as admin:
        admin.execute("update fencepost.token_floor set floor = 10^9")
    assert await asyncio.to_thread(run, ["verify"]) == 1
    assert "leases held with a token of a lost time: 1, such as printer" in capsys.readouterr().out
