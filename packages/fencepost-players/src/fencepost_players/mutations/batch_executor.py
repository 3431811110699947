"""Executes concurrent attempts together: one statement and one commit for all that wait.

A batch takes every attempt that waits, and no attempt is delayed to fill a batch: while a batch slot is free,
a single attempt is executed alone. Under load batches form by themselves, as in a group commit: callers that
are answered together send their next requests together.

Attempts of one scope, which is one hot row, get a batch of their own, one at a time: a second batch would
only wait for the first one's lock. This batch may wait briefly for a row that another node holds, because it
contains no other scope.

A batch of several scopes waits for no row. An attempt that cannot be executed (its row is held, its plan
does not fit) is rolled back alone inside the batch and returned to be executed alone, where it may wait and
gets its reason. So one held row delays one request, never the others in the batch; and a refusal comes from
the same function as without batches.

Crash windows: a batch commits as a whole or not at all, and each attempt's idempotency key with it. If the
answer is lost, each attempt finds out by its own claim whether it committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from fencepost.errors import IndeterminateCommit
from fencepost.kernel.call import Call, CallRunner
from fencepost_players.mutations.planning import Planned
from fencepost_players.mutations.store import Executed, RequestContext

P = TypeVar("P")
T = TypeVar("T")
# Concurrent batches: while one waits for its commit, others work. Measured: two are too few for two cores,
# eight no better.
CROSSINGS = 4


@dataclass(frozen=True, slots=True)
class Pending(Generic[P]):
    """One attempt to execute one plan."""

    ticket: RequestContext
    planned: Planned[P]
    version: int | None
    keep: bool


_Waiting: TypeAlias = tuple[Pending[P], "asyncio.Future[Executed | None]"]


@runtime_checkable
class CarriesMany(Protocol):
    """A store with a batch form of its executing function."""

    def execute_many(
        self, all_pending: Sequence[Pending[Any]], *, waits: bool = False
    ) -> Call[list[Executed | None]]:
        """One function for all of them, which waits for no row; None for an attempt that must run alone.

        With `waits` all of them are of one scope, and the function may wait for its row briefly.
        """
        ...


class BatchExecutor(Generic[P]):
    """The batches of one node."""

    def __init__(
        self, database: CallRunner, ledger: CarriesMany, *, places: int, crossings: int = CROSSINGS
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._places = places
        self._free = crossings
        self._is_called = False
        self._shore: dict[str, deque[_Waiting[P]]] = {}
        """By scope, in the order of arrival. A scope that is in a batch waits here until that batch ends."""
        self._crossing: set[str] = set()
        self._under_way: set[asyncio.Task[None]] = set()

    async def carry(self, pending: Pending[P]) -> Executed | None:
        """The result, after its commit; None if it must be executed alone. Raises IndeterminateCommit."""
        arrived: asyncio.Future[Executed | None] = asyncio.get_running_loop().create_future()
        self._shore.setdefault(pending.ticket.scope, deque()).append((pending, arrived))
        self._call()
        return await arrived

    def _call(self) -> None:
        """Start a batch in the next turn of the event loop: what arrives in this turn joins it."""
        if self._free and self._shore and not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._leave)

    def _leave(self) -> None:
        self._is_called = False
        while self._free and (aboard := self._board()):
            self._free -= 1
            scopes = {pending.ticket.scope for pending, _ in aboard}
            self._crossing |= scopes
            # A task of its own: a caller that is cancelled does not cancel the batch.
            crossing = asyncio.create_task(
                self._cross(aboard, waits=len(scopes) == 1 and len(aboard) > 1), name="fencepost-ferry"
            )
            self._under_way.add(crossing)
            crossing.add_done_callback(partial(self._landed, scopes))

    def _board(self) -> list[_Waiting[P]]:
        """All waiting attempts of one scope, or one each of several scopes: whichever came first."""
        aboard: list[_Waiting[P]] = []
        for scope in [scope for scope in self._shore if scope not in self._crossing]:
            line = self._shore[scope]
            if len(line) > 1 and aboard:
                continue
            count = min(len(line), self._places)
            aboard += [line.popleft() for _ in range(count)]
            # What is left goes to the end of the queue: a hot scope does not delay the others.
            del self._shore[scope]
            if line:
                self._shore[scope] = line
            if count > 1 or len(aboard) == self._places:
                break
        return aboard

    def _landed(self, scopes: set[str], crossing: asyncio.Task[None]) -> None:
        self._under_way.discard(crossing)
        self._crossing -= scopes
        self._free += 1
        self._call()

    async def _cross(self, aboard: Sequence[_Waiting[P]], *, waits: bool) -> None:
        try:
            call = self._ledger.execute_many([pending for pending, _ in aboard], waits=waits)
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
            # Nothing was written. Each is executed alone, and the faulty one gets its error there.
            answers = [None] * len(aboard)
        for (_, arrived), answer in zip(aboard, answers, strict=True):
            if not arrived.done():
                arrived.set_result(answer)
