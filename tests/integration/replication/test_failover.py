"""A cluster under Patroni with synchronous replication: a failover loses nothing that a client was told."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from fencepost import Fencepost, FencepostError
from fencepost.embedded._database import SERVICE
from fencepost.kernel.migrate import migrate
from fencepost.settings import Settings
from fencepost_torture.cluster import Cluster, Node, missing_parts
from tests.tmp_dirs import server_directory

WRITES = 10
SETTINGS = Settings(pool_min=0, pool_max=4, pool_wait_seconds=5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    lacking = missing_parts()
    if lacking is not None:
        pytest.skip(lacking)
    directory = server_directory()
    try:
        with Cluster(directory) as cluster:
            migrate(cluster.admin_url())
            cluster.create_logins()
            with closing(psycopg.connect(cluster.admin_url(), autocommit=True)) as admin:
                admin.execute("create table page (number integer primary key)")
                admin.execute("grant all on page to fencepost_app")
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def kill_machine(cluster: Cluster, primary: Node) -> None:
    primary.kill()
    cluster.expire_leader()


def freeze_machine(cluster: Cluster, primary: Node) -> None:
    primary.freeze()
    cluster.expire_leader()


def crash_postgres(_cluster: Cluster, primary: Node) -> None:
    primary.kill_postgres()


def switch_over(cluster: Cluster, _primary: Node) -> None:
    cluster.switch_over()


@pytest.mark.parametrize(
    "lose",
    [
        kill_machine,
        pytest.param(freeze_machine, marks=pytest.mark.full),
        pytest.param(crash_postgres, marks=pytest.mark.full),
        pytest.param(switch_over, marks=pytest.mark.full),
    ],
)
async def test_a_client_goes_on_after_a_failover_and_nothing_is_lost(
    cluster: Cluster, lose: Callable[[Cluster, Node], object]
) -> None:
    with closing(psycopg.connect(cluster.admin_url(), autocommit=True)) as admin:
        admin.execute("truncate page")
    async with Fencepost(cluster.url(user=SERVICE), settings=SETTINGS) as fp:
        held = await fp.leases.acquire("printer", ttl=timedelta(hours=1))

        async def write(number: int) -> None:
            async with fp.transaction() as tx:
                claim = await tx.claim("page", f"{held.token}-{number}", response=number)
                if claim.claimed:
                    await tx.execute("insert into page values (%s)", (number,))

        for number in range(WRITES):
            await write(number)
        primary = cluster.primary()
        await asyncio.to_thread(lose, cluster, primary)
        await asyncio.to_thread(cluster.wait_for_primary, primary)
        async with asyncio.timeout(60):
            for number in range(WRITES + 1):
                await _repeated(write, number)
        # The lease is the same: no token was invalidated, because no commit was lost.
        assert (await fp.leases.renew(held, ttl=timedelta(hours=1))).token == held.token
    with closing(psycopg.connect(cluster.admin_url(), autocommit=True)) as admin:
        assert admin.execute("select count(*) from page").fetchone() == (WRITES + 1,)
        raised = "select count(*) from fencepost.event where event = 'epoch_raised'"
        assert admin.execute(raised).fetchone() == (0,)
    primary.thaw()
    primary.start()
    await asyncio.to_thread(cluster.wait_until_whole)


async def _repeated(write: Callable[[int], Awaitable[None]], number: int) -> None:
    """Until it is certain: the key tells whether a lost answer was a success."""
    while True:
        try:
            await write(number)
        except (psycopg.OperationalError, FencepostError):
            continue
        return
