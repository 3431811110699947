"""The pool: what is said when it is empty, and what a borrowed connection looks like when it comes back."""

import asyncio
import select
import time
from contextlib import suppress
from typing import LiteralString

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from fencepost import Call, Fencepost, IndeterminateCommit, ServerUnavailable
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel import idempotency, job, lease, outbox
from fencepost.kernel.call import column, scalar
from fencepost.pool import AsyncPooledConnection
from fencepost.settings import Settings
from tests.integration.client.conftest import MakeFacade, words
from tests.integration.client.facade import Facade

# Everything that a session keeps past its transaction, and that a pooler would hand to the next client.
# Prepared statements are not here: poolers in transaction mode keep them apart since PgBouncer 1.21.
_LEFT_BEHIND: LiteralString = """
    select 'setting ' || name || ' = ' || setting from pg_settings where source = 'session'
    union all select 'lock ' || locktype from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'
    union all select 'channel ' || c from pg_listening_channels() c
    union all select 'cursor ' || name from pg_cursors where is_holdable
    union all select 'relation ' || relname from pg_class where relnamespace = pg_my_temp_schema()
"""


def left_behind(facade: Facade) -> list[str]:
    return facade.run(Call(_LEFT_BEHIND, (), column))


def test_an_empty_pool_says_how_many_are_open_and_what_to_do(database: Database, face: MakeFacade) -> None:
    facade = face(Fencepost(database.url, settings=Settings(pool_min=1, pool_max=1, pool_wait_seconds=0.1)))
    facade.open()

    with facade.transaction(), pytest.raises(ServerUnavailable) as caught:
        facade.run(lease.acquire("door", "me", 60))

    assert "within 0.1 s: 1 of at most 1 are open, 0 of them idle" in str(caught.value)
    assert "DATABASE_POOL_MAX" in str(caught.value)
    assert isinstance(caught.value, PoolTimeout), "who catches the pool's own error goes on doing so"
    facade.close()


def test_the_metrics_show_the_pool(facade: Facade) -> None:
    page = facade.metrics.page().body.decode()

    assert 'fencepost_pool_connections{pool="service' in page


def test_nothing_stays_on_the_connection_after_a_transaction(facade: Facade) -> None:
    """Fences set a timeout, claims and puts take advisory locks: all of it must end with the transaction."""
    held = facade.run(lease.acquire("door", "me", 60))
    before = left_behind(facade)

    with facade.transaction() as tx:
        tx.claim("player:7", "grant-9")
        tx.run(lease.fence("door", held.token))
        tx.run(outbox.put("mail", {}, key="7"))
        submitted = tx.run(job.submit("work", "kind", {}, unique_key="u"))
    running = facade.run(job.claim(submitted.job_id, "me"))
    with facade.transaction() as tx:
        tx.run(job.fence(running.job_id, running.attempt, "me"))
        tx.run(outbox.hold("mail", 10))
    facade.run(idempotency.clean_ring())

    assert left_behind(facade) == before


def test_the_look_at_what_is_left_behind_sees_it(facade: Facade) -> None:
    """The test above would pass with a blind look."""
    with facade.transaction() as tx:
        tx.execute("set statement_timeout = 12345")
        tx.execute("select pg_advisory_lock(1)")
        tx.execute("listen x")

    assert {"setting statement_timeout = 12345", "lock advisory", "channel x"} <= set(left_behind(facade))


def is_sleeping(admin: psycopg.Connection) -> bool:
    query = "select 1 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
    return admin.execute(query).fetchone() is not None


async def test_a_cancelled_task_rolls_back_and_gives_its_connection_back(
    database: Database, admin: psycopg.Connection, small_pool: Settings
) -> None:
    async with Fencepost(database.url, settings=small_pool) as fp:

        async def work() -> None:
            async with fp.transaction() as tx:
                await tx.execute("insert into public.note values ('half')")
                await tx.execute("select pg_sleep(100)")

        task = asyncio.create_task(work())
        await asyncio.to_thread(
            Deadline(60, "the task sleeps in the server").wait, lambda: is_sleeping(admin)
        )
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert await fp.run(Call("select 'usable'", (), scalar)) == "usable"
        assert words(admin) == []
        assert not is_sleeping(admin)


async def test_a_cancelled_task_between_two_statements_rolls_back(
    database: Database, admin: psycopg.Connection, small_pool: Settings
) -> None:
    async with Fencepost(database.url, settings=small_pool) as fp:
        written = asyncio.Event()

        async def work() -> None:
            async with fp.transaction() as tx:
                await tx.claim("player:7", "grant-9")
                written.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async with fp.transaction() as tx:
            assert (await tx.claim("player:7", "grant-9")).claimed


def is_waited_for(fp: Fencepost) -> bool:
    return fp.metrics.registry.get_sample_value("fencepost_pool_waiting", {"pool": "service"}) == 1


async def test_a_task_that_is_cancelled_while_it_waits_for_a_connection_takes_none_along(
    database: Database, small_pool: Settings
) -> None:
    async with Fencepost(database.url, settings=small_pool) as fp:
        async with fp.transaction():
            waiting = asyncio.create_task(fp.run(lease.acquire("door", "me", 60)))
            await asyncio.to_thread(Deadline(60, "the task waits").wait, lambda: is_waited_for(fp))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        began = time.monotonic()
        assert (await fp.run(lease.acquire("door", "me", 60))).token == 1
        assert time.monotonic() - began < small_pool.pool_wait_seconds


async def test_many_tasks_share_a_small_pool(database: Database) -> None:
    async with Fencepost(database.url, settings=Settings(pool_min=1, pool_max=3)) as fp:
        leases = await asyncio.gather(*(fp.run(lease.acquire(f"door {n}", "me", 60)) for n in range(50)))

    assert len({held.resource for held in leases}) == 50


async def test_a_cancel_that_comes_together_with_a_connection_is_not_lost(
    database: Database, small_pool: Settings
) -> None:
    """Python 3.11 forgets it in `wait_for`, by which the pool waits: the call went on for all of `within`."""
    async with Fencepost(database.url, settings=small_pool) as fp:
        submitted = await fp.run(job.submit("q", "kind", {}))
        others = asyncio.all_tasks()
        async with fp.transaction():
            waiting = asyncio.create_task(fp.jobs.result(submitted, within=600))
            await asyncio.to_thread(Deadline(60, "the task waits").wait, lambda: is_waited_for(fp))
            # Until Python 3.12 wait_for has a task of its own for what it waits for: its end is the moment.
            answer = asyncio.all_tasks() - others - {waiting}
            for task in answer:
                task.add_done_callback(lambda _: waiting.cancel())
            if not answer:
                waiting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(waiting), 60)
        assert await fp.run(job.next_due("q")) is not None, "the connection went back"


async def test_a_socket_whose_number_is_used_again_is_waited_for(
    database: Database, admin: psycopg.Connection, small_pool: Settings
) -> None:
    """The loop knows sockets by number: what it has of a closed one must not stand for another."""
    async with Fencepost(database.url, settings=small_pool) as fp:
        numbers: list[int] = []
        for _ in range(3):
            async with fp.transaction() as tx:
                await tx.execute("select 1")
                numbers.append(tx.connection.fileno())
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'fencepost' and datname = current_database()"
            )
            async with asyncio.timeout(60):
                while True:
                    try:
                        assert await fp.run(Call("select 'usable'", (), scalar)) == "usable"
                        break
                    except (psycopg.OperationalError, ServerUnavailable):
                        await asyncio.sleep(0)

        assert len(set(numbers)) < len(numbers), "the test would not see it otherwise"


async def test_a_connection_that_is_closed_is_forgotten_by_the_loop(database: Database) -> None:
    connection = await AsyncPooledConnection.connect(database.url, autocommit=True)
    await connection.execute("select 1")
    fileno = connection.fileno()
    await connection.close()

    assert not asyncio.get_running_loop().remove_reader(fileno)


async def test_what_the_server_says_unasked_does_not_keep_the_loop_busy(
    database: Database, admin: psycopg.Connection, small_pool: Settings
) -> None:
    """A socket stays registered with the loop after an answer: the loop must not ask about it for ever."""
    async with Fencepost(database.url, settings=small_pool) as fp:
        is_registered = True
        with suppress(IndeterminateCommit):
            async with fp.transaction() as tx:
                rows = await (await tx.execute("select pg_backend_pid()")).fetchall()
                fileno, readable = tx.connection.fileno(), select.poll()
                admin.execute("select pg_terminate_backend(%s)", rows[0])
                readable.register(fileno, select.POLLIN)
                assert readable.poll(60_000)
                for _ in range(3):
                    await asyncio.sleep(0)
                is_registered = asyncio.get_running_loop().remove_reader(fileno)

        assert not is_registered


async def test_notifications_are_waited_for_as_long_as_was_said(
    database: Database, small_pool: Settings
) -> None:
    async with Fencepost(database.url, settings=small_pool) as fp, fp.transaction() as tx:
        async with asyncio.timeout(60):
            assert [notice async for notice in tx.connection.notifies(timeout=0.1)] == []
        await tx.execute("select 1")
