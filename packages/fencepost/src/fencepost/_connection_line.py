"""Tasks that take over one another's connections."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from psycopg.pq import TransactionStatus

from fencepost.kernel.call import Call

IDLE = TransactionStatus.IDLE


class ConnectionSource(Protocol):
    """Where connections come from when no task hands one on."""

    async def borrow(self) -> Any:
        """A connection that nothing else uses."""

    async def give_back(self, connection: Any) -> None:
        """End what is open on the connection, and take it back."""

    def may_hand_on(self, connection: Any) -> bool:
        """Whether `borrow` would give the connection as it is."""
        ...


@dataclass(frozen=True, slots=True)
class Begun:
    """The transaction of a task was begun, and its first call made, by the task before it."""

    seconds: float
    error: Exception | None
    """What the call raised, if it was refused or failed."""


@dataclass(slots=True, eq=False)
class Place:
    """The use of a connection by one task. `ConnectionLine.leave` ends it."""

    connection: Any
    source: ConnectionSource
    begun: Begun | None = None
    is_handed_on: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Successor:
    """A task that waits. `first` is the call with which its transaction begins."""

    first: Call[Any] | None
    turn: asyncio.Future[Place | None]


class ConnectionLine:
    """At most `most` connections of a pool at a time, for tasks that outnumber them by far.

    A connection goes from a task that has ended to the next that waits, and not through the pool, whose wait
    costs more and ends with an error. The statement that commits the one's transaction may begin the other's:
    a round trip for both. Nothing is kept: when no task waits, the connection goes back.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[Successor] = deque()

    async def take(self, source: ConnectionSource, first: Call[Any] | None = None) -> Place:
        """A connection of the task before this one, or one that is borrowed now."""
        place = await self._turn(source, first)
        if place is not None:
            return place
        try:
            return Place(await source.borrow(), source)
        except BaseException:
            self._let_borrow()
            raise

    def successor(self, place: Place) -> Successor | None:
        """Remove the next task from the line, if its transaction may be begun where this one commits. It is
        handed on to, or put back."""
        return self._next() if place.source.may_hand_on(place.connection) else None

    def put_back(self, successor: Successor) -> None:
        """Its transaction was not begun: it is the next again."""
        self._waiting.appendleft(successor)

    def hand_on(self, place: Place, successor: Successor, begun: Begun) -> None:
        """The connection is the successor's, whose transaction is begun; unless it no longer waits."""
        if not successor.turn.done():
            place.is_handed_on = True
            successor.turn.set_result(Place(place.connection, place.source, begun))

    async def leave(self, place: Place) -> None:
        """End the task's use of its connection, whatever is open on it."""
        if place.is_handed_on:
            return
        is_idle = place.connection.info.transaction_status == IDLE
        if is_idle and place.source.may_hand_on(place.connection):
            successor = self._next()
            if successor is not None:
                successor.turn.set_result(Place(place.connection, place.source))
                return
            self._free += 1
        else:
            self._let_borrow()
        await place.source.give_back(place.connection)

    def _next(self) -> Successor | None:
        while self._waiting:
            successor = self._waiting.popleft()
            if not successor.turn.done():
                return successor
        return None

    def _let_borrow(self) -> None:
        successor = self._next()
        if successor is None:
            self._free += 1
        else:
            successor.turn.set_result(None)

    async def _turn(self, source: ConnectionSource, first: Call[Any] | None) -> Place | None:
        if self._free > 0:
            self._free -= 1
            return None
        turn: asyncio.Future[Place | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(Successor(first, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            # It may have become our turn at the same moment.
            if turn.done() and not turn.cancelled():
                place = turn.result()
                if place is None:
                    self._let_borrow()
                else:
                    await self.leave(place)
            raise
