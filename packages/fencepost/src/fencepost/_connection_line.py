"""Tasks that take over one another's connections."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

Borrow = Callable[[], Awaitable[Any]]
GiveBack = Callable[[Any], Awaitable[None]]


class ConnectionLine:
    """At most `most` connections of a pool at a time, for tasks that outnumber them by far.

    A connection goes from a task that has ended to the next that waits, and not through the pool, whose wait
    costs more and ends with an error. Nothing is kept: when no task waits, it goes back.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[asyncio.Future[Any]] = deque()

    async def take(self, borrow: Borrow, give_back: GiveBack) -> Any:
        """The connection of a task that has ended, or one that is borrowed now. `leave` ends the turn."""
        connection = await self._turn(give_back)
        if connection is not None:
            return connection
        try:
            return await borrow()
        except BaseException:
            self.leave(None)
            raise

    def leave(self, connection: Any) -> bool:
        """End a turn; returns whether the next task has taken the connection. None is given to a task that is
        to borrow another."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return connection is not None
        self._free += 1
        return False

    async def _turn(self, give_back: GiveBack) -> Any:
        if self._free > 0:
            self._free -= 1
            return None
        turn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            # It may have become our turn at the same moment.
            if turn.done() and not turn.cancelled():
                connection = turn.result()
                if not self.leave(connection) and connection is not None:
                    await give_back(connection)
            raise
