"""Executes one plan until it is settled: the third layer.

A plan is executed as it was made. A stale plan is made again, once, on the locked rows (`HeldExecution`),
with the same seed: locked rows cannot change any more.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

import psycopg

from fencepost.errors import IndeterminateCommit, InvalidInput, NotFound, ServerUnavailable, TooOld
from fencepost.kernel.call import CallRunner
from fencepost_players.mutations.batch_executor import BatchExecutor, Pending
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
    ledger: MutationStore[Any, P]
    ticket: RequestContext
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
                    "What the plan rests on has changed; send it again.", answer.response or {}
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
            f"Others changed the same rows under each of {self.tries_max} tries. "
            "Nothing was written; send it again.",
            reason=again.reason,
        )

    async def _execute(self, version: int | None) -> Executed:
        """In a batch once, if there is a BatchExecutor; then alone."""
        assert self.planned is not None
        batch_executor, self.batch_executor = self.batch_executor, None
        if batch_executor is not None:
            carried = await batch_executor.carry(Pending(self.ticket, self.planned, version, self.keep))
            if carried is not None:
                return carried
        attempt = self.sender.run(self.ledger.execute(self.ticket, self.planned, version, keep=self.keep))
        return await (self.outwait(attempt, self.planned) if self.outwait else attempt)

    async def _try(self, version: int | None) -> Executed | _Again:
        try:
            return await self._execute(version)
        except IndeterminateCommit as error:
            if self.ticket.key is None:
                raise Unavailable(
                    "The database's answer was lost, and without a request id nobody can tell whether it "
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
                "Another transaction has held the same rows all the time. "
                "Nothing was written; send it again.",
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
            return await sender.run(self.ledger.execute(self.ticket, planned, seen.version, keep=self.keep))


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
                "The request id is older than ids are kept, or comes from the future: nobody can tell "
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
