"""Executes concurrent attempts together: one statement and one commit for all that wait.

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

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from fencepost.coalescer import Coalescer, Waiting
from fencepost.errors import IndeterminateCommit
from fencepost.kernel.call import Call
from fencepost_players.mutations.planning import Planned
from fencepost_players.mutations.store import Executed, RequestContext

P = TypeVar("P")
T = TypeVar("T")
# Concurrent batches: while one waits for its commit, others work. Measured: two are too few for two cores,
# eight no better.
CROSSINGS = 4


class RunsBatch(Protocol):
    async def run(self, call: Call[T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Pending(Generic[P]):
    """One attempt to execute one plan."""

    ticket: RequestContext
    planned: Planned[P]
    version: int | None
    keep: bool


_Waiting: TypeAlias = Waiting[Pending[P], Executed | None]


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
        self, database: RunsBatch, ledger: CarriesMany, *, places: int, crossings: int = CROSSINGS
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._coalescer: Coalescer[Pending[P], Executed | None] = Coalescer(
            self._execute, _ScopeLine[P](places), at_once=crossings, name="fencepost-mutations-batch"
        )

    async def carry(self, pending: Pending[P]) -> Executed | None:
        """The result, after its commit; None if it must be executed alone. Raises IndeterminateCommit."""
        return await self._coalescer.ask(pending)

    async def _execute(self, batch: Sequence[Pending[P]]) -> Sequence[Executed | None]:
        is_one_scope = len({pending.ticket.scope for pending in batch}) == 1
        try:
            call = self._ledger.execute_many(batch, waits=is_one_scope and len(batch) > 1)
            return await self._database.run(call)
        except IndeterminateCommit:
            raise
        except Exception:
            # Nothing was written. Each is executed alone, and the faulty one gets its error there.
            return [None] * len(batch)


class _ScopeLine(Generic[P]):
    """The waiting attempts by scope, in the order of arrival. A scope that is in a batch waits here until
    that batch ends."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._lines: dict[str, deque[_Waiting[P]]] = {}
        self._busy: set[str] = set()

    def add(self, waiting: _Waiting[P]) -> None:
        self._lines.setdefault(waiting.asked.ticket.scope, deque()).append(waiting)

    def next_batch(self) -> list[_Waiting[P]]:
        """All waiting attempts of one scope, or one each of several scopes: whichever came first."""
        batch: list[_Waiting[P]] = []
        for scope in [scope for scope in self._lines if scope not in self._busy]:
            line = self._lines[scope]
            if len(line) > 1 and batch:
                continue
            count = min(len(line), self._places)
            batch += [line.popleft() for _ in range(count)]
            # What is left goes to the end of the queue: a hot scope does not delay the others.
            del self._lines[scope]
            if line:
                self._lines[scope] = line
            if count > 1 or len(batch) == self._places:
                break
        self._busy |= {waiting.asked.ticket.scope for waiting in batch}
        return batch

    def ended(self, batch: Sequence[_Waiting[P]]) -> None:
        self._busy -= {waiting.asked.ticket.scope for waiting in batch}
