"""A transaction that never commits after a refusal, even if its block caught the refusal."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import update_wrapper
from typing import Any, Concatenate, Generic, LiteralString, ParamSpec, Protocol, TypeVar, cast, overload

import psycopg
from psycopg.pq import TransactionStatus

from fencepost._connection_line import Begun, ConnectionLine, Place, Successor
from fencepost._instrumentation import CallObserver, CallTimer
from fencepost._round_trip import Statement
from fencepost._sync_form import Awaited, Blocking, Form, Operations, complete, operation, settled
from fencepost.errors import IndeterminateCommit, Refusal, RefusedTransaction
from fencepost.kernel import idempotency
from fencepost.kernel.call import Call, Json
from fencepost.kernel.drivers import AsyncConnection, SyncConnection, as_ours, run

P = ParamSpec("P")
O = TypeVar("O")  # noqa: E741 -- The object whose method it is.
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
BEGIN: LiteralString = "begin isolation level read committed"
"""Set explicitly, because the server's default may be another level."""
COMMIT: LiteralString = "commit"


class Verdict:
    """Whether a transaction may commit. Shared by the sync and the async form; does no I/O."""

    def __init__(self, observer: CallObserver) -> None:
        self._observer = observer
        self._refusal: Refusal | None = None
        self._claimed = False
        self._replayed = False
        self._ended = False

    def watch(self, call: Call[Any]) -> CallTimer:
        """A refusal marks the transaction, even if it is caught."""
        return self._observer.watch(call, self._mark)

    def note_begun(self, begun: Begun, first: Call[Any] | None) -> None:
        """The transaction was begun by the task before: count its first call, or raise what that raised."""
        if begun.error is not None:
            with self._observer.watch(cast("Any", first), self._mark), as_ours():
                raise begun.error
        if first is not None:
            self._observer.answered(first, "ok", begun.seconds)

    def judge_claim(
        self, claim: idempotency.Claim, scope: str, key: str, digest: str | None
    ) -> idempotency.Claim:
        """A replay writes nothing, so it does not commit; every other outcome but a claim is raised."""
        self._claimed = self._claimed or claim.claimed
        self._replayed = self._replayed or claim.replayed
        refusal = claim.refusal(scope, key)
        if refusal is not None:
            refusal.attempted = {"digest": digest}
            refusal.seen = {"claimed_at": claim.claimed_at and claim.claimed_at.isoformat()}
            self._mark(refusal)
            # The database recorded it in this transaction, which will not commit.
            self._observer.refused(refusal)
            raise refusal
        return claim

    def require_open(self) -> None:
        """A task that outlives the block would write on a connection that another borrower has by now."""
        if self._ended:
            raise RefusedTransaction(
                "This transaction has ended, and nothing more can be written through it. "
                "Wait for the tasks that use it before its block ends."
            )

    def end(self) -> None:
        """Mark the transaction as ended."""
        self._ended = True

    @property
    def may_commit(self) -> bool:
        """Whether nothing was refused and nothing replayed."""
        return self._refusal is None and not self._replayed

    def raise_if_swallowed(self) -> None:
        """Called after the rollback: the caller would take the block for a success."""
        if self._refusal is not None:
            raise RefusedTransaction(
                f"A refusal was caught inside the transaction ({self._refusal}); it was rolled back all the "
                "same. Let the refusal leave the block, or do the other writes in a transaction of their own."
            ) from self._refusal
        if self._claimed:
            raise RefusedTransaction(
                "One request was claimed and another one is a replay, which commits nothing; so the "
                "claimed one was rolled back too. Claim each request in a transaction of its own."
            )

    def raise_if_over(self, status: TransactionStatus) -> None:
        """PostgreSQL answers COMMIT of a failed transaction with ROLLBACK and no error: no success."""
        what = _NO_COMMIT.get(status)
        if what is not None:
            raise RefusedTransaction(what)

    def indeterminate(self, error: psycopg.OperationalError) -> IndeterminateCommit:
        """The error for a COMMIT whose reply was lost."""
        self._observer.lost_commit()
        return IndeterminateCommit(
            f"The connection broke during COMMIT ({error}), so it may have happened or not. "
            "Settle it before you repeat: claim the same request again, or look the job or lease up."
        )

    def raise_if_unconfirmed(self, warning: str | None) -> None:
        """Called after the commit: the server may have stopped waiting for its standbys."""
        if warning is None:
            return
        self._observer.lost_commit()
        raise IndeterminateCommit(
            f"The transaction is committed on this server and maybe on no other ({warning}): a failover may "
            "lose it. Settle it before you repeat: claim the same request again, or look the job or lease up."
        )

    def _mark(self, refusal: Refusal) -> None:
        self._refusal = refusal


_NO_COMMIT = {
    TransactionStatus.INERROR: "A statement failed inside the transaction and its error was caught, so "
    "PostgreSQL will not commit it. Let the error leave the block, or guard the statement with savepoint().",
    TransactionStatus.IDLE: "The block committed or rolled back by itself, so its last writes were in no "
    "transaction. Leave the end to the block: it commits, and an exception rolls back.",
    TransactionStatus.UNKNOWN: "The connection broke inside the transaction and the error was caught; "
    "nothing was committed. Let the error leave the block.",
}


class _Transaction(Operations[Form]):
    """What both forms of a transaction do."""

    def __init__(self, connection: Any, verdict: Verdict) -> None:
        self._connection = connection
        self._verdict = verdict

    @operation
    async def claim(
        self, scope: str, key: str, *, digest: str | None = None, response: Json = None
    ) -> idempotency.Claim:
        """Claim a request, as the first statement. Claimed: go on. Replayed: return `response`; no commit.

        Every other outcome is raised: Duplicate, Mismatch, InFlight.
        """
        answer = await self._send(idempotency.claim(scope, key, digest=digest, response=response))
        return self._verdict.judge_claim(answer, scope, key, digest)

    async def _send(self, call: Call[T]) -> T:
        with self._verdict.watch(call):
            return await settled(cast("Any", run)(self._open_connection, call))

    @property
    def _open_connection(self) -> Any:
        self._verdict.require_open()
        return self._connection


class Transaction(_Transaction[Awaited]):
    """An open transaction. What is written through it commits with it, or not at all."""

    is_blocking = False

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection, for other features of psycopg: COPY, server-side cursors, pipelines."""
        return cast("psycopg.AsyncConnection[Any]", self._open_connection)

    async def execute(
        self, query: LiteralString, params: Sequence[Any] | None = None
    ) -> psycopg.AsyncCursor[Any]:
        """Run a statement of your own."""
        return await self.connection.execute(query, params)

    async def run(self, call: Call[T]) -> T:
        """Make a kernel call. A refusal marks the transaction: it does not commit, even if it is caught."""
        return await self._send(call)

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """A part that can fail alone. Its rollback releases a fence taken inside: take fences outside."""
        async with self.connection.transaction():
            yield


class SyncTransaction(_Transaction[Blocking]):
    """`Transaction` for code without an event loop."""

    is_blocking = True

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection, for other features of psycopg: COPY, server-side cursors, pipelines."""
        return cast("psycopg.Connection[Any]", self._open_connection)

    def execute(self, query: LiteralString, params: Sequence[Any] | None = None) -> psycopg.Cursor[Any]:
        """Run a statement of your own."""
        return self.connection.execute(query, params)

    def run(self, call: Call[T]) -> T:
        """Make a kernel call. A refusal marks the transaction: it does not commit, even if it is caught."""
        return complete(self._send(call))

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """A part that can fail alone. Its rollback releases a fence taken inside: take fences outside."""
        with self.connection.transaction():
            yield


AnyTransaction = TypeVar("AnyTransaction", Transaction, SyncTransaction)


@asynccontextmanager
async def open_transaction(
    connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any],
    observer: CallObserver,
    kind: type[AnyTransaction],
    first: Call[Any] | None = None,
    last: Callable[[], Call[Any]] | None = None,
    line: ConnectionLine | None = None,
    place: Place | None = None,
) -> AsyncGenerator[AnyTransaction]:
    """Begin, and commit at the end of the block unless it raised, was refused, or was a replay.

    `first` travels with BEGIN and `last` with COMMIT, in one round trip, which costs more than a short
    statement. The server stops at the first statement that fails, so it never reaches the
    COMMIT after a refused call. In a `line`, BEGIN and `first` may have travelled with the COMMIT before.
    """
    verdict = Verdict(observer)
    try:
        await _begin(connection, verdict, first, None if place is None else place.begun)
        yield kind(connection, verdict)
        verdict.end()
        if verdict.may_commit:
            verdict.raise_if_over(connection.info.transaction_status)
    except BaseException:
        verdict.end()
        await roll_back(connection)
        raise
    if not verdict.may_commit:
        await roll_back(connection)
        verdict.raise_if_swallowed()
        return
    guarded = cast("Any", connection)
    guarded.is_committing, guarded.unconfirmed = True, None
    try:
        await _commit(connection, verdict, last, line, place)
        verdict.raise_if_unconfirmed(guarded.unconfirmed)
    except BaseException as error:
        if connection.closed and isinstance(error, psycopg.OperationalError):
            raise verdict.indeterminate(error) from error
        # If the connection is still open, the server has answered with an error: the outcome is known.
        is_ours = place is None or not place.is_handed_on
        if is_ours and connection.info.transaction_status is not TransactionStatus.IDLE:
            await roll_back(connection)
        raise
    finally:
        guarded.is_committing, guarded.unconfirmed = False, None


async def _begin(connection: Any, verdict: Verdict, first: Call[Any] | None, begun: Begun | None) -> None:
    if begun is not None:
        verdict.note_begun(begun, first)
    elif first is None:
        await settled(connection.send_text(BEGIN.encode()))
    else:
        await _together(connection, verdict, first, [BEGIN, first])


async def _commit(
    connection: Any,
    verdict: Verdict,
    last: Callable[[], Call[Any]] | None,
    line: ConnectionLine | None,
    place: Place | None,
) -> None:
    if last is None:
        await settled(connection.send_text(COMMIT.encode()))
    elif line is not None and place is not None and (successor := line.successor(place)) is not None:
        await _end_and_begin(verdict, last, line, place, successor)
    else:
        call = last()
        await _together(connection, verdict, call, [call, COMMIT])


async def _together(
    connection: Any, verdict: Verdict, call: Call[Any], statements: Sequence[Statement]
) -> None:
    """Send the call and another statement in one round trip."""
    with verdict.watch(call), as_ours():
        _, error = await settled(connection.send_together(statements))
        if error is not None:
            raise error


async def _end_and_begin(
    verdict: Verdict,
    last: Callable[[], Call[Any]],
    line: ConnectionLine,
    place: Place,
    successor: Successor,
) -> None:
    """Make the last call, commit, and begin the successor's transaction with its first call: one round trip.

    The server stops at the first statement that fails. If that is one of ours, the successor's transaction
    was not begun. If it is one of the successor's, ours is committed, and the error is the successor's.
    """
    try:
        call, connection = last(), place.connection
        ours: list[Statement] = [call, COMMIT]
        theirs = [BEGIN] if successor.first is None else [BEGIN, successor.first]
        began = time.perf_counter()
        with verdict.watch(call), as_ours():
            done, error = await settled(connection.send_together([*ours, *theirs]))
            _raise_if(error, done < len(ours))
    except BaseException:
        line.put_back(successor)
        raise
    line.hand_on(place, successor, Begun(time.perf_counter() - began, error))


def _raise_if(error: Exception | None, is_ours: bool) -> None:
    if error is not None and is_ours:
        raise error


async def roll_back(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Undo what is open on the connection, if it is there still."""
    # A closed connection has rolled back already; its error must not hide the original one.
    with suppress(psycopg.OperationalError):
        await settled(cast("Any", connection).execute("rollback"))


@overload
def send(tx: Transaction | AsyncConnection, call: Call[T]) -> Awaitable[T]: ...
@overload
def send(tx: SyncTransaction | SyncConnection, call: Call[T]) -> T: ...
def send(tx: Any, call: Call[T]) -> Any:
    """Make a call in a Fencepost transaction, or on a connection of yours."""
    if isinstance(tx, Transaction | SyncTransaction):
        return tx.run(call)
    # The overloads of `run` tell sync from async; the type of `tx` does not say it here.
    return cast("Any", run)(tx, call)


class InTransaction(Protocol[P, T_co]):
    """A method that is called with a transaction, or a connection of yours, before its own arguments."""

    @overload
    def __call__(
        self, tx: Transaction | AsyncConnection, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T_co]: ...
    @overload
    def __call__(self, tx: SyncTransaction | SyncConnection, *args: P.args, **kwargs: P.kwargs) -> T_co: ...


class in_transaction(Generic[O, P, T]):  # noqa: N801 -- A decorator.
    """Sends the call that a method makes, in the transaction that it is given. Await it if that is async."""

    def __init__(self, method: Callable[Concatenate[O, P], Call[T]]) -> None:
        self._method = method
        update_wrapper(cast("Any", self), method)

    def __get__(self, instance: O, owner: object = None) -> InTransaction[P, T]:
        def sent(tx: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
            return cast("Any", send)(tx, self._method(instance, *args, **kwargs))

        return cast("InTransaction[P, T]", update_wrapper(sent, self._method))
