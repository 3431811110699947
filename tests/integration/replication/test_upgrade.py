"""The page about upgrades, as it is printed, moves a database to a server of another version."""

import os
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost import Fencepost, Job, Refusal
from fencepost.embedded import Database
from tests.integration.client.page import PageRun
from tests.integration.replication.two_versions import PAGE, TwoVersions, two_versions

HOUR = timedelta(hours=1)
ALL_COMMANDS = 4


async def work(fp: Fencepost, count: int) -> None:
    @fp.job("mail")
    async def mail(_job: Job, number: int) -> int:
        return number

    async with fp.transaction() as tx:
        for number in range(count):
            await mail.submit(tx, number=number)
    await fp.testing.drain()


def page_run(both: TwoVersions, directory: Path) -> PageRun:
    path = f"{Path(sys.executable).parent}:{both.psql.parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    return PageRun(directory, environment, both.new.connect_admin, instead=both.instead, owners=both.owners)


async def test_a_database_moves_with_its_rows_and_its_tokens_are_worth_nothing_there(tmp_path: Path) -> None:
    with two_versions() as both:
        async with Fencepost(both.old.url) as fp:
            await work(fp, 20)
            held = await fp.leases.acquire("printer", ttl=HOUR)

        assert page_run(both, tmp_path).run(PAGE) == ALL_COMMANDS

        both.new.create_logins()
        async with Fencepost(both.new.url) as fp:
            await work(fp, 5)
            with pytest.raises(Refusal):
                await fp.leases.renew(held, ttl=HOUR)
            assert (await fp.leases.acquire("printer", ttl=HOUR)).token > held.token
        assert _counted(both.new) == 25
        assert "epoch_raised" in _lineage(both.new)


@pytest.mark.full
async def test_sequences_that_were_not_carried_over_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text().replace("$ psql", "$ true psql"))
    with two_versions() as both:
        async with Fencepost(both.old.url) as fp:
            await work(fp, 20)

        with pytest.raises(AssertionError, match="ids that would be issued again"):
            page_run(both, tmp_path).run(page)


def _counted(database: Database) -> int:
    with closing(database.connect_admin()) as admin:
        rows: list[tuple[Any, ...]] = admin.execute("select count(*) from fencepost.job_finished").fetchall()
        return int(rows[0][0])


def _lineage(database: Database) -> list[str]:
    with closing(database.connect_admin()) as admin:
        rows = admin.execute("select event from fencepost.explain('kernel:lineage')").fetchall()
        return [event for (event,) in rows]
