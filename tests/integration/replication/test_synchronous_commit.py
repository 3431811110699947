"""A commit that its standby has not confirmed is there, and a failover loses it. We expose none."""

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from fencepost import Fencepost, IndeterminateCommit
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Clock
from tests.integration.replication.replicas import Replicas

ACQUIRE = "select token from fencepost.lease_acquire('printer', 'a/boot-1', '1 minute')"
TAKE_OVER = "select token from fencepost.lease_acquire('printer', 'b/boot-1', '1 minute')"
NEVER_WAITS = """
    create or replace function fencepost._awaits_standby(p_pid integer) returns boolean
    language sql as 'select false'"""
TABLE = "create table page (name text primary key); grant all on page to fencepost_app"


@pytest.fixture
def admin(pair: Replicas) -> Iterator[psycopg.Connection[Any]]:
    with closing(pair.database.connect_admin()) as connection:
        connection.execute(TABLE)
        pair.require_standby(True)
        yield connection


def wait_until(admin: psycopg.Connection[Any], pair: Replicas, waiting: int) -> None:
    Deadline(30, f"{waiting} commits wait for the standby").wait(
        lambda: len(pair.waits_for_standby(admin)) == waiting
    )


@contextmanager
def expired_holder_that_waits(pair: Replicas, admin: psycopg.Connection[Any]) -> Generator[list[int]]:
    """A holder whose lease has expired has sent its COMMIT, and a taker waits for it. Yields its pid."""
    clock = Clock(pair.database.admin_url).install()
    errors: list[BaseException] = []

    def end(connection: psycopg.Connection[Any], statement: str) -> None:
        try:
            connection.execute(statement.encode())
        except psycopg.OperationalError as error:
            errors.append(error)

    with closing(pair.database.connect()) as holder, closing(pair.database.connect()) as taker:
        pid = holder.info.backend_pid
        holder.execute(ACQUIRE)
        holder.execute("begin")
        holder.execute("select fencepost.lease_fence('printer', 1)")
        holder.execute("insert into page values ('invoice')")
        clock.advance(120)
        pair.standby.kill()
        commit = threading.Thread(target=end, args=(holder, "commit"))
        commit.start()
        wait_until(admin, pair, 1)
        take = threading.Thread(target=end, args=(taker, TAKE_OVER))
        take.start()
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and pid = %s"
        Deadline(30, "the taker waits").wait(
            lambda: admin.execute(waiting, (taker.info.backend_pid,)).fetchone() == (1,)
        )
        with closing(pair.database.connect()) as evictor:
            # What it records about an eviction would wait too.
            evictor.execute("set synchronous_commit = local")
            blockers = evictor.execute(
                "select * from fencepost.lease_evict('printer', %s, '0')", (taker.info.backend_pid,)
            ).fetchall()
            assert blockers == [(pid,)]
        yield [pid]
        if pair.primary.running:
            commit.join()
            take.join()
    commit.join()
    take.join()


def test_eviction_spares_a_commit_that_waits_for_its_standby(
    pair: Replicas, admin: psycopg.Connection[Any]
) -> None:
    with expired_holder_that_waits(pair, admin) as [holder]:
        assert pair.waits_for_standby(admin) == [holder]
        assert admin.execute("select * from page").fetchall() == []
        pair.standby.start()
    assert admin.execute("select * from page").fetchall() == [("invoice",)]


@pytest.mark.full
def test_an_evicted_commit_would_be_seen_and_then_lost(
    pair: Replicas, admin: psycopg.Connection[Any]
) -> None:
    """The planted bug: eviction as if there were no standbys."""
    admin.execute("set role fencepost_owner")
    pair.require_standby(False)
    admin.execute(NEVER_WAITS)
    admin.execute("reset role")
    pair.require_standby(True)
    with expired_holder_that_waits(pair, admin):
        Deadline(30, "it is visible").wait(
            lambda: admin.execute("select * from page").fetchall() == [("invoice",)]
        )
        pair.primary.kill()
        pair.standby.start()
    with closing(pair.promote().connect_admin()) as connection:
        assert connection.execute("select * from page").fetchall() == []


@pytest.mark.parametrize(
    "ending", ["pg_cancel_backend", pytest.param("pg_terminate_backend", marks=pytest.mark.full)]
)
async def test_a_commit_that_the_server_stops_waiting_for_is_indeterminate(
    pair: Replicas, admin: psycopg.Connection[Any], ending: str
) -> None:
    async with Fencepost(pair.database.url) as fp:
        written, alone = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            # Its connection is there, and was checked, before the standby goes: only the commit waits for it.
            async with fp.transaction() as tx:
                await tx.execute("insert into page values ('invoice')")
                written.set()
                await alone.wait()

        writing = asyncio.create_task(write())
        await written.wait()
        pair.standby.kill()
        alone.set()
        await asyncio.to_thread(wait_until, admin, pair, 1)
        pids = pair.waits_for_standby(admin)
        admin.execute(b"select " + ending.encode() + b"(%s)", (pids[0],))
        with pytest.raises(IndeterminateCommit):
            await writing


@pytest.mark.full
async def test_a_call_that_the_server_stops_waiting_for_is_indeterminate(
    pair: Replicas, admin: psycopg.Connection[Any]
) -> None:
    async with Fencepost(pair.database.url) as fp:
        pair.standby.kill()
        calling = asyncio.create_task(fp.leases.acquire("printer", ttl=timedelta(minutes=1)))
        await asyncio.to_thread(wait_until, admin, pair, 1)
        pids = pair.waits_for_standby(admin)
        admin.execute("select pg_cancel_backend(%s)", (pids[0],))
        with pytest.raises(IndeterminateCommit):
            await calling


@pytest.mark.full
async def test_a_cancelled_task_leaves_the_server_waiting(
    pair: Replicas, admin: psycopg.Connection[Any]
) -> None:
    async with Fencepost(pair.database.url) as fp:
        written, alone = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            # Its connection is there, and was checked, before the standby goes: only the commit waits for it.
            async with fp.transaction() as tx:
                await tx.execute("insert into page values ('invoice')")
                written.set()
                await alone.wait()

        writing = asyncio.create_task(write())
        await written.wait()
        pair.standby.kill()
        alone.set()
        await asyncio.to_thread(wait_until, admin, pair, 1)
        writing.cancel()
        await asyncio.to_thread(pair.standby.start)
        with pytest.raises(asyncio.CancelledError):
            await writing
    assert admin.execute("select * from page").fetchall() == [("invoice",)]
    assert "canceling wait" not in pair.primary.log.read_text()
