"""A transaction that keeps its word: after a refusal it does not commit, whatever its block caught."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from fencepost.errors import IndeterminateCommit, Refusal, RefusedTransaction
from fencepost.kernel import marker
from fencepost.kernel.call import Call, Json
from fencepost.kernel.drivers import run

T = TypeVar("T")
BEGIN: LiteralString = "begin isolation level read committed"
"""Said aloud, because the server's default may be another level."""


class Verdict:
    """Whether a transaction may commit. Shared by the sync and the async form; does no I/O."""

    def __init__(self, on_refusal: Callable[[Refusal], None]) -> None:
        self._on_refusal = on_refusal
        self.refusal: Refusal | None = None
        self.replayed = False

    def refuse(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self._on_refusal(refusal)

    def judge_claim(self, claim: marker.Claim, scope: str, key: str) -> marker.Claim:
        """A replay writes nothing, so it will not commit; every other answer but a claim is raised."""
        self.replayed = self.replayed or claim.replayed
        refusal = claim.refusal(scope, key)
        if refusal is not None:
            # The database wrote it down in this transaction, which will not commit.
            self.refuse(refusal)
            raise refusal
        return claim

    @property
    def may_commit(self) -> bool:
        return self.refusal is None and not self.replayed

    def raise_if_swallowed(self) -> None:
        if self.refusal is not None:
            raise RefusedTransaction(
                f"A refusal was caught inside the transaction ({self.refusal}); it was rolled back all the "
                "same. Let the refusal leave the block, or do the other writes in a transaction of their own."
            ) from self.refusal


class Transaction:
    """An open transaction. What is written through it commits with it, or not at all."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], verdict: Verdict) -> None:
        self.connection = connection
        self._verdict = verdict

    async def execute(
        self, query: LiteralString, params: Sequence[Any] | None = None
    ) -> psycopg.AsyncCursor[Any]:
        """Run a statement of your own."""
        return await self.connection.execute(query, params)

    async def run(self, call: Call[T]) -> T:
        """Make a kernel call. A refusal marks the transaction: it will not commit, even if caught."""
        try:
            return await run(self.connection, call)
        except Refusal as refusal:
            self._verdict.refuse(refusal)
            raise

    async def claim(
        self, scope: str, key: str, *, digest: str | None = None, response: Json = None
    ) -> marker.Claim:
        """Claim a request, first thing. Claimed: go on. Replayed: answer `response`; nothing commits here.

        Every other answer is raised: Duplicate, Mismatch, InFlight.
        """
        answer = await self.run(marker.claim(scope, key, digest=digest, response=response))
        return self._verdict.judge_claim(answer, scope, key)

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """A part that can fail alone. A fence taken inside is gone with its rollback: take fences outside."""
        async with self.connection.transaction():
            yield


class SyncTransaction:
    """`Transaction` for code without an event loop."""

    def __init__(self, connection: psycopg.Connection[Any], verdict: Verdict) -> None:
        self.connection = connection
        self._verdict = verdict

    def execute(self, query: LiteralString, params: Sequence[Any] | None = None) -> psycopg.Cursor[Any]:
        return self.connection.execute(query, params)

    def run(self, call: Call[T]) -> T:
        try:
            return run(self.connection, call)
        except Refusal as refusal:
            self._verdict.refuse(refusal)
            raise

    def claim(
        self, scope: str, key: str, *, digest: str | None = None, response: Json = None
    ) -> marker.Claim:
        answer = self.run(marker.claim(scope, key, digest=digest, response=response))
        return self._verdict.judge_claim(answer, scope, key)

    @contextmanager
    def savepoint(self) -> Generator[None]:
        with self.connection.transaction():
            yield


@asynccontextmanager
async def open_transaction(
    connection: psycopg.AsyncConnection[Any], on_refusal: Callable[[Refusal], None]
) -> AsyncGenerator[Transaction]:
    """Begin, and commit at the end of the block unless it raised, was refused, or was a replay."""
    verdict = Verdict(on_refusal)
    await connection.execute(BEGIN)
    try:
        yield Transaction(connection, verdict)
    except BaseException:
        await _roll_back(connection)
        raise
    if not verdict.may_commit:
        await _roll_back(connection)
        verdict.raise_if_swallowed()
        return
    refuse_aborted(connection.info.transaction_status)
    try:
        await connection.execute("commit")
    except psycopg.OperationalError as error:
        raise indeterminate(error) from error


@contextmanager
def open_sync_transaction(
    connection: psycopg.Connection[Any], on_refusal: Callable[[Refusal], None]
) -> Generator[SyncTransaction]:
    verdict = Verdict(on_refusal)
    connection.execute(BEGIN)
    try:
        yield SyncTransaction(connection, verdict)
    except BaseException:
        if not connection.closed:
            connection.execute("rollback")
        raise
    if not verdict.may_commit:
        connection.execute("rollback")
        verdict.raise_if_swallowed()
        return
    refuse_aborted(connection.info.transaction_status)
    try:
        connection.execute("commit")
    except psycopg.OperationalError as error:
        raise indeterminate(error) from error


async def _roll_back(connection: psycopg.AsyncConnection[Any]) -> None:
    # A connection that is gone has rolled back by itself.
    if not connection.closed:
        await connection.execute("rollback")


def refuse_aborted(status: TransactionStatus) -> None:
    """PostgreSQL answers COMMIT of a failed transaction with a quiet ROLLBACK: no success."""
    if status == TransactionStatus.INERROR:
        raise RefusedTransaction(
            "A statement failed inside the transaction and its error was caught, so PostgreSQL will not "
            "commit it. Let the error leave the block, or guard the statement with savepoint()."
        )


def indeterminate(error: psycopg.OperationalError) -> IndeterminateCommit:
    return IndeterminateCommit(
        f"The connection broke while COMMIT was under way ({error}): it may have happened. "
        "Settle it before you repeat: claim the same request again, or look the job or lease up."
    )
