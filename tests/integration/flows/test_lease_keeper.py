"""Workers that stand still in the wrong moment do not keep others from what they were about to take."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.flows.lease_keeper import LeaseKeeper
from fencepost.kernel import eviction
from fencepost.kernel.eviction import EvictionDelay


class Standing(psycopg.AsyncConnection[Any]):
    """Stands still between the answer and the commit, as a frozen process does."""

    stands = asyncio.Event()

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncGenerator[Any]:
        async with super().transaction(savepoint_name, force_rollback) as block:
            yield block
            self.stands.set()
            await asyncio.Event().wait()


async def test_a_taker_that_stands_still_before_its_commit_does_not_keep_the_next_one_out(
    database: Database,
) -> None:
    patience = EvictionDelay(idle_seconds_max=0.3)

    @asynccontextmanager
    async def connect(kind: type[psycopg.AsyncConnection[Any]]) -> AsyncGenerator[Any]:
        async with await kind.connect(database.url, autocommit=True) as connection:
            yield connection

    def takeover(owner: str) -> eviction.Takeover[Any]:
        return eviction.of_lease("r", owner, 60, grace_seconds=0)

    standing = asyncio.create_task(
        eviction.take_over(lambda: connect(Standing), takeover("a/boot-1"), patience)
    )
    async with asyncio.timeout(60):
        await Standing.stands.wait()

        taken = await eviction.take_over(
            lambda: connect(psycopg.AsyncConnection), takeover("b/boot-1"), patience
        )

    assert taken.resource == "r"
    standing.cancel()
    await asyncio.gather(standing, return_exceptions=True)


@asynccontextmanager
async def leasing(database: Database) -> AsyncGenerator[LeaseKeeper]:
    leasing = LeaseKeeper(database.url, "a/boot-1", 60, 60, on_lost=lambda resource: None)
    leasing.start()
    try:
        yield leasing
    finally:
        await leasing.close()


def sessions(database: Database) -> list[int]:
    with database.connect_admin() as admin:
        rows = admin.execute(
            "select pid from pg_stat_activity where usename <> current_user and datname = current_database()"
        ).fetchall()
    return [pid for (pid,) in rows]


async def test_many_leases_are_taken_on_one_connection_which_does_not_stay(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    connect = psycopg.AsyncConnection.connect

    async def counted(*where: Any, **how: Any) -> Any:
        connection = await connect(*where, **how)
        opened.append(connection)
        return connection

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", counted)
    async with leasing(database) as ours:
        taken = [await ours.acquire(f"r{number}") for number in range(5)]
        await ours.release("r0")
        again = await ours.acquire("r1")
        [only] = opened
        assert not only.closed

        monkeypatch.setattr("fencepost.flows.lease_keeper.REST_SECONDS", 0.0)
        await ours.release_all()
        # Timers come in their order.
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.0, later.set)
        await later.wait()
        assert only.closed

    assert all(taken)
    assert again is not None


async def test_a_connection_that_broke_is_not_kept(database: Database) -> None:
    async with leasing(database) as ours:
        await ours.acquire("r1")
        [pid] = sessions(database)
        with database.connect_admin() as admin:
            admin.execute("select pg_terminate_backend(%s, 5000)", (pid,))
        with pytest.raises(psycopg.OperationalError):
            await ours.acquire("r2")

        assert await ours.acquire("r2") is not None
