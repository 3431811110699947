"""How the client connects, and its errors when it cannot."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Self, TypeVar, cast

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import PipelineStatus
from psycopg.waiting import Ready, Wait
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from fencepost._round_trip import Sent, Statement, as_prepared, as_text, send_prepared, send_text
from fencepost.errors import IndeterminateCommit, ServerUnavailable, SettingsError
from fencepost.kernel.migrate import check_version, schema_version
from fencepost.settings import Settings

T = TypeVar("T")


class CallLost(IndeterminateCommit, psycopg.OperationalError):
    """The connection broke during a call in its own transaction. Also an instance of the driver's error."""

    @classmethod
    def by(cls, error: psycopg.OperationalError) -> Self:
        """The error for a call whose connection broke."""
        return cls(
            f"The connection broke during the call ({error}), so it may have happened or not. "
            "Settle it before you repeat: look the job, lease or request up. A fenced call may be repeated."
        )

    @classmethod
    def unconfirmed(cls, warning: str) -> Self:
        """Where the server no longer waits for its standbys."""
        return cls(
            f"The call is committed on this server and maybe on no other ({warning}): a failover may lose "
            "it. Settle it before you repeat: look the job, lease or request up."
        )


class PoolExhausted(ServerUnavailable, PoolTimeout):
    """No connection came free in time. Nothing was written."""

    @classmethod
    def by(cls, stats: Mapping[str, int], settings: Settings) -> Self:
        """The error for a pool without a free connection, with its figures."""
        return cls(
            f"No connection became free within {settings.pool_wait_seconds:g} s: "
            f"{stats.get('pool_size', 0)} of at most {settings.pool_max} are open, "
            f"{stats.get('pool_available', 0)} of them idle. Make transactions shorter, "
            "raise DATABASE_POOL_MAX, or check that the server answers."
        )


AT_ONCE_MAX = 500
"""After so many statements the loop has its turn, however fast the server reads them."""
INTERRUPTED = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
FORGETS = hasattr(psycopg.AsyncConnection, "_deallocate")
"""Whether psycopg tells when it removes prepared statements. Without that none is prepared beside it."""
_READY = {
    select.POLLIN: Ready.R,
    select.POLLOUT: Ready.W,
    select.POLLIN | select.POLLOUT: Ready.RW,
}
"""Not among them: the events of a connection that is broken, of which the driver finds out what to say."""


class _CommitGuard:
    """What our own connections know about synchronous replication.

    PostgreSQL cannot take back a commit that its standbys have not confirmed. A cancelled wait for them ends
    with success and a warning: the commit is there, visible, and lost by a failover to a standby without it.
    """

    is_committing = False
    """While true, the cancellation of a task does not cancel the statement on the server."""
    is_checked = False
    """Whether the database behind it was asked if it has lost commits."""
    unconfirmed: str | None = None
    """The server's warning about a commit that it stopped waiting for."""

    def hear(self, notice: psycopg.errors.Diagnostic) -> None:
        """Notices the server's warning that a commit was not confirmed by the standby."""
        # The warning has no code of its own, and its text is translated.
        if notice.source_function == "SyncRepWaitForLSN":
            self.unconfirmed = notice.message_primary


class _RoundTrips:
    """The statements that the server has prepared for `send_together`, beside those of psycopg's cursors."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.known_statements: set[bytes] = set()

    def sending(self: Any, statements: Sequence[Statement]) -> Sent:
        """Send them by name, or as a text where nothing may be prepared."""
        if FORGETS and self.prepare_threshold is not None:
            prepared = as_prepared(statements)
            if prepared is not None:
                return send_prepared(self.pgconn, prepared, self.known_statements, self.info.encoding)
        return send_text(self.pgconn, as_text(statements, self), self.info.encoding)

    def _deallocate(self, name: bytes | None) -> Any:
        """psycopg removes what is prepared, after a rollback for instance: everything, without a name."""
        if name is None:
            self.known_statements.clear()
        return cast("Any", super())._deallocate(name)


class PooledConnection(_RoundTrips, _CommitGuard, psycopg.Connection[Any]):
    """A connection of a client without an event loop."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.add_notice_handler(self.hear)

    def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Cancel what runs, except a COMMIT: a cancelled COMMIT may be kept and reported as lost."""
        if not self.is_committing:
            super().cancel_safe(timeout=timeout)

    def send_text(self, query: bytes) -> None:
        """Run a statement without parameters whose answer is not read."""
        if self.pgconn.pipeline_status != PipelineStatus.OFF:
            self.execute(query, prepare=False)
            return
        with self.lock:
            _, error = self.wait(send_text(self.pgconn, query, self.info.encoding))
        if error is not None:
            raise error

    def send_together(self, statements: Sequence[Statement]) -> tuple[int, psycopg.Error | None]:
        """Run statements whose answers are not read, in one round trip: how many succeeded, and what failed
        then."""
        if self.pgconn.pipeline_status != PipelineStatus.OFF:
            self.execute(as_text(statements, self), prepare=False)
            return len(statements), None
        with self.lock:
            return self.wait(self.sending(statements))


class AsyncPooledConnection(_RoundTrips, _CommitGuard, psycopg.AsyncConnection[Any]):
    """A connection of a client with an event loop, which it asks to wait only when it has to.

    In a pipeline the driver waits for each statement until the socket can be written, which it nearly always
    can, and asking the kernel costs a twentieth of a turn of the loop.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.add_notice_handler(self.hear)
        self._receiver = _Receiver()

    async def cancel_safe(self, *, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - The driver's signature.
        """Cancel what runs, except a COMMIT: a cancelled COMMIT may be kept and reported as lost."""
        if not self.is_committing:
            await super().cancel_safe(timeout=timeout)

    async def send_text(self, query: bytes) -> None:
        """Run a statement without parameters whose answer is not read."""
        if self.pgconn.pipeline_status != PipelineStatus.OFF:
            await self.execute(query, prepare=False)
            return
        async with self.lock:
            _, error = await self.wait(send_text(self.pgconn, query, self.info.encoding))
        if error is not None:
            raise error

    async def send_together(self, statements: Sequence[Statement]) -> tuple[int, psycopg.Error | None]:
        """Run statements whose answers are not read, in one round trip: how many succeeded, and what failed
        then."""
        if self.pgconn.pipeline_status != PipelineStatus.OFF:
            await self.execute(as_text(statements, self), prepare=False)
            return len(statements), None
        async with self.lock:
            return await self.wait(self.sending(statements))

    async def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait for the server. An answer that is there already needs no turn of the event loop; one that is
        not there yet is received by the loop's own callback (`_Receiver`)."""
        answers = _without_waiting(gen, self.pgconn.socket)
        if args or kwargs:
            # With a limit of time, as for notifications.
            self._receiver.close()
            return await super().wait(answers, *args, **kwargs)
        try:
            wanted = next(answers)
            if wanted == Wait.R:
                wanted, answer = await self._receiver.receive(self.pgconn.socket, answers)
                if wanted is None:
                    return cast("T", answer)
        except StopIteration as end:
            return cast("T", end.value)
        except INTERRUPTED as error:
            self._receiver.close()
            # The driver cancels the statement on the server and waits until it has ended.
            return await super().wait(cast("Any", _Interrupted(answers, error)))
        except Exception:
            # The client library may have closed the socket, whose number another connection gets.
            self._receiver.close()
            raise
        self._receiver.close()
        return await super().wait(_after(answers, wanted))

    async def close(self) -> None:
        """Close the connection, and with it what the event loop has of its socket."""
        self._receiver.close()
        await super().close()


class _Receiver:
    """Runs a generator of the driver on with each part of an answer, in the callback of the event loop.

    The driver registers the socket with the loop for each answer and removes it again: two calls of the
    kernel, and as much Python as a short statement takes. Here it stays registered while statements follow
    one another. It is readable without a statement when the server says something unasked, which the next
    statement reads.
    """

    __slots__ = ("_answers", "_loop", "_registered", "_waiter")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._registered = -1
        self._answers: Generator[Any, Any, Any] | None = None
        self._waiter: asyncio.Future[tuple[Any, Any]] | None = None

    async def receive(self, fileno: int, answers: Generator[Any, Any, Any]) -> tuple[Any, Any]:
        """Run the generator on until it wants something else than to read: returns what, or None and its
        result."""
        loop = asyncio.get_running_loop()
        if fileno != self._registered or loop is not self._loop:
            self.close()
            loop.add_reader(fileno, self._on_readable)
            self._loop, self._registered = loop, fileno
        self._answers, self._waiter = answers, loop.create_future()
        try:
            return await self._waiter
        finally:
            self._answers = self._waiter = None

    def close(self) -> None:
        """Forget the socket. It must not be closed before, because its number may be another's at once."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._registered)
        self._loop, self._registered = None, -1

    def _on_readable(self) -> None:
        waiter = self._waiter
        if self._answers is None or waiter is None or waiter.done():
            self.close()
            return
        try:
            wanted = self._answers.send(Ready.R)
        except StopIteration as end:
            waiter.set_result((None, end.value))
        except Exception as error:
            waiter.set_exception(error)
        else:
            if wanted != Wait.R:
                waiter.set_result((wanted, None))


class _Interrupted:
    """A generator whose first step raises. The driver then cancels the statement and runs it on."""

    def __init__(self, answers: Generator[Any, Any, Any], error: BaseException) -> None:
        self._answers = answers
        self._error: BaseException | None = error

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, ready: Any) -> Any:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._answers.send(ready)


def _after(answers: Generator[Any, Any, T], wanted: Any) -> Generator[Any, Any, T]:
    """The rest of a generator that wants this first."""
    try:
        while True:
            wanted = answers.send((yield wanted))
    except StopIteration as end:
        return cast("T", end.value)


def _without_waiting(gen: Generator[Any, Any, T], fileno: int) -> Generator[Any, Any, T]:
    """The same, without the waits at its beginning that end at once."""
    poll: select.poll | None = None
    try:
        wanted = next(gen)
        for _ in range(AT_ONCE_MAX):
            if wanted != Wait.RW:
                break
            if poll is None:
                poll = select.poll()
                poll.register(fileno, select.POLLIN | select.POLLOUT)
            ready = _READY.get(next((event for _, event in poll.poll(0)), 0))
            if ready is None:
                break
            wanted = gen.send(ready)
        while True:
            wanted = gen.send((yield wanted))
    except StopIteration as end:
        return cast("T", end.value)


class Pool(AsyncConnectionPool[AsyncPooledConnection]):
    """The driver's pool uses `wait_for`, which in Python 3.11 loses a cancellation that arrives together with
    the connection. This pool does not."""

    def __init__(self, conninfo: str, **options: Any) -> None:
        super().__init__(conninfo, connection_class=AsyncPooledConnection, **options)

    async def getconn(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - The driver's own signature.
    ) -> AsyncPooledConnection:
        """A connection, as psycopg's pool gives it. A task that was cancelled meanwhile gives it back."""
        before = _times_cancelled()
        connection = await super().getconn(timeout)
        if _times_cancelled() > before:
            await self.putconn(connection)
            raise asyncio.CancelledError
        return connection


def _times_cancelled() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def is_dropped(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server has closed an idle connection. Asks the kernel and not the server: no round trip.

    An idle connection is readable when the server has closed it, or has sent a notice; a notice is read and
    kept for the next statement.
    """
    poll = select.poll()
    try:
        poll.register(connection.fileno(), select.POLLIN)
        while poll.poll(0):
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False


RECONNECT_SECONDS = 4.0
"""How long the pool repeats one attempt to connect, with longer and longer pauses. After that, the next call
begins a new one: with the driver's five minutes, a pause outlasts the outage by a minute or two."""
PREPARE_AFTER = 5
"""Executions of one statement on one connection before it is prepared there: psycopg's own default."""


def connect_options(settings: Settings) -> dict[str, Any]:
    """For the pools. Connections used once a minute (heartbeat, recorder, eviction) prepare nothing."""
    return {
        # We begin and commit transactions explicitly; everything else is one statement.
        "autocommit": True,
        "connect_timeout": max(1, round(settings.connect_seconds)),
        "application_name": "fencepost",
        # A pooler in transaction mode sends the next statement to another backend, where it is not prepared.
        "prepare_threshold": PREPARE_AFTER if settings.prepared_statements else None,
    }


def pool_options(settings: Settings) -> dict[str, Any]:
    """The pool's arguments for these settings."""
    return {
        "open": False,
        "min_size": settings.pool_min,
        "max_size": settings.pool_max,
        "timeout": settings.pool_wait_seconds,
        "reconnect_timeout": RECONNECT_SECONDS,
        "kwargs": connect_options(settings),
    }


def examine(database_url: str, settings: Settings) -> None:
    """Connect to the server once, and refuse a schema that this code cannot work with.

    Runs before the pool is opened: a pool keeps trying, and at last reports only that it failed.
    """
    try:
        address = make_conninfo(database_url, connect_timeout=connect_options(settings)["connect_timeout"])
    except psycopg.ProgrammingError:
        # The driver's message quotes the address, and with it the password.
        raise SettingsError("DATABASE_URL cannot be read as the address of a PostgreSQL server.") from None
    check_version(schema_version(address))
