"""Executes plans until they are settled: the third layer.

A plan is executed as it was made, together with others that wait (`BatchExecutor`): one statement and one
commit for all. Attempts of one scope, which is one hot row, get a batch of their own, one at a time: a second
batch would only wait for the first one's lock. This batch may wait briefly for a row that another node holds,
because it contains no other scope. A batch of several scopes waits for no row. An attempt that cannot be
executed (its row is held, its plan does not fit) is rolled back alone inside the batch and returned to be
executed alone (`Execution`), where it may wait and gets its reason. So one held row delays one request, never
the others in the batch; and a refusal comes from the same function as without batches.

A stale plan is made again, once, on the locked rows (`HeldExecution`), with the same seed: locked rows cannot
change any more. Such requests wait for their turn in the process (`RowQueues`), not on a connection.

Crash windows: a batch commits as a whole or not at all, and each attempt's idempotency key with it. If the
answer is lost, each attempt finds out by its own claim whether it committed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import psycopg

from fencepost.coalescer import Coalescer, Waiting
from fencepost.errors import IndeterminateCommit, InvalidInput, NotFound, ServerUnavailable, TooOld
from fencepost.kernel.call import Call, CallRunner
from fencepost_players.mutations.errors import (
    Aborted,
    FailedPrecondition,
    IdTooOld,
    InvalidArgument,
    MutationError,
    NoSuchThing,
    Unavailable,
)
from fencepost_players.mutations.planning import Planned
from fencepost_players.mutations.store import Executed, Lookup, MutationStore, RequestContext

P = TypeVar("P")
T = TypeVar("T")
CONFLICT = "ZF110"
UNFIT = "ZF111"
STALE = "ZF112"
HELD = "55P03"
# The transaction was chosen to end a deadlock, or met a stricter isolation: nothing was written.
DEADLOCK = "40P01"
LOST_RACES = frozenset({DEADLOCK, "40001"})
PAUSE_SECONDS_MAX = 0.05
# The same limit as a mutation's wait for the row itself.
WAIT_SECONDS_MAX = 30.0
# Concurrent batches: while one waits for its commit, others work. Measured: two are too few for two cores,
# eight no better.
CROSSINGS = 4


@dataclass(slots=True)
class _Line:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class RowQueues:
    """The queues of one node, by scope."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def is_busy(self, scope: str) -> bool:
        return scope in self._lines

    @asynccontextmanager
    async def turn(self, scope: str) -> AsyncGenerator[None]:
        line = self._lines.setdefault(scope, _Line())
        line.length += 1
        try:
            await _acquire(line.turn)
            try:
                yield
            finally:
                line.turn.release()
        finally:
            line.length -= 1
            if line.length == 0:
                del self._lines[scope]


async def _acquire(turn: asyncio.Lock) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await turn.acquire()
    except TimeoutError:
        raise Aborted(
            "Other requests kept the same rows busy. Nothing was written; send it again.",
            reason="contention",
            retry_seconds=WAIT_SECONDS_MAX / 3,
        ) from None


@dataclass(frozen=True, slots=True)
class Pending(Generic[P]):
    """One attempt to execute one plan."""

    context: RequestContext
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
        self, database: CallRunner, store: CarriesMany, *, places: int, crossings: int = CROSSINGS
    ) -> None:
        self._database = database
        self._store = store
        self._coalescer: Coalescer[Pending[P], Executed | None] = Coalescer(
            self._execute, _ScopeLine[P](places), at_once=crossings, name="fencepost-mutations-batch"
        )

    async def carry(self, pending: Pending[P]) -> Executed | None:
        """The result, after its commit; None if it must be executed alone. Raises IndeterminateCommit."""
        return await self._coalescer.ask(pending)

    async def _execute(self, batch: Sequence[Pending[P]]) -> Sequence[Executed | None]:
        is_one_scope = len({pending.context.scope for pending in batch}) == 1
        try:
            call = self._store.execute_many(batch, waits=is_one_scope and len(batch) > 1)
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
        self._lines.setdefault(waiting.asked.context.scope, deque()).append(waiting)

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
        self._busy |= {waiting.asked.context.scope for waiting in batch}
        return batch

    def ended(self, batch: Sequence[_Waiting[P]]) -> None:
        self._busy -= {waiting.asked.context.scope for waiting in batch}


class StalePlan(Aborted):
    """The plan was made from facts that have changed since, or with another seed. Nothing was written."""

    seed: int | None = None
    """The seed that is recorded for the request."""

    @classmethod
    def by(cls, message: str, detail: dict[str, Any]) -> StalePlan:
        seed = detail.pop("seed", None)
        error = cls(message, reason="stale_plan", **detail)
        error.seed = None if seed is None else int(seed, 16)
        return error


Outwait: TypeAlias = Callable[[Coroutine[Any, Any, Executed], Planned[P]], Awaitable[Executed]]


@dataclass(frozen=True, slots=True)
class _Again:
    """Why an attempt did not settle the plan, and the version for the next one."""

    reason: str
    version: int | None


@dataclass(slots=True)
class Execution(Generic[P]):
    """The attempts of one plan. Each is one transaction, or one savepoint of the caller's transaction."""

    sender: CallRunner
    store: MutationStore[Any, P]
    context: RequestContext
    planned: Planned[P] | None
    """None: the plan is made on the locked rows."""
    tries_max: int
    on_conflict: Callable[[], None]
    batch_executor: BatchExecutor[P] | None = None
    outwait: Outwait[P] | None = None
    """Awaits an attempt that may have to wait for a locked row."""
    is_joined: bool = False
    """Inside the caller's transaction, which keeps its locks even when a savepoint is rolled back."""
    keep: bool = True

    async def settle(self, version: int | None) -> Executed:
        """Raises a MutationError when the plan is refused, or when the attempts are used up."""
        again = _Again("contention", version)
        for number in range(self.tries_max):
            if number:
                await asyncio.sleep(random.uniform(0, PAUSE_SECONDS_MAX * number / self.tries_max))  # noqa: S311
            answer = await self._try(again.version)
            if isinstance(answer, Executed) and answer.outcome == "stale":
                raise StalePlan.by(
                    "The data that the plan was based on has changed; send it again.", answer.response or {}
                )
            if isinstance(answer, Executed) and not (
                answer.outcome == "in_flight" and again.reason == "lost"
            ):
                return answer
            if isinstance(answer, _Again):
                again = answer
        if again.reason == "lost":
            raise Unavailable("The database's answer was lost, and the request cannot be settled for now.")
        raise Aborted(
            f"Other requests changed the same rows during each of {self.tries_max} tries. "
            "Nothing was written; send it again.",
            reason=again.reason,
        )

    async def _execute(self, version: int | None) -> Executed:
        """In a batch once, if there is a BatchExecutor; then alone."""
        assert self.planned is not None
        batch_executor, self.batch_executor = self.batch_executor, None
        if batch_executor is not None:
            carried = await batch_executor.carry(Pending(self.context, self.planned, version, self.keep))
            if carried is not None:
                return carried
        attempt = self.sender.run(self.store.execute(self.context, self.planned, version, keep=self.keep))
        return await (self.outwait(attempt, self.planned) if self.outwait else attempt)

    async def _try(self, version: int | None) -> Executed | _Again:
        try:
            return await self._execute(version)
        except IndeterminateCommit as error:
            if self.context.key is None:
                raise Unavailable(
                    "The database's answer was lost, and without a request id it is unknown whether it "
                    "happened: read the state before you repeat it.",
                    reason="indeterminate",
                ) from error
            # The next attempt makes the same claim and finds out whether this one committed.
            return _Again("lost", version)
        except InvalidInput as error:
            if error.field != "response" or not self.keep:
                raise InvalidArgument(str(error), argument=error.field) from error
            # The response is too large to store: a repeat will be AlreadyExists.
            self.keep = False
            return _Again("response", version)
        except psycopg.Error as error:
            return self._again_after(error, version)
        except (NotFound, TooOld) as error:
            raise explained(error) from error

    def _again_after(self, error: psycopg.Error, version: int | None) -> _Again:
        if error.sqlstate == CONFLICT:
            self.on_conflict()
            return _Again("contention", detail_of(error).get("version"))
        if error.sqlstate == DEADLOCK and self.is_joined:
            raise Aborted(
                "Another transaction holds what this one waits for, and waits for what this one holds. Begin "
                "yours again, and touch several players in order of their ids.",
                reason="deadlock",
            ) from error
        if error.sqlstate == STALE:
            raise explained(error) from error
        if error.sqlstate == HELD:
            raise Aborted(
                "Another transaction kept the same rows locked. Nothing was written; send it again.",
                reason="contention",
                # A backend that has held the rows for so long will not release them in a moment.
                retry_seconds=10,
            ) from error
        if error.sqlstate in LOST_RACES:
            self.on_conflict()
            return _Again("contention", version)
        raise explained(error) from error


@dataclass(slots=True)
class HeldExecution(Execution[P]):
    """Locks the rows, looks, plans and executes in one transaction, or in one savepoint of the caller's."""

    begin: Callable[[], AbstractAsyncContextManager[CallRunner]] | None = None
    hold: Callable[[CallRunner], Awaitable[Lookup[Any]]] | None = None
    plan: Callable[[Any], Planned[P]] | None = None

    async def _execute(self, version: int | None) -> Executed:
        assert self.begin is not None
        assert self.hold is not None
        assert self.plan is not None
        async with self.begin() as sender:
            seen = await self.hold(sender)
            if seen.outcome != "open":
                return Executed(seen.outcome, seen.response, seen.body)
            planned = self.plan(seen.snapshot)
            return await sender.run(self.store.execute(self.context, planned, seen.version, keep=self.keep))


def explained(error: Exception) -> MutationError:
    """The MutationError for an error of the driver or of Fencepost."""
    match error:
        case MutationError():
            return error
        case psycopg.Error(sqlstate=state) if state == UNFIT:
            return FailedPrecondition(str(error.diag.message_primary), **detail_of(error))
        case psycopg.Error(sqlstate=state) if state == STALE:
            return StalePlan.by(str(error.diag.message_primary), detail_of(error))
        case psycopg.OperationalError() | ServerUnavailable() | IndeterminateCommit():
            return Unavailable(f"The database cannot be asked: {error}", retry_seconds=1)
        case InvalidInput() | TooOld() | NotFound():
            return _refused(error)
        case _:
            raise error


def _refused(error: InvalidInput | TooOld | NotFound) -> MutationError:
    match error:
        case InvalidInput():
            return InvalidArgument(str(error), argument=error.field)
        case TooOld():
            return IdTooOld(
                "The request id is older than ids are kept, or lies in the future: it is unknown "
                "whether the request took effect. Read the present state; a new request needs a new id.",
                reason="too_old",
                argument="request_id",
            )
        case NotFound():
            return NoSuchThing(str(error), noun=error.noun, name=error.subject)


@contextmanager
def explaining() -> Generator[None]:
    """Turns every error that the database or the driver raises inside into a MutationError."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MutationError):
            raise
        raise explained(error) from error


def detail_of(error: psycopg.Error) -> dict[str, Any]:
    facts: Any = json.loads(error.diag.message_detail or "{}")
    return cast("dict[str, Any]", facts)
