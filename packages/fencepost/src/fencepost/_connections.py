"""The connections of one client: its pool, one call, one transaction, one notification.

Written once for both forms of the client: the drivers answer with an awaitable, or block (`sync_form`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar, cast

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from fencepost._connection_line import ConnectionLine
from fencepost._instrumentation import CallObserver
from fencepost._sync_form import settled
from fencepost.kernel import _lineage as lineage
from fencepost.kernel import _notify as notify
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.listener import Listener
from fencepost.logs import get_logger
from fencepost.metrics import Metrics
from fencepost.pool import (
    CallLost,
    Pool,
    PooledConnection,
    PoolExhausted,
    examine,
    is_dropped,
    pool_options,
)
from fencepost.settings import Settings
from fencepost.transaction import AnyTransaction, open_transaction, roll_back

T = TypeVar("T")
_log = get_logger(__name__)
LINEAGE_SECONDS = 1.0
"""How old the last look at the database's history may be: what a mark does not cover is not compared."""


class Connections(Generic[AnyTransaction]):
    """The connections of a client, awaited for `Transaction` and blocking for `SyncTransaction`."""

    def __init__(
        self,
        database_url: str,
        settings: Settings,
        metrics: Metrics,
        observer: CallObserver,
        owner: str,
        kind: type[AnyTransaction],
    ) -> None:
        self.database_url = database_url
        self.settings = settings
        self.metrics = metrics
        self.observer = observer
        self.owner = owner
        self._kind: type[AnyTransaction] = kind
        self.is_blocking: bool = kind.is_blocking
        self._name = "service-sync" if self.is_blocking else "service"
        options: dict[str, Any] = {"name": self._name, **pool_options(settings)}
        self._pool: Any = (
            ConnectionPool(database_url, connection_class=PooledConnection, **options)
            if self.is_blocking
            else Pool(database_url, **options)
        )
        self.after_commit: Callable[[], Awaitable[None]] | None = None
        """Called after each commit, when the connection is back in the pool. Only tests set it."""
        self._standby_pool: Any = None
        self._mark: str | None = None
        """The last that the database showed of its history."""
        self._check_at = 0.0
        self._listener: Listener | None = None
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, and refuse a schema that this code cannot work with."""
        await self.in_thread(examine, self.database_url, self.settings)
        try:
            await settled(self._pool.open())
            await settled(self._pool.wait(self.settings.connect_seconds))
        except BaseException:
            await settled(self._pool.close())
            raise
        self.metrics.watch_pool(self._name, self._pool.get_stats)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listener = self._listening = None
        await settled(self._pool.close())
        if self._standby_pool is not None:
            await settled(self._standby_pool.close())
        # Closing may wait for a server that does not answer, so it must not block the event loop.
        await self.in_thread(self.observer.close)

    async def run(self, call: Call[T]) -> T:
        """One kernel call in its own transaction."""
        connection = await self.borrow()
        try:
            with self.observer.watch(call):
                answer = await settled(cast("Any", run)(connection, call))
            if connection.unconfirmed is not None:
                self.observer.lost_commit()
                raise CallLost.unconfirmed(connection.unconfirmed)
        except psycopg.OperationalError as error:
            if connection.closed:
                self.observer.lost_commit()
                raise CallLost.by(error) from error
            raise
        finally:
            await settled(self._pool.putconn(connection))
        if self.after_commit is not None:
            await self.after_commit()
        return cast("T", answer)

    async def read_aside(self, call: Call[T]) -> tuple[lineage.ReadAge, T]:
        """A read from the standby of the settings, with how old that may be; from the primary without one, or
        when the standby does not answer."""
        url = self.settings.standby_database_url
        if url is not None:
            try:
                return await self._read_from_standby(url, call)
            except (psycopg.OperationalError, PoolTimeout) as error:
                # It is away, or it cancelled the read to follow its primary.
                _log.warning("standby_not_read", error=str(error))
        return lineage.PRIMARY, await self.run(call)

    async def _read_from_standby(self, url: str, call: Call[T]) -> tuple[lineage.ReadAge, T]:
        if self._standby_pool is None:
            options: dict[str, Any] = {**pool_options(self.settings), "name": "standby", "min_size": 0}
            self._standby_pool = (
                ConnectionPool(url, connection_class=PooledConnection, **options)
                if self.is_blocking
                else Pool(url, **options)
            )
            await settled(self._standby_pool.open())
        connection = await settled(self._standby_pool.getconn(self.settings.connect_seconds))
        try:
            # Asked first: what is read then is newer.
            age = await settled(cast("Any", run)(connection, lineage.read_age()))
            return age, cast("T", await settled(cast("Any", run)(connection, call)))
        finally:
            await settled(self._standby_pool.putconn(connection))

    @asynccontextmanager
    async def transaction(
        self,
        first: Call[Any] | None = None,
        last: Callable[[], Call[Any]] | None = None,
        line: ConnectionLine | None = None,
    ) -> AsyncGenerator[AnyTransaction]:
        """One transaction. It commits at the end of the block, unless the block raised or was refused."""
        if line is None:
            connection = await self.borrow()
            try:
                async with open_transaction(connection, self.observer, self._kind, first, last) as tx:
                    yield tx
            finally:
                await settled(self._pool.putconn(connection))
        else:
            place = await line.take(self, first)
            try:
                async with open_transaction(
                    place.connection, self.observer, self._kind, first, last, line, place
                ) as tx:
                    yield tx
            finally:
                await line.leave(place)
        if self.after_commit is not None:
            await self.after_commit()

    async def pause(self, seconds: float) -> None:
        if self.is_blocking:
            time.sleep(seconds)  # noqa: ASYNC251 -- There is no event loop.
        else:
            await asyncio.sleep(seconds)

    @asynccontextmanager
    async def hearing(self, topic: str) -> AsyncGenerator[Callable[[float], Any]]:
        """Listen to a topic. Calling the value waits for the next notification, at most so many seconds."""
        if self.is_blocking:
            with psycopg.connect(
                self.listen_url, autocommit=True, application_name="fencepost-result"
            ) as connection:
                connection.execute(notify.LISTEN)
                yield lambda seconds: _hear(connection, topic, seconds)
            return
        told = asyncio.Event()
        wake, listener = told.set, self._shared_listener()
        listener.on(topic, wake)
        try:
            yield lambda seconds: _told(told, seconds)
        finally:
            listener.off(topic, wake)

    @property
    def listen_url(self) -> str:
        return self.settings.listen_database_url or self.database_url

    def _shared_listener(self) -> Listener:
        """Listening begins with the first subscriber, and ends with the client."""
        if self._listener is None:
            self._listener = Listener(self.listen_url)
            self._listening = asyncio.create_task(self._listener.run(), name="fencepost-results")
        return self._listener

    async def borrow(self) -> Any:
        """A connection that the server has not dropped, as far as this machine knows: the call that finds out
        could not say whether it happened."""
        end = time.monotonic() + self.settings.pool_wait_seconds
        try:
            while True:
                connection = await settled(self._pool.getconn(end - time.monotonic()))
                if not is_dropped(connection) and await self._is_in_order(connection):
                    connection.unconfirmed = None
                    return connection
                await settled(connection.close())
                await settled(self._pool.putconn(connection))
        except PoolTimeout as error:
            raise PoolExhausted.by(self._pool.get_stats(), self.settings) from error

    async def give_back(self, connection: Any) -> None:
        """Return a connection to the pool, whatever is open on it."""
        if connection.info.transaction_status != TransactionStatus.IDLE:
            await roll_back(connection)
        await settled(self._pool.putconn(connection))

    def may_hand_on(self, connection: Any) -> bool:
        """Whether another task may have the connection as it is: `borrow` looks at it from time to time."""
        connection.unconfirmed = None
        is_plain = not connection.closed and connection.pgconn.pipeline_status == PipelineStatus.OFF
        return is_plain and time.monotonic() < self._check_at

    async def _is_in_order(self, connection: Any) -> bool:
        """Ask a new connection, and any once a second, whether the database has lost commits. False if the
        connection broke.

        A client that was answered from what is lost holds tokens that may be issued again: nothing else is
        done on the connection before the database knows.
        """
        now = time.monotonic()
        if connection.is_checked and now < self._check_at:
            return True
        # Others need not ask at the same time.
        self._check_at = now + LINEAGE_SECONDS
        call = lineage.check(self._mark, recover=self.settings.recover == "auto")
        try:
            found = await settled(cast("Any", run)(connection, call))
        except psycopg.OperationalError as error:
            # At a stricter level than ours, another client's mark is a conflict.
            if connection.closed or isinstance(error, psycopg.errors.SerializationFailure):
                return False
            await settled(self._pool.putconn(connection))
            raise
        except BaseException:
            await settled(self._pool.putconn(connection))
            raise
        refusal = found.refusal()
        if refusal is not None:
            await settled(self._pool.putconn(connection))
            self.observer.refused(refusal)
            raise refusal
        if found.state == "recovered":
            _log.warning("database_lost_commits", epoch=found.epoch, evidence=found.evidence)
        self._mark = found.mark
        connection.is_checked = True
        return True

    async def in_thread(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function that blocks, beside the event loop if there is one."""
        await settled(function(*arguments) if self.is_blocking else asyncio.to_thread(function, *arguments))


async def _told(told: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await told.wait()
    told.clear()


def _hear(connection: psycopg.Connection[Any], topic: str, seconds: float) -> None:
    """Returns at the topic's notification, or when the time is over. Ignores other topics."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for notice in connection.notifies(timeout=left, stop_after=1):
            if notice.payload == topic:
                return
