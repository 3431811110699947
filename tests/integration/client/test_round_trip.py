"""What travels with BEGIN and with COMMIT: by the name of what the server has prepared, or as text."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, LiteralString, cast
from unittest import mock

import psycopg
import pytest

from fencepost import Call, Fencepost, NotOwner
from fencepost._round_trip import Sent, Statement
from fencepost.embedded import Database
from fencepost.kernel import lease
from fencepost.kernel.call import nothing
from fencepost.pool import AsyncPooledConnection, _RoundTrips  # pyright: ignore[reportPrivateUsage]
from fencepost.settings import Settings
from fencepost.transaction import COMMIT
from tests.integration.client.conftest import words

PREPARED = "select name from pg_prepared_statements where name like 'fencepost%' order by name"


@pytest.fixture
async def fp(database: Database, admin: psycopg.Connection) -> AsyncIterator[Fencepost]:
    async with Fencepost(database.url, settings=Settings(pool_min=1, pool_max=1)) as opened:
        yield opened


@pytest.fixture
async def held(fp: Fencepost) -> lease.Lease:
    return await fp.run(lease.acquire("door", "me", 600))


async def write(fp: Fencepost, fence: Call[None], word: str) -> AsyncPooledConnection:
    async with fp.transaction(first=fence, last=lambda: fence) as tx:
        await tx.execute("insert into public.note values (%s)", (word,))
        return cast("AsyncPooledConnection", tx.connection)


async def write_more(fp: Fencepost, fence: Call[None], query: LiteralString) -> None:
    async with fp.transaction(first=fence) as tx:
        await tx.execute(query)


async def write_and_end(fp: Fencepost, first: Call[None], last: Call[None]) -> None:
    async with fp.transaction(first=first, last=lambda: last) as tx:
        await tx.execute("insert into public.note values ('never')")


async def names(connection: AsyncPooledConnection) -> Sequence[str]:
    return [name for (name,) in await (await connection.execute(PREPARED)).fetchall()]


async def test_begin_commit_and_the_call_are_prepared_once(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    fence = lease.fence("door", held.token)
    connection = await write(fp, fence, "one")
    kept = await names(connection)
    await write(fp, fence, "two")

    assert len(kept) == 3
    assert await names(connection) == kept
    assert connection.known_statements == {name.encode() for name in kept}
    assert words(admin) == ["one", "two"]


async def test_nothing_is_prepared_where_that_is_switched_off(
    database: Database, admin: psycopg.Connection, held: lease.Lease
) -> None:
    settings = Settings(pool_min=1, pool_max=1, prepared_statements=False)
    async with Fencepost(database.url, settings=settings) as fp:
        connection = await write(fp, lease.fence("door", held.token), "one")
        assert await names(connection) == []
    assert words(admin) == ["one"]


@pytest.mark.parametrize("resource", ["dör", "a'b\\c", "x" * 200])
async def test_a_text_arrives_as_it_is(fp: Fencepost, admin: psycopg.Connection, resource: str) -> None:
    token = (await fp.run(lease.acquire(resource, "me", 600))).token
    await write(fp, lease.fence(resource, token), resource)
    assert words(admin) == [resource]


async def test_a_refused_call_leaves_nothing_written_and_the_connection_usable(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    stale, fence = lease.fence("door", held.token + 1), lease.fence("door", held.token)
    for _ in range(3):
        with pytest.raises(NotOwner):
            await write(fp, stale, "never")
        with pytest.raises(NotOwner):
            await write_and_end(fp, fence, stale)
    await write(fp, fence, "one")
    assert words(admin) == ["one"]


async def test_a_commit_that_travels_before_the_last_call_keeps_what_is_refused(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    """The planted bug: the last call stands behind the commit, so its refusal comes too late."""
    sending = AsyncPooledConnection.sending

    def too_early(connection: AsyncPooledConnection, statements: Sequence[Statement]) -> Sent:
        return sending(connection, sorted(statements, key=lambda one: one != COMMIT))

    with (
        mock.patch.object(AsyncPooledConnection, "sending", too_early),
        pytest.raises(NotOwner),
    ):
        await write_and_end(fp, lease.fence("door", held.token), lease.fence("door", held.token + 1))
    assert words(admin) == ["never"], "what was refused is committed: the test above sees it"


async def test_what_psycopg_removes_is_prepared_again(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    """After a rollback psycopg removes every prepared statement, ours too."""
    fence = lease.fence("door", held.token)
    connection = await write(fp, fence, "one")
    await connection.execute("select 1", prepare=True)
    with pytest.raises(psycopg.errors.DivisionByZero):
        await write_more(fp, fence, "select 1 / 0")
    await connection.execute("select 1")

    assert await names(connection) == []
    await write(fp, fence, "two")
    assert words(admin) == ["one", "two"]


async def test_a_client_that_does_not_hear_what_psycopg_removes_fails_at_the_next_fence(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    """The planted bug: the names are kept when psycopg removes all that is prepared."""
    fence = lease.fence("door", held.token)
    connection = await write(fp, fence, "one")
    await connection.execute("select 1", prepare=True)
    without = psycopg.AsyncConnection._deallocate  # pyright: ignore[reportPrivateUsage]
    with mock.patch.object(_RoundTrips, "_deallocate", without):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await write_more(fp, fence, "select 1 / 0")
        await connection.execute("select 1")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        await write(fp, fence, "never")


async def test_what_something_else_removes_is_prepared_by_the_next_but_one(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    fence = lease.fence("door", held.token)
    connection = await write(fp, fence, "one")
    await connection.execute("do $$ begin execute 'deallocate all'; end $$")
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        await write(fp, fence, "never")
    await write(fp, fence, "two")

    assert words(admin) == ["one", "two"]


async def test_an_argument_that_only_the_driver_can_write_travels_as_text(
    fp: Fencepost, admin: psycopg.Connection
) -> None:
    asked: Call[None] = Call("select %s::double precision", (0.5,), nothing)
    connection = await write(fp, asked, "one")
    assert await names(connection) == []
    assert words(admin) == ["one"]


def test_a_client_without_an_event_loop_sends_by_name_too(
    database: Database, admin: psycopg.Connection
) -> None:
    with Fencepost(database.url, settings=Settings(pool_min=1, pool_max=1)).sync() as fp:
        fence = lease.fence("door", fp.run(lease.acquire("door", "me", 600)).token)
        for word in ("one", "two"):
            with fp.transaction(first=fence, last=lambda: fence) as tx:
                tx.execute("insert into public.note values (%s)", (word,))
                connection = cast("Any", tx.connection)
        assert len(connection.known_statements) == 3
    assert words(admin) == ["one", "two"]
