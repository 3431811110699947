"""How a test waits: for a condition by its name, with a deadline, and without a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, LiteralString, TypeVar

import psycopg

from fencepost.embedded import Database
from fencepost.embedded._deadline import PAUSES, Deadline

WAIT_SECONDS = 60
T = TypeVar("T")


async def until(condition: str, holds: Callable[[], bool]) -> None:
    """Meanwhile the loop goes on."""
    await asyncio.to_thread(Deadline(WAIT_SECONDS, condition).wait, holds)


async def found(
    condition: str,
    look: Callable[[], Awaitable[T]],
    is_it: Callable[[T], bool],
    *,
    within: float = WAIT_SECONDS,
) -> T:
    """What `look` answers as soon as it is the one; TimeoutError tells the last that was not."""
    clock, pauses = asyncio.get_running_loop().time, PAUSES.waits()
    end = clock() + within
    while not is_it(seen := await look()):
        if clock() >= end:
            raise TimeoutError(f"Timed out after {within:g} s waiting until {condition}: {seen!r}.")
        await asyncio.sleep(next(pauses))
    return seen


class Waiter:
    """The superuser on one connection, made at the first look and again after the server has gone.

    A test that waits looks many times, and to connect anew costs the server more than to answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def rows(self, query: LiteralString, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        connection = self._connected()
        try:
            return connection.execute(query, values).fetchall()
        except psycopg.OperationalError:
            if not connection.closed:
                raise
            return self._connected().execute(query, values).fetchall()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = self._database.connect_admin()
            # What is looked at may be made anew under our eyes.
            self._connection.prepare_threshold = None
        return self._connection
