"""A line of tasks: each connection is used by one task at a time, and none is lost."""

import asyncio
from collections import deque

import pytest

from fencepost._connection_line import ConnectionLine


class Pool:
    """Numbered connections, of which some may be refused."""

    def __init__(self) -> None:
        self.borrowed = 0
        self.back: list[object] = []
        self.refuses = False

    async def borrow(self) -> object:
        if self.refuses:
            raise TimeoutError
        self.borrowed += 1
        return self.borrowed

    async def give_back(self, connection: object) -> None:
        self.back.append(connection)


async def until_all_wait() -> None:
    """Every task has had its turn of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_connection_goes_from_one_task_to_the_next() -> None:
    line, pool = ConnectionLine(1), Pool()
    first = await line.take(pool.borrow, pool.give_back)
    tasks = [asyncio.create_task(line.take(pool.borrow, pool.give_back)) for _ in range(2)]
    await until_all_wait()

    assert not any(task.done() for task in tasks)
    assert line.leave(first)
    assert await tasks[0] is first
    assert line.leave(first)
    assert await tasks[1] is first
    assert not line.leave(first), "no task waits: it goes back to the pool"
    assert pool.borrowed == 1


async def test_no_more_are_borrowed_than_the_line_may_have() -> None:
    line, pool = ConnectionLine(2), Pool()
    tasks = deque(asyncio.create_task(line.take(pool.borrow, pool.give_back)) for _ in range(5))
    await until_all_wait()

    assert pool.borrowed == 2
    assert sum(task.done() for task in tasks) == 2
    while tasks:
        line.leave(await tasks.popleft())
    assert pool.borrowed == 2


async def test_a_task_that_is_given_none_borrows_another() -> None:
    line, pool = ConnectionLine(1), Pool()
    await line.take(pool.borrow, pool.give_back)
    waiting = asyncio.create_task(line.take(pool.borrow, pool.give_back))
    await until_all_wait()

    assert not line.leave(None)
    assert await waiting == 2


async def test_a_task_that_cannot_borrow_lets_the_next_try() -> None:
    line, pool = ConnectionLine(1), Pool()
    pool.refuses = True
    with pytest.raises(TimeoutError):
        await line.take(pool.borrow, pool.give_back)
    pool.refuses = False

    assert await asyncio.wait_for(line.take(pool.borrow, pool.give_back), 10) == 1


async def test_a_task_that_no_longer_waits_is_passed_over() -> None:
    line, pool = ConnectionLine(1), Pool()
    first = await line.take(pool.borrow, pool.give_back)
    gone, next_one = (asyncio.create_task(line.take(pool.borrow, pool.give_back)) for _ in range(2))
    await until_all_wait()
    gone.cancel()
    await until_all_wait()

    assert line.leave(first)
    assert await next_one is first


async def test_a_task_cancelled_in_the_moment_of_its_turn_hands_the_connection_on() -> None:
    line, pool = ConnectionLine(1), Pool()
    first = await line.take(pool.borrow, pool.give_back)
    gone, next_one = (asyncio.create_task(line.take(pool.borrow, pool.give_back)) for _ in range(2))
    await until_all_wait()
    line.leave(first)
    gone.cancel()

    assert await asyncio.wait_for(next_one, 10) is first
    assert not pool.back


async def test_a_task_cancelled_in_the_moment_of_its_turn_gives_the_connection_back() -> None:
    line, pool = ConnectionLine(1), Pool()
    first = await line.take(pool.borrow, pool.give_back)
    gone = asyncio.create_task(line.take(pool.borrow, pool.give_back))
    await until_all_wait()
    line.leave(first)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone

    assert pool.back == [first]
    assert await asyncio.wait_for(line.take(pool.borrow, pool.give_back), 10) == 2, "its turn is over, too"
