"""The leases that a process holds, renewed by a thread with a connection of its own.

Code that blocks the event loop, or a pool whose connections are all in use, must not cost a lease. The thread
reports a lost lease to its owner, which stops the work; if that comes too late, the database refuses the
work's writes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

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
T = TypeVar("T")
CLOSE_SECONDS = 5.0
CONNECT_SECONDS = 5
CONNECT_SECONDS_MIN = 2
"""The driver waits no shorter than this."""
REST_SECONDS = 1.0
"""How long a connection is kept for the next lease: a worker takes many leases at once, and then none."""


class BeatThread:
    """A thread that calls `beat` at once and then every `step_seconds`, until it is closed; then `at_end`.

    An error in `beat` ends the beat and not the thread. `ask` is for `beat` and `at_end` alone.
    """

    def __init__(
        self,
        url: str,
        name: str,
        beat: Callable[[], None],
        *,
        step_seconds: float,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._url = url
        self._name = name
        self._beat = beat
        self._step_seconds = step_seconds
        self._at_end = at_end
        self._closing = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, without waiting for it."""
        self._closing.set()

    def close(self) -> None:
        """End the thread and its connection; waits for a limited time."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self.disconnect()

    @property
    def is_closing(self) -> bool:
        """Whether the thread was asked to end."""
        return self._closing.is_set()

    @property
    def is_connected(self) -> bool:
        """Whether the thread has an open connection."""
        return self._connection is not None and not self._connection.closed

    def ask(
        self,
        question: Callable[[psycopg.Connection[Any]], T],
        *,
        within_seconds: float,
        on_broken: Callable[[psycopg.Error], None] = lambda error: None,
    ) -> T:
        """The answer to an idempotent question.

        A connection that is broken, or that does not answer in time, is replaced, and the question is asked
        once more: the next beat may be too late for the leases.
        """
        try:
            return self._ask_once(question, within_seconds)
        except psycopg.OperationalError as error:
            if self._connection is None or not self._connection.closed:
                raise
            on_broken(error)
            return self._ask_once(question, within_seconds)

    def _ask_once(self, question: Callable[[psycopg.Connection[Any]], T], within_seconds: float) -> T:
        connection = self._open(within_seconds)
        with _cut_after(connection, within_seconds):
            return question(connection)

    def _open(self, within_seconds: float) -> psycopg.Connection[Any]:
        """Opened when it is first needed, and again after a loss."""
        if self._connection is None or self._connection.closed:
            self.disconnect()
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=max(CONNECT_SECONDS_MIN, min(CONNECT_SECONDS, round(within_seconds))),
                application_name=self._name,
                # Beats are too rare to gain by it, and behind a pooler the next beat may use another backend.
                prepare_threshold=None,
            )
        return self._connection

    def disconnect(self) -> None:
        """Close the thread's connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self) -> None:
        while True:
            try:
                self._beat()
            except Exception as error:
                # All work that holds these leases depends on the thread.
                _log.error("beat_failed", thread=self._name, error=f"{type(error).__name__}: {error}")
            if self._closing.wait(self._step_seconds):
                break
        self._at_end()
        self.disconnect()


@contextmanager
def _cut_after(connection: psycopg.Connection[Any], seconds: float) -> Generator[None]:
    """Breaks the connection if the block takes longer.

    The kernel acknowledges data for a stopped server process, so no timeout of TCP would end the
    wait. The timer has a descriptor of its own: the connection's number may belong to another file by then.
    """
    expired = threading.Event()
    with socket.socket(fileno=os.dup(connection.fileno())) as line:

        def cut() -> None:
            expired.set()
            with suppress(OSError):  # The server may have closed it just now.
                line.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.OperationalError as error:
            if expired.is_set():
                raise psycopg.OperationalError(f"PostgreSQL did not answer within {seconds:g} s.") from error
            raise
        finally:
            timer.cancel()
            timer.join()


@dataclass(slots=True)
class KeptLease:
    """A lease that is renewed, and until when it is valid by this process's own clock.

    The time is counted from before the statement that acquired or renewed it: the database read its clock
    later, so this deadline is earlier than the database's.
    """

    lease: Lease
    valid_until: float
    refusal: str | None = None
    """Why it was lost."""

    @property
    def is_valid(self) -> bool:
        """Whether the lease has time left by this process's monotonic clock."""
        return time.monotonic() < self.valid_until


class LeaseKeeper:
    """The leases that `owner` holds. Calls `on_renewed` and `on_lost` from its thread.

    A lease is lost when the database refuses to renew it, or when its time is over and the database could not
    be asked.
    """

    def __init__(
        self,
        url: str,
        owner: str,
        *,
        name: str,
        ttl_seconds: float,
        beat_seconds: float,
        on_lost: Callable[[Lease], None],
        on_renewed: Callable[[Lease], None] = lambda lease: None,
    ) -> None:
        self._url = url
        self._owner = owner
        self._name = name
        self._ttl_seconds = ttl_seconds
        self._on_lost = on_lost
        self._on_renewed = on_renewed
        self._kept: dict[str, KeptLease] = {}
        self._lock = threading.Lock()
        self._resting: psycopg.AsyncConnection[Any] | None = None
        self._thread = BeatThread(
            url,
            f"fencepost-{name}-leases",
            self.renew,
            step_seconds=beat_seconds,
        )

    def start(self) -> None:
        """Start the thread that renews leases."""
        self._thread.start()

    async def close(self) -> None:
        """Renew nothing any more. What is still held expires."""
        self._thread.stop()
        if self._resting is not None:
            self._part_with(self._resting)
        await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """`close` for an owner that only used `keep` and `forget`: waits for the thread."""
        self._thread.close()

    def keep(self, lease: Lease, asked_at: float) -> KeptLease:
        """Renew it from now on. `asked_at` is the time, by `time.monotonic`, from before it was acquired."""
        kept = KeptLease(lease, asked_at + self._ttl_seconds)
        with self._lock:
            self._kept[lease.resource] = kept
        return kept

    def forget(self, kept: KeptLease) -> None:
        """Renew it no more."""
        with self._lock:
            if self._kept.get(kept.lease.resource) is kept:
                del self._kept[kept.lease.resource]

    async def acquire(self, resource: str) -> Lease | None:
        """Take a resource, also from a holder that stalls inside a fence; None while another owner holds
        it."""
        with suppress(NotOwner):
            takeover = eviction.of_lease(resource, self._owner, self._ttl_seconds, grace_seconds=0)
            asked_at = time.monotonic()
            return self.keep(await eviction.take_over(self._connect, takeover), asked_at).lease
        return None

    async def release(self, resource: str) -> None:
        """Release the resource, if it is still held."""
        with self._lock:
            kept = self._kept.pop(resource, None)
        if kept is not None:
            with suppress(Refusal):
                async with self._connect() as connection:
                    await run(connection, kernel_lease.release(kept.lease))

    async def release_all(self) -> None:
        """Release everything that is still held, in one statement."""
        with self._lock:
            held = [kept.lease for kept in self._kept.values()]
            self._kept.clear()
        if held:
            async with self._connect() as connection:
                await run(connection, kernel_lease.release_many(held, self._owner))

    def renew(self) -> None:
        """Renew every lease, with one statement. The thread calls it at each beat."""
        with self._lock:
            kept = list(self._kept.values())
        if kept:
            asked_at = time.monotonic()
            call = kernel_lease.renew_many([each.lease for each in kept], self._owner, self._ttl_seconds)
            try:
                renewals = self._thread.ask(
                    lambda connection: run(connection, call),
                    within_seconds=self._ttl_seconds / 3,
                    on_broken=self._not_renewed,
                )
            except Exception as error:
                self._not_renewed(error)
                self._thread.disconnect()
                refused = {each.lease.resource: "lease_expired" for each in kept if not each.is_valid}
            else:
                refused = {each.resource: each.refusal for each in renewals if each.refusal is not None}
                self._renewed([each for each in kept if each.lease.resource not in refused], asked_at)
            self._lose([each for each in kept if each.lease.resource in refused], refused)
        announce(f"{self._name}.renewed")

    def _not_renewed(self, error: Exception) -> None:
        _log.warning("leases_not_renewed", of=self._name, error=f"{type(error).__name__}: {error}")

    def _renewed(self, kept: list[KeptLease], asked_at: float) -> None:
        for each in kept:
            each.valid_until = asked_at + self._ttl_seconds
            self._on_renewed(each.lease)

    def _lose(self, lost: list[KeptLease], reasons: dict[str, str]) -> None:
        for each in lost:
            with self._lock:
                if self._kept.get(each.lease.resource) is not each:
                    continue
                del self._kept[each.lease.resource]
            each.valid_until, each.refusal = 0.0, reasons[each.lease.resource]
            _log.warning("lease_lost", resource=each.lease.resource, reason=reasons[each.lease.resource])
            self._on_lost(each.lease)

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
        return self._resting is None and not self._thread.is_closing

    def _part_with(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Close the connection, unless it is in use again."""
        if self._resting is connection:
            self._resting = None
            connection.pgconn.finish()
