"""A line of tasks: each connection is used by one task at a time, and none is lost."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

from fencepost._connection_line import Begun, ConnectionLine, Place


@dataclass(eq=False)
class Connection:
    """A connection, with what is open on it."""

    status: TransactionStatus = TransactionStatus.IDLE

    @property
    def info(self) -> SimpleNamespace:
        return SimpleNamespace(transaction_status=self.status)


@dataclass
class Pool:
    """Where connections come from, some of which may be refused."""

    borrowed: int = 0
    back: list[Connection] = field(default_factory=list[Connection])
    refuses: bool = False
    looks_at_each: bool = False

    async def borrow(self) -> Connection:
        if self.refuses:
            raise TimeoutError
        self.borrowed += 1
        return Connection()

    async def give_back(self, connection: Any) -> None:
        self.back.append(connection)

    def may_hand_on(self, connection: Any) -> bool:
        return not self.looks_at_each


async def until_all_wait() -> None:
    """Every task has had its turn of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


async def waiting(line: ConnectionLine, pool: Pool, *, many: int = 1) -> list[asyncio.Task[Place]]:
    tasks = [asyncio.create_task(line.take(pool)) for _ in range(many)]
    await until_all_wait()
    return tasks


async def soon(task: asyncio.Task[Place]) -> Place:
    return await asyncio.wait_for(task, 10)


async def test_a_connection_goes_from_one_task_to_the_next() -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    tasks = deque(await waiting(line, pool, many=2))
    connection = place.connection

    assert not any(task.done() for task in tasks)
    while tasks:
        await line.leave(place)
        place = await soon(tasks.popleft())
        assert place.connection is connection
        assert not pool.back
    await line.leave(place)
    assert pool.back == [connection], "no task waits"
    assert pool.borrowed == 1


async def test_no_more_are_borrowed_than_the_line_may_have() -> None:
    line, pool = ConnectionLine(2), Pool()
    tasks = await waiting(line, pool, many=5)

    assert pool.borrowed == 2
    assert sum(task.done() for task in tasks) == 2
    for task in tasks:
        await line.leave(await soon(task))
    assert pool.borrowed == 2
    assert len(pool.back) == 2


@pytest.mark.parametrize("status", [TransactionStatus.INTRANS, TransactionStatus.UNKNOWN])
async def test_a_connection_with_something_open_is_not_handed_on(status: TransactionStatus) -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    [task] = await waiting(line, pool)
    place.connection.status = status
    await line.leave(place)

    assert (await soon(task)).connection is not place.connection
    assert pool.back == [place.connection]


async def test_a_connection_that_the_pool_looks_at_is_not_handed_on() -> None:
    line, pool = ConnectionLine(1), Pool(looks_at_each=True)
    place = await line.take(pool)
    [task] = await waiting(line, pool)

    assert line.successor(place) is None
    await line.leave(place)
    assert (await soon(task)).connection is not place.connection


async def test_a_task_that_cannot_borrow_lets_the_next_try() -> None:
    line, pool = ConnectionLine(1), Pool(refuses=True)
    with pytest.raises(TimeoutError):
        await line.take(pool)
    pool.refuses = False

    await asyncio.wait_for(line.take(pool), 10)


async def test_a_task_that_no_longer_waits_is_passed_over() -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    gone, after = await waiting(line, pool, many=2)
    gone.cancel()
    await until_all_wait()
    await line.leave(place)

    assert (await soon(after)).connection is place.connection


async def test_a_task_cancelled_in_the_moment_of_its_turn_hands_the_connection_on() -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    gone, after = await waiting(line, pool, many=2)
    await line.leave(place)
    gone.cancel()

    assert (await soon(after)).connection is place.connection
    assert not pool.back


async def test_a_task_cancelled_in_the_moment_of_its_turn_gives_the_connection_back() -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    [gone] = await waiting(line, pool)
    await line.leave(place)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone

    assert pool.back == [place.connection]
    await asyncio.wait_for(line.take(pool), 10)


async def test_a_task_cancelled_in_the_moment_it_was_told_to_borrow_tells_the_next() -> None:
    line, pool = ConnectionLine(1), Pool(looks_at_each=True)
    place = await line.take(pool)
    gone, after = await waiting(line, pool, many=2)
    await line.leave(place)
    gone.cancel()

    assert (await soon(after)).connection is not place.connection


async def test_a_successor_has_the_connection_with_its_transaction_begun() -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    [task] = await waiting(line, pool)
    successor, begun = line.successor(place), Begun(0.5, None)
    assert successor is not None
    line.hand_on(place, successor, begun)
    await line.leave(place)
    taken = await soon(task)

    assert taken.connection is place.connection
    assert taken.begun is begun
    assert not pool.back, "it is the successor's, and not the first task's to give back"
    await line.leave(taken)
    assert pool.back == [place.connection]


async def test_a_successor_that_is_put_back_is_still_the_next() -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    first, second = await waiting(line, pool, many=2)
    successor = line.successor(place)
    assert successor is not None
    line.put_back(successor)
    await line.leave(place)

    assert (await soon(first)).begun is None
    assert not second.done()
    second.cancel()


async def test_a_transaction_begun_for_a_task_that_no_longer_waits_is_given_back() -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    gone, after = await waiting(line, pool, many=2)
    successor = line.successor(place)
    assert successor is not None
    gone.cancel()
    await until_all_wait()
    place.connection.status = TransactionStatus.INTRANS
    line.hand_on(place, successor, Begun(0.5, None))
    await line.leave(place)

    assert pool.back == [place.connection]
    assert (await soon(after)).connection is not place.connection


async def test_a_task_cancelled_with_its_transaction_begun_gives_the_connection_back() -> None:
    line, pool = ConnectionLine(1), Pool()
    place = await line.take(pool)
    gone, after = await waiting(line, pool, many=2)
    successor = line.successor(place)
    assert successor is not None
    place.connection.status = TransactionStatus.INTRANS
    line.hand_on(place, successor, Begun(0.5, None))
    gone.cancel()
    await until_all_wait()

    assert pool.back == [place.connection]
    assert (await soon(after)).connection is not place.connection
