"""Through a real PgBouncer in transaction mode, where each transaction may meet another backend."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest

from fencepost import Fencepost, Job, Mismatch
from fencepost.embedded import Database, PostgresServer
from fencepost.embedded._deadline import Deadline
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import lease
from fencepost.settings import Settings
from tests.matrix.pooler import PooledDatabase, Pooler
from tests.matrix.servers import Server, pgbouncer

ROUNDS = 12
"""More than psycopg waits before it prepares a statement."""

KEEPS_PREPARED_STATEMENTS = (1, 21)


@pytest.fixture
def program() -> Server:
    found = pgbouncer()
    if found is None:
        pytest.skip("there is no PgBouncer here; Debian: pgbouncer")
    return found


@pytest.fixture
def backends() -> int:
    """Fewer than the pools have connections: no connection has a backend of its own."""
    return 2


@pytest.fixture
def pooled(
    program: Server, postgres: PostgresServer, database: Database, backends: int
) -> Iterator[PooledDatabase]:
    """The test's database, also reached through a pooler of the test's own."""
    with Pooler(program.path, postgres, backends=backends) as pooler:
        yield PooledDatabase(postgres, database.name, pooler)


def settings(database: Database, *, prepared_statements: bool) -> Settings:
    return Settings(
        pool_min=6,
        pool_max=6,
        prepared_statements=prepared_statements,
        listen_database_url=database.server.url(database.name),
    )


async def renew_often(fp: Fencepost) -> None:
    """The same statement on every connection of the pool, at the same time."""

    async def one(resource: str) -> None:
        for _ in range(ROUNDS):
            await fp.run(lease.acquire(resource, fp.owner, 60))

    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(one(f"shard:{number}"))


async def test_calls_work_on_whatever_backend_they_meet(pooled: PooledDatabase, database: Database) -> None:
    async with Fencepost(pooled.url, settings=settings(database, prepared_statements=False)) as fp:
        await renew_often(fp)


def test_calls_of_threads_work_too(pooled: PooledDatabase, database: Database) -> None:
    client = Fencepost(pooled.url, settings=settings(database, prepared_statements=False))

    with client.sync() as fp, ThreadPoolExecutor(6) as threads:
        resources = [f"shard:{number % 12}" for number in range(12 * ROUNDS)]
        calls = [lease.acquire(resource, client.owner, 60) for resource in resources]
        held = list(threads.map(fp.run, calls))

    assert len(held) == len(calls)


async def test_prepared_statements_are_what_an_older_pooler_cannot_keep(
    program: Server, pooled: PooledDatabase, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tooth: if this did not fail, the other tests would prove nothing."""
    # The pooler's cell of the matrix has it off everywhere.
    monkeypatch.setattr("fencepost.pool.PREPARE_AFTER", 5)
    version = tuple(int(part) for part in program.version.split("."))
    if version >= KEEPS_PREPARED_STATEMENTS:
        pytest.skip("this PgBouncer can keep prepared statements apart; older than 1.21: Debian 12")

    with pytest.raises(ExceptionGroup) as caught:
        async with Fencepost(pooled.url, settings=settings(database, prepared_statements=True)) as fp:
            await renew_often(fp)

    lost = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)
    assert caught.value.subgroup(lost) is not None


@pytest.mark.parametrize("backends", [1])
async def test_jobs_heartbeats_and_the_record_leave_nothing_on_a_backend(
    pooled: PooledDatabase, database: Database
) -> None:
    """All meet on the one backend, so that whatever one of them prepares there is seen."""
    fp = Fencepost(
        pooled.url,
        settings=settings(database, prepared_statements=False),
        job_settings=JobSettings(heartbeat_seconds=0.1),
    )
    beaten = asyncio.Event()

    @fp.job("mail", lease=1)
    async def send(job: Job, number: int) -> None:
        if number == 0:
            await asyncio.wait_for(beaten.wait(), 60)

    async with fp:
        async with fp.transaction() as tx:
            await send.submit_many(tx, [{"number": number} for number in range(30)])
        worker = fp.jobs.worker()
        working = asyncio.create_task(worker.run())
        with database.connect_admin() as admin:
            await until("all but one have ended", lambda: ended(admin) == 29)
            for _ in range(ROUNDS):
                last = renewed(admin)
                await until("the lease is renewed", partial(is_renewed_since, admin, last))
            beaten.set()
            await until("the last has ended", lambda: ended(admin) == 30)
            assert await refuse(fp) == ROUNDS
            await until("every refusal is written down", lambda: recorded(admin) == ROUNDS)
        worker.stop()
        await working

    with psycopg.connect(pooled.url) as connection:
        assert connection.execute("select statement from pg_prepared_statements").fetchall() == []


async def until(what: str, is_so: Callable[[], bool]) -> None:
    await asyncio.to_thread(Deadline(60, what).wait, is_so)


async def refuse(fp: Fencepost) -> int:
    refused = 0
    for number in range(ROUNDS + 1):
        try:
            async with fp.transaction() as tx:
                await tx.claim("player:7", "request-1", digest=f"body {number}")
        except Mismatch:
            refused += 1
    return refused


def ended(admin: psycopg.Connection) -> int:
    ((count,),) = admin.execute("select count(*) from fencepost.job_finished where state = 'finished'")
    return int(count)


def renewed(admin: psycopg.Connection) -> object:
    return admin.execute("select expires_at from fencepost.job_running").fetchone()


def is_renewed_since(admin: psycopg.Connection, last: object) -> bool:
    return renewed(admin) != last


def recorded(admin: psycopg.Connection) -> int:
    ((count,),) = admin.execute("select count(*) from fencepost.refusal where reason = 'mismatch'")
    return int(count)
