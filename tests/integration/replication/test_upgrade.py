"""The page about upgrades does what it says: the SQL that it prints moves a database to another server."""

import re
import uuid
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import pytest
from psycopg.conninfo import make_conninfo

from fencepost import Fencepost, Job, Refusal
from fencepost.embedded import Database, PostgresServer
from fencepost.embedded._deadline import Deadline
from fencepost.kernel._verify import verify
from fencepost.kernel.migrate import migrate
from tests.integration.replication.replicas import SETTINGS
from tests.tmp_dirs import server_directory

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "upgrade-postgresql.md"
HOUR = timedelta(hours=1)
IN_STEP: LiteralString = "select latest_end_lsn >= %s::pg_lsn from pg_stat_subscription"


def statements() -> list[bytes]:
    return re.findall(rb"```sql\n(.*?)```", PAGE.read_bytes(), re.DOTALL)


def new_server(**options: Any) -> PostgresServer:
    settings = {**SETTINGS, "wal_level": "logical"}
    return PostgresServer(server_directory(), settings=settings, ephemeral=True, **options)


def prepared(server: PostgresServer) -> Database:
    database = Database(server, f"shop_{uuid.uuid4().hex[:8]}")
    database.create()
    migrate(database.admin_url)
    database.create_logins()
    return database


async def work(fp: Fencepost, count: int) -> None:
    @fp.job("mail")
    async def mail(_job: Job, number: int) -> int:
        return number

    async with fp.transaction() as tx:
        for number in range(count):
            await mail.submit(tx, number=number)
    await fp.testing.drain()


async def test_a_database_moves_with_its_rows_and_its_tokens_are_worth_nothing_there(tmp_path: Path) -> None:
    truncate, publish, subscribe, waiting, carry = statements()
    # A system of its own: servers from the cache of initdb have one identifier.
    with new_server() as first, new_server(cache=tmp_path) as second:
        old, new = prepared(first), prepared(second)
        async with Fencepost(old.url) as fp:
            await work(fp, 20)
            held = await fp.leases.acquire("printer", ttl=HOUR)
        with closing(old.connect_admin()) as source, closing(new.connect_admin()) as target:
            target.execute(truncate)
            source.execute(publish)
            address = make_conninfo(old.admin_url).replace("'", "''")
            target.execute(subscribe.replace(b"host=old dbname=shop user=owner", address.encode()))
            Deadline(60, "every table is copied").wait(lambda: target.execute(waiting).fetchone() == (0,))
            [(position,)] = source.execute("select pg_current_wal_lsn()").fetchall()
            Deadline(60, "the new server is in step").wait(
                lambda: target.execute(IN_STEP, (position,)).fetchone() == (True,)
            )
            target.execute("drop subscription fencepost_move")
            source.execute("drop publication fencepost_move")
            # The step that is easily forgotten is found.
            assert [check.what for check in verify(target) if not check.is_met] == [
                "ids that would be issued again"
            ]
            for (statement,) in source.execute(carry).fetchall():
                target.execute(str(statement).encode())
            assert [check for check in verify(target) if not check.is_met] == []
        async with Fencepost(new.url) as fp:
            await work(fp, 5)
            with pytest.raises(Refusal):
                await fp.leases.renew(held, ttl=HOUR)
            assert (await fp.leases.acquire("printer", ttl=HOUR)).token > held.token
        assert _counted(new) == 25


def _counted(database: Database) -> int:
    with closing(database.connect_admin()) as admin:
        rows: list[tuple[Any, ...]] = admin.execute("select count(*) from fencepost.job_finished").fetchall()
        return int(rows[0][0])
