"""The leases of a worker, renewed by a thread with its own connection.

A step that blocks the event loop must not cost a lease. The thread reports a lost lease to the loop, which
stops the task; if that comes too late, the database refuses the task's commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from fencepost.errors import NotOwner, Refusal
from fencepost.kernel import eviction
from fencepost.kernel import lease as kernel_lease
from fencepost.kernel.drivers import run
from fencepost.kernel.lease import Lease
from fencepost.logs import get_logger
from fencepost.signals import announce

_log = get_logger(__name__)
CLOSE_SECONDS = 5.0
CONNECT_SECONDS = 5
REST_SECONDS = 1.0
"""How long a connection is kept for the next lease: a worker takes many leases at once, and then none."""


class LeaseKeeper:
    """The leases that this worker holds. `on_lost` is called from the thread."""

    def __init__(
        self, url: str, owner: str, ttl_seconds: float, beat_seconds: float, on_lost: Callable[[str], None]
    ) -> None:
        self._url = url
        self._owner = owner
        self._ttl_seconds = ttl_seconds
        self._beat_seconds = beat_seconds
        self._on_lost = on_lost
        self._held: dict[str, Lease] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._resting: psycopg.AsyncConnection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="fencepost-flow-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def close(self) -> None:
        self._closing.set()
        if self._resting is not None:
            self._part_with(self._resting)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    async def acquire(self, resource: str) -> Lease | None:
        """Take a resource, also from a holder that stalls inside a fence; None while another worker holds
        it."""
        with suppress(NotOwner):
            takeover = eviction.of_lease(resource, self._owner, self._ttl_seconds, grace_seconds=0)
            held = await eviction.take_over(self._connect, takeover)
            with self._lock:
                self._held[resource] = held
            return held
        return None

    async def release(self, resource: str) -> None:
        """Release the resource, if this worker still holds it."""
        with self._lock:
            held = self._held.pop(resource, None)
        if held is not None:
            with suppress(Refusal):
                async with self._connect() as connection:
                    await run(connection, kernel_lease.release(held))

    async def release_all(self) -> None:
        """Release everything that this worker still holds, in one statement."""
        with self._lock:
            held = list(self._held.values())
            self._held.clear()
        if held:
            async with self._connect() as connection:
                await run(connection, kernel_lease.release_many(held, self._owner))

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[psycopg.AsyncConnection[Any]]:
        """A connection outside every pool: those of a pool may all be in use. A concurrent call opens a
        temporary second one."""
        connection, self._resting = self._resting, None
        if connection is None:
            connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS
            )
        try:
            yield connection
        finally:
            if connection.info.transaction_status is TransactionStatus.IDLE and self._has_room():
                self._resting = connection
                asyncio.get_running_loop().call_later(REST_SECONDS, self._part_with, connection)
            else:
                await connection.close()

    def _has_room(self) -> bool:
        return self._resting is None and not self._closing.is_set()

    def _part_with(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Close the connection, unless it is in use again."""
        if self._resting is connection:
            self._resting = None
            connection.pgconn.finish()

    def _run(self) -> None:
        while not self._closing.wait(self._beat_seconds):
            with self._lock:
                held = list(self._held.values())
            try:
                if held:
                    self._beat(held)
            except Exception as error:
                # The thread continues after any error: all tasks of this worker depend on it.
                _log.warning("flow_leases_not_renewed", error=f"{type(error).__name__}: {error}")
                self._connection = None
            announce("flows.renewed")
        if self._connection is not None:
            self._connection.close()

    def _beat(self, held: list[Lease]) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=CONNECT_SECONDS,
                application_name="fencepost-flow-leases",
            )
        for renewal in run(self._connection, kernel_lease.renew_many(held, self._owner, self._ttl_seconds)):
            if renewal.refusal is not None:
                self._lose(renewal.resource, renewal.token, renewal.refusal)

    def _lose(self, resource: str, token: int, reason: str) -> None:
        with self._lock:
            held = self._held.get(resource)
            if held is None or held.token != token:
                return
            del self._held[resource]
        _log.warning("flow_lease_lost", resource=resource, reason=reason)
        self._on_lost(resource)
