"""Executing together what comes together: one statement and one commit for all who wait.

A crossing takes whoever stands on the shore, and nobody waits for company: while a crossing is free, one
passenger leaves alone. Under load they gather by themselves, as commits do in a group commit: those who
were answered together come back together.

A crossing waits for no row. Whoever cannot be carried (his row is held, his version has moved, his plan does
not fit) is undone alone inside it and sent back to make his way alone, where he may wait and is told why. So
one held row holds up one request, never those beside it; and what is refused is refused by the same function
as ever.

Crash windows: a crossing commits as a whole or not at all, and each passenger's marker with it. If the answer
is lost, each asks by his own claim which of the two it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from fencepost.errors import IndeterminateCommit
from fencepost.kernel.call import Call
from fencepost.mutations.ledger import Executed, Ticket
from fencepost.mutations.planning import Planned

P = TypeVar("P")
T = TypeVar("T")
# While one waits for its commit, others work. Measured: two are too few for two cores, eight no better.
CROSSINGS = 4


class Database(Protocol):
    async def run(self, call: Call[T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Passenger(Generic[P]):
    """One try of one plan."""

    ticket: Ticket
    planned: Planned[P]
    version: int | None
    keep: bool


@runtime_checkable
class CarriesMany(Protocol):
    """A ledger with a plural form of its executing function."""

    def execute_many(self, passengers: Sequence[Passenger[Any]]) -> Call[list[Executed | None]]:
        """One function for all of them, which waits for no row; None for whoever must go alone."""
        ...


class Ferry(Generic[P]):
    """The crossings of one node."""

    def __init__(
        self, database: Database, ledger: CarriesMany, *, places: int, crossings: int = CROSSINGS
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._places = places
        self._free = crossings
        self._is_called = False
        self._shore: deque[tuple[Passenger[P], asyncio.Future[Executed | None]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()

    async def carry(self, passenger: Passenger[P]) -> Executed | None:
        """What came of it, after its commit; None for one who must go alone. Raises IndeterminateCommit."""
        arrived: asyncio.Future[Executed | None] = asyncio.get_running_loop().create_future()
        self._shore.append((passenger, arrived))
        self._call()
        return await arrived

    def _call(self) -> None:
        """Leave in the next turn of the event loop: whoever arrives in this one goes along."""
        if self._free and self._shore and not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        self._is_called = False
        while self._free and self._shore:
            self._free -= 1
            aboard = [self._shore.popleft() for _ in range(min(self._places, len(self._shore)))]
            # A task of its own: a passenger who gives up does not turn the ferry round.
            crossing = asyncio.create_task(self._cross(aboard), name="fencepost-ferry")
            self._under_way.add(crossing)
            crossing.add_done_callback(self._landed)

    def _landed(self, crossing: asyncio.Task[None]) -> None:
        self._under_way.discard(crossing)
        self._free += 1
        self._call()

    async def _cross(self, aboard: Sequence[tuple[Passenger[P], asyncio.Future[Executed | None]]]) -> None:
        try:
            call = self._ledger.execute_many([passenger for passenger, _ in aboard])
            answers = await self._database.run(call)
        except IndeterminateCommit as error:
            for _, arrived in aboard:
                if not arrived.done():
                    arrived.set_exception(error)
            return
        except asyncio.CancelledError:
            for _, arrived in aboard:
                arrived.cancel()
            raise
        except Exception:
            # Nothing was written. Whoever is at fault finds out alone.
            answers = [None] * len(aboard)
        for (_, arrived), answer in zip(aboard, answers, strict=True):
            if not arrived.done():
                arrived.set_result(answer)
