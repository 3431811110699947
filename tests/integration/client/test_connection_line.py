"""Transactions in a line: the statement that commits the one begins the next, and neither is the other's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from fencepost import Call, Fencepost, IndeterminateCommit, NotFound, NotOwner, Transaction
from fencepost._connection_line import ConnectionLine
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel import lease
from fencepost.kernel.call import nothing
from fencepost.settings import Settings
from fencepost.transaction import BEGIN, COMMIT
from tests.integration.client.conftest import words

Last = Callable[[], Call[Any]]
OPEN_TRANSACTIONS = (
    "select count(*) from pg_stat_activity"
    " where state like 'idle in transaction%' and datname = current_database()"
)


@dataclass
class Task:
    """One transaction of the line, held inside its block until it may go on."""

    name: str
    task: asyncio.Task[None] | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    pid: int = 0
    tx: Transaction | None = None


class Line:
    """Starts transactions that share one connection."""

    def __init__(self, fp: Fencepost) -> None:
        self.fp = fp
        self.line = ConnectionLine(1)

    async def start(self, name: str, first: Call[Any], last: Last, *, waits: bool = True) -> Task:
        """A transaction that writes its name. It has begun, or waits for the one before."""
        one = Task(name)

        async def run() -> None:
            async with self.fp.transaction_in(self.line, first=first, last=last) as tx:
                one.tx, one.pid = tx, tx.connection.info.backend_pid
                await tx.execute("insert into public.note values (%s)", (name,))
                one.began.set()
                await one.may_end.wait()

        one.task = asyncio.create_task(run())
        if waits:
            for _ in range(5):
                await asyncio.sleep(0)
        else:
            await asyncio.wait_for(one.began.wait(), 60)
        return one


async def ended(one: Task) -> None:
    assert one.task is not None
    one.may_end.set()
    await asyncio.wait_for(asyncio.shield(one.task), 60)


@pytest.fixture(params=["by name", "as text"])
async def fp(
    request: pytest.FixtureRequest, database: Database, admin: psycopg.Connection
) -> AsyncIterator[Fencepost]:
    settings = Settings(
        pool_min=2,
        pool_max=2,
        pool_wait_seconds=30,
        prepared_statements=request.param == "by name",
    )
    async with Fencepost(database.url, settings=settings) as opened:
        yield opened


@pytest.fixture
async def held(fp: Fencepost) -> lease.Lease:
    return await fp.run(lease.acquire("door", "me", 600))


async def test_the_next_transaction_begins_where_the_last_commits(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    line, fence = Line(fp), lease.fence("door", held.token)
    first = await line.start("first", fence, lambda: fence, waits=False)
    second = await line.start("second", fence, lambda: fence)
    assert not second.began.is_set()
    await ended(first)
    await asyncio.wait_for(second.began.wait(), 60)

    assert words(admin) == ["first"], "committed, while the second is open"
    assert second.pid == first.pid
    await ended(second)
    assert words(admin) == ["first", "second"]


async def test_both_travel_in_one_round_trip(
    fp: Fencepost, held: lease.Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[str]] = []
    fence = lease.fence("door", held.token)
    line = Line(fp)
    first = await line.start("first", fence, lambda: fence, waits=False)
    second = await line.start("second", fence, lambda: fence)
    assert first.tx is not None
    send = first.tx.connection.send_together  # type: ignore[attr-defined] # pyright: ignore

    async def sending(statements: Sequence[str | Call[Any]]) -> Any:
        sent.append([one if isinstance(one, str) else one.function for one in statements])
        return await send(statements)  # pyright: ignore[reportUnknownVariableType]

    monkeypatch.setattr(first.tx.connection, "send_together", sending)
    await ended(first)
    await ended(second)

    assert sent == [["lease_fence", COMMIT, BEGIN, "lease_fence"], ["lease_fence", COMMIT]]


async def test_a_last_call_that_is_refused_is_not_the_next_ones(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    line, fence = Line(fp), lease.fence("door", held.token)
    first = await line.start("first", fence, lambda: lease.fence("nobody's", 1), waits=False)
    second = await line.start("second", fence, lambda: fence)
    with pytest.raises(NotFound):
        await ended(first)
    await ended(second)

    assert words(admin) == ["second"]


async def test_a_constraint_that_fails_at_the_commit_is_not_the_next_ones(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    admin.execute("alter table public.note add constraint once unique (word) deferrable initially deferred")
    admin.execute("insert into public.note values ('first')")
    line, fence = Line(fp), lease.fence("door", held.token)
    first = await line.start("first", fence, lambda: fence, waits=False)
    second = await line.start("second", fence, lambda: fence)
    with pytest.raises(psycopg.errors.UniqueViolation):
        await ended(first)
    await ended(second)

    assert words(admin) == ["first", "second"]


async def test_a_first_call_that_is_refused_is_not_the_last_ones(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    line, fence = Line(fp), lease.fence("door", held.token)
    first = await line.start("first", fence, lambda: fence, waits=False)
    second = await line.start("second", lease.fence("door", held.token + 1), lambda: fence)
    third = await line.start("third", fence, lambda: fence)
    await ended(first)
    with pytest.raises(NotOwner):
        await ended(second)
    await ended(third)

    assert not second.began.is_set()
    assert words(admin) == ["first", "third"]


async def test_a_connection_that_breaks_at_the_commit_is_indeterminate_for_one_alone(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    line, fence = Line(fp), lease.fence("door", held.token)
    breaking: Call[None] = Call("select pg_terminate_backend(pg_backend_pid())", (), nothing)
    first = await line.start("first", fence, lambda: breaking, waits=False)
    second = await line.start("second", fence, lambda: fence)
    with pytest.raises(IndeterminateCommit):
        await ended(first)
    await ended(second)

    assert words(admin) == ["second"]
    assert second.pid != first.pid


async def test_a_connection_that_breaks_at_the_next_ones_fence_leaves_the_commit_known(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    line, fence = Line(fp), lease.fence("door", held.token)
    breaking: Call[None] = Call("select pg_terminate_backend(pg_backend_pid())", (), nothing)
    first = await line.start("first", fence, lambda: fence, waits=False)
    second = await line.start("second", breaking, lambda: fence)
    third = await line.start("third", fence, lambda: fence)
    await ended(first)
    with pytest.raises(psycopg.OperationalError):
        await ended(second)
    await ended(third)

    assert words(admin) == ["first", "third"]


async def test_a_commit_that_no_standby_confirmed_leaves_the_next_transaction_open(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    line, fence = Line(fp), lease.fence("door", held.token)

    def unconfirmed() -> Call[None]:
        assert first.tx is not None
        first.tx._connection.unconfirmed = "the wait was cancelled"  # pyright: ignore[reportPrivateUsage]
        return fence

    first = await line.start("first", fence, unconfirmed, waits=False)
    second = await line.start("second", fence, lambda: fence)
    with pytest.raises(IndeterminateCommit):
        await ended(first)
    await ended(second)

    assert words(admin) == ["first", "second"]


def is_waiting_for_a_lock(admin: psycopg.Connection, pid: int) -> bool:
    query = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and pid = %s"
    return admin.execute(query, (pid,)).fetchone() is not None


async def test_a_task_that_is_cancelled_while_it_commits_takes_no_other_with_it(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection, database: Database
) -> None:
    """Its commit has happened, and the next transaction waits for a lock when the cancel comes."""
    other = await fp.run(lease.acquire("window", "me", 600))
    line, fence = Line(fp), lease.fence("door", held.token)
    first = await line.start("first", fence, lambda: fence, waits=False)
    second = await line.start("second", lease.fence("window", other.token), lambda: fence)
    assert first.task is not None
    with psycopg.connect(database.admin_url) as blocker:
        blocker.execute("select from fencepost.lease where resource = 'window' for update")
        first.may_end.set()
        await asyncio.to_thread(
            Deadline(60, "the next fence waits").wait, lambda: is_waiting_for_a_lock(admin, first.pid)
        )
        first.task.cancel()
        await asyncio.sleep(0)
        blocker.rollback()
    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(first.task), 60)
    await ended(second)

    assert words(admin) == ["first", "second"]


async def test_a_task_that_is_cancelled_while_its_transaction_is_begun_leaves_nothing_open(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection, database: Database
) -> None:
    other = await fp.run(lease.acquire("window", "me", 600))
    line, fence = Line(fp), lease.fence("door", held.token)
    first = await line.start("first", fence, lambda: fence, waits=False)
    second = await line.start("second", lease.fence("window", other.token), lambda: fence)
    third = await line.start("third", fence, lambda: fence)
    assert second.task is not None
    with psycopg.connect(database.admin_url) as blocker:
        blocker.execute("select from fencepost.lease where resource = 'window' for update")
        first.may_end.set()
        await asyncio.to_thread(
            Deadline(60, "the next fence waits").wait, lambda: is_waiting_for_a_lock(admin, first.pid)
        )
        second.task.cancel()
        await asyncio.sleep(0)
        blocker.rollback()
    await ended(first)
    await ended(third)

    assert words(admin) == ["first", "third"]
    assert admin.execute(OPEN_TRANSACTIONS).fetchone() == (0,)


async def test_many_take_turns_on_few_connections(
    fp: Fencepost, held: lease.Lease, admin: psycopg.Connection
) -> None:
    line, fence = ConnectionLine(2), lease.fence("door", held.token)

    async def run(number: int) -> None:
        async with fp.transaction_in(line, first=fence, last=lambda: fence) as tx:
            await tx.execute("insert into public.note values (%s)", (str(number),))

    await asyncio.wait_for(asyncio.gather(*(run(number) for number in range(100))), 120)

    assert sorted(map(int, words(admin))) == list(range(100))
