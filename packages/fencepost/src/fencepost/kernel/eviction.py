"""Take over what a stopped holder still blocks.

A takeover waits until every fenced transaction of the old holder has ended. The fence bounds how long that
transaction may idle, but a holder that was stopped inside COPY, or with an unread result, is not idle and
survives every timeout. So the takeover waits on one connection, and while it is blocked a second connection
checks which backends block it, and terminates those that also blocked it at the previous check. The database
verifies each time that the lease has been expired for the grace period.

The async and the sync form share the decisions: what to attempt, which backends to evict, how long to wait
before each check. Neither repeats an attempt.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, Generic, LiteralString, TypeVar

import psycopg

from fencepost.backoff import Backoff
from fencepost.errors import Refusal
from fencepost.kernel import lease
from fencepost.kernel.call import Call, column, duration, scalar, text
from fencepost.kernel.drivers import run

T = TypeVar("T")
Connect = Callable[[], AbstractContextManager[psycopg.Connection[Any]]]
AsyncConnect = Callable[[], AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]]
READ_COMMITTED: LiteralString = "set transaction isolation level read committed"


@dataclass(frozen=True, slots=True)
class Takeover(Generic[T]):
    """What to attempt, and how to evict the backends that block the attempt."""

    attempt: Call[T]
    evict: Callable[[int, list[int]], Call[list[int]]]
    """Takes the waiting backend and the blockers seen by the previous check; returns the present blockers."""


@dataclass(frozen=True, slots=True)
class EvictionDelay:
    """How long a takeover waits: before its first check for blockers, between checks, and in total."""

    first_pause_seconds: float = 0.25
    longest_pause_seconds: float = 2.0
    seconds_max: float = 30.0
    idle_seconds_max: float = 5.0
    """How long a taker may idle between the result and its commit: it blocks the next taker meanwhile, and
    its lease has not expired, so it would not be evicted."""

    def pauses(self) -> Iterator[float]:
        """The seconds to wait before each check. The second check is the first that evicts."""
        further = Backoff(self.first_pause_seconds * 2, self.longest_pause_seconds, jitter=0)
        left = self.seconds_max
        for pause in chain([self.first_pause_seconds], further.waits()):
            if left <= 0:
                return
            yield min(pause, left)
            left -= pause


def of_lease(resource: str, owner: str, ttl_seconds: float, *, grace_seconds: float) -> Takeover[lease.Lease]:
    """Acquire a lease, also from a holder that is stopped inside a fenced transaction."""
    return Takeover(
        lease.acquire(resource, owner, ttl_seconds),
        lambda waiter, seen: Call(
            "select * from fencepost.lease_evict(%s::text, %s::integer, %s::interval, %s::integer[])",
            (text("resource", resource), waiter, duration("grace", grace_seconds), seen),
            column,
        ),
    )


def of_job(job_id: int, *, grace_seconds: float) -> Takeover[str]:
    """Put one expired job back, also from a holder that is stopped. Returns the job's state."""
    return Takeover(
        Call(
            "select fencepost.job_reclaim_one(%s::bigint, %s::interval)",
            (job_id, duration("grace", grace_seconds)),
            scalar,
        ),
        lambda waiter, seen: Call(
            "select * from fencepost.job_evict(%s::bigint, %s::integer, %s::interval, %s::integer[])",
            (job_id, waiter, duration("grace", grace_seconds), seen),
            column,
        ),
    )


async def take_over(connect: AsyncConnect, takeover: Takeover[T], patience: EvictionDelay | None = None) -> T:
    """Attempt it in its own transaction; raises the refusal, or LockNotAvailable when the time is up.

    `connect` is a pool's `connection` or equivalent; a blocked takeover uses a second connection.
    """
    patience = patience or EvictionDelay()
    async with connect() as taker, taker.transaction():
        await taker.execute(READ_COMMITTED)
        waiter = await run(taker, _bound(patience))
        seen: list[int] = []

        async def look() -> None:
            nonlocal seen
            async with connect() as evictor:
                # A refusal means: no longer expired, or gone. The attempt's own result will report it too.
                with suppress(Refusal):
                    seen = await run(evictor, takeover.evict(waiter, seen))

        return await outwait(run(taker, takeover.attempt), look, patience)


async def outwait(
    attempt: Coroutine[Any, Any, T], look: Callable[[], Awaitable[None]], patience: EvictionDelay
) -> T:
    """Await an attempt that may be blocked; while it is, check for blockers on another connection."""
    waiting = asyncio.ensure_future(attempt)
    try:
        for pause in patience.pauses():
            if (await asyncio.wait([waiting], timeout=pause))[0]:
                break
            await look()
        return await waiting
    finally:
        # Nothing stays under way when the caller gives up: it undoes the attempt in the same transaction.
        waiting.cancel()
        await asyncio.wait([waiting])


def take_over_sync(connect: Connect, takeover: Takeover[T], patience: EvictionDelay | None = None) -> T:
    """`take_over` for code without an event loop; the attempt waits in a thread."""
    patience = patience or EvictionDelay()
    with concurrent.futures.ThreadPoolExecutor(1) as thread, connect() as taker, taker.transaction():
        taker.execute(READ_COMMITTED)
        waiter = run(taker, _bound(patience))
        attempt = thread.submit(lambda: run(taker, takeover.attempt))
        seen: list[int] = []
        for pause in patience.pauses():
            if concurrent.futures.wait([attempt], timeout=pause).done:
                break
            with connect() as evictor, suppress(Refusal):
                seen = run(evictor, takeover.evict(waiter, seen))
        return attempt.result()


async def evict_job(database_url: str, job_id: int, grace_seconds: float) -> None:
    """Put back a job that an expired holder blocks. Does nothing if the job has changed meanwhile."""
    with suppress(Refusal):
        await take_over(partial(connecting, database_url), of_job(job_id, grace_seconds=grace_seconds))


@asynccontextmanager
async def connecting(database_url: str) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
    """A connection outside every pool: all connections of a pool may be waiting."""
    async with await psycopg.AsyncConnection.connect(
        database_url, autocommit=True, prepare_threshold=None
    ) as connection:
        yield connection


def _bound(patience: EvictionDelay) -> Call[int]:
    """Limit the wait for locks and the idle time in the transaction, and return the waiting backend's pid:
    behind a pooler the driver does not know it."""
    return Call(
        "select pg_backend_pid() from set_config('lock_timeout', %s::text, true) wait,"
        " set_config('idle_in_transaction_session_timeout', %s::text, true) still",
        (_milliseconds(patience.seconds_max), _milliseconds(patience.idle_seconds_max)),
        scalar,
    )


def _milliseconds(seconds: float) -> str:
    return f"{timedelta(seconds=seconds) // timedelta(milliseconds=1)}ms"
