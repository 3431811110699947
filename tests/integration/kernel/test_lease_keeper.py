"""Leases are renewed on time, and a lost one is told; a holder that stands still keeps no other one out."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.kernel import eviction
from fencepost.kernel import lease as kernel_lease
from fencepost.kernel.drivers import run
from fencepost.kernel.eviction import EvictionDelay
from fencepost.kernel.lease import Lease
from fencepost.lease_keeper import BeatThread, LeaseKeeper
from fencepost.testing import Proxy


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


def keeper_on(database: Database, **how: Any) -> LeaseKeeper:
    usual: dict[str, Any] = {
        "name": "flows",
        "ttl_seconds": 60,
        "beat_seconds": 60,
        "on_lost": Owner().on_lost,
    }
    return LeaseKeeper(database.url, "a/boot-1", **(usual | how))


@asynccontextmanager
async def leasing(database: Database) -> AsyncGenerator[LeaseKeeper]:
    leasing = keeper_on(database)
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

        monkeypatch.setattr("fencepost.lease_keeper.REST_SECONDS", 0.0)
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


class Owner:
    """Remembers what its keeper told it, and when."""

    def __init__(self) -> None:
        self.renewed: list[Lease] = []
        self.lost: list[tuple[str, float]] = []
        self.heard = threading.Event()

    def on_lost(self, lease: Lease) -> None:
        self.lost.append((lease.resource, time.monotonic()))
        self.heard.set()

    @property
    def callbacks(self) -> dict[str, Any]:
        return {"on_lost": self.on_lost, "on_renewed": self.renewed.append}


async def test_a_renewal_moves_the_local_deadline_and_a_refusal_ends_it(database: Database) -> None:
    owner = Owner()
    keeper = keeper_on(database, ttl_seconds=30, **owner.callbacks)
    asked_at = time.monotonic()
    taken = [await keeper.acquire(resource) for resource in ("kept", "taken")]
    kept, gone = [keeper.keep(lease, asked_at) for lease in taken if lease is not None]
    assert asked_at < kept.valid_until <= asked_at + 30

    # Another owner has one of them by now.
    with database.connect() as other:
        run(other, kernel_lease.release(gone.lease))
        run(other, kernel_lease.acquire("taken", "b/boot-1", 30))
        other.commit()
    before = kept.valid_until
    await asyncio.to_thread(keeper.renew)

    assert kept.valid_until > before
    assert kept.is_valid
    assert owner.renewed == [kept.lease]
    assert [resource for resource, _ in owner.lost] == ["taken"]
    assert not gone.is_valid
    await asyncio.to_thread(keeper.renew)
    assert [resource for resource, _ in owner.lost] == ["taken"], "a loss is told once"
    await keeper.close()


async def test_a_lease_that_cannot_be_renewed_is_lost_at_its_local_deadline(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner()
    keeper = keeper_on(database, ttl_seconds=0.5, beat_seconds=0.02, **owner.callbacks)
    lease = await keeper.acquire("r")
    assert lease is not None
    kept = keeper.keep(lease, time.monotonic())
    deadline = kept.valid_until

    def refuse(*where: Any, **how: Any) -> Any:
        raise psycopg.OperationalError("the server does not answer")

    monkeypatch.setattr(psycopg, "connect", refuse)
    keeper.start()
    assert await asyncio.to_thread(owner.heard.wait, 60)
    await keeper.close()

    [(resource, at)] = owner.lost
    assert resource == "r"
    assert at >= deadline, "not while the lease may still be valid"
    assert not kept.is_valid


async def test_a_renewal_that_is_not_answered_is_repeated_on_a_new_connection_in_time(
    database: Database,
) -> None:
    owner = Owner()
    with Proxy.for_postgres(database.url) as proxy:
        keeper = LeaseKeeper(
            proxy.url, "a/boot-1", name="flows", ttl_seconds=9, beat_seconds=3, **owner.callbacks
        )
        lease = await keeper.acquire("r")
        assert lease is not None
        await asyncio.to_thread(keeper.renew)
        proxy.lose_reply(half_open=True)
        async with asyncio.timeout(60):
            await asyncio.to_thread(keeper.renew)

        assert owner.renewed == [lease, lease]
        assert owner.lost == []
        await keeper.close()


async def test_a_forgotten_lease_is_renewed_no_more(database: Database) -> None:
    owner = Owner()
    keeper = keeper_on(database, **owner.callbacks)
    lease = await keeper.acquire("r")
    assert lease is not None
    keeper.forget(keeper.keep(lease, time.monotonic()))

    await asyncio.to_thread(keeper.renew)

    assert owner.renewed == []
    assert owner.lost == []
    await keeper.close()


async def test_an_error_in_a_beat_does_not_end_the_thread() -> None:
    beats: list[int] = []
    twice = threading.Event()

    def beat() -> None:
        beats.append(1)
        if len(beats) == 2:
            twice.set()
        raise ValueError("a bug")

    thread = BeatThread("postgresql://", "fencepost-test", beat, step_seconds=0.001)
    thread.start()
    assert await asyncio.to_thread(twice.wait, 60)
    thread.close()
