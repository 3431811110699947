"""The client of the kernel: it holds the pools and the settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from fencepost.errors import Refusal
from fencepost.instrumentation import CallObserver
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.kernel.lease import owner_name
from fencepost.metrics import Metrics
from fencepost.pool import CallLost, Pool, PoolExhausted, examine, pool_options
from fencepost.server_addresses import of_this_directory
from fencepost.settings import Settings
from fencepost.transaction import SyncTransaction, Transaction, open_sync_transaction, open_transaction

T = TypeVar("T")


class KernelClient:
    """Exactly-once effects on one database.

    async with Fencepost.from_env() as fp:
        async with fp.transaction() as tx:
            claim = await tx.claim("player:7", request_id)
    """

    def __init__(
        self, database_url: str, *, settings: Settings | None = None, metrics: Metrics | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.database_url = database_url
        self.owner = owner_name("fencepost")
        self.metrics = metrics or Metrics()
        self._observer = CallObserver.of(database_url, self.owner, self.settings, self.metrics)
        self._pool = Pool(database_url, name="service", **pool_options(self.settings))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, config_file: Path | None = None) -> Self:
        """Reads DATABASE_URL, or uses the embedded pair that `fencepost up` runs in this directory."""
        settings = Settings.load(environ, config_file)
        return cls(of_this_directory(settings).service_url, settings=settings)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and refuse a schema that this code cannot work with."""
        await asyncio.to_thread(examine, self.database_url, self.settings)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._pool.close)
            await self._pool.open()
            await self._pool.wait(self.settings.connect_seconds)
            undo.pop_all()
        self.metrics.watch_pool("service", self._pool.get_stats)

    async def close(self) -> None:
        await self._pool.close()
        # Closing may wait for a server that does not answer, so it must not block the event loop.
        await asyncio.to_thread(self._observer.close)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """One transaction. It commits at the end of the block, unless the block raised or was refused."""
        connection = await self._borrow()
        try:
            async with open_transaction(connection, self._observer) as tx:
                yield tx
        finally:
            await self._pool.putconn(connection)

    async def run(self, call: Call[T]) -> T:
        """One kernel call in its own transaction."""
        connection = await self._borrow()
        try:
            with self._observer.watch(call):
                return await run(connection, call)
        except psycopg.OperationalError as error:
            if connection.closed:
                self._observer.lost_commit()
                raise CallLost.by(error) from error
            raise
        finally:
            await self._pool.putconn(connection)

    def sync(self) -> SyncKernelClient:
        """The same client for code without an event loop, with its own pool: `with fp.sync() as sync_fp`."""
        return SyncKernelClient(self.database_url, self.settings, self.metrics, self._observer)

    def note_refusal(self, refusal: Refusal) -> None:
        """Count, log and record a refusal that was raised on a connection of yours."""
        self._observer.refused(refusal)

    async def _borrow(self) -> psycopg.AsyncConnection[Any]:
        try:
            return await self._pool.getconn()
        except PoolTimeout as error:
            raise PoolExhausted.by(self._pool.get_stats(), self.settings) from error


class SyncKernelClient:
    """`KernelClient` for Django, Flask and scripts: the same calls, without an event loop."""

    def __init__(
        self, database_url: str, settings: Settings, metrics: Metrics, observer: CallObserver
    ) -> None:
        self.database_url = database_url
        self.settings = settings
        self.metrics = metrics
        self._observer = observer
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            database_url, name="service-sync", **pool_options(settings)
        )

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect, and refuse a schema that this code cannot work with."""
        examine(self.database_url, self.settings)
        with ExitStack() as undo:
            undo.callback(self._pool.close)
            self._pool.open()
            self._pool.wait(self.settings.connect_seconds)
            undo.pop_all()
        self.metrics.watch_pool("service-sync", self._pool.get_stats)

    def close(self) -> None:
        self._pool.close()
        self._observer.close()

    @contextmanager
    def transaction(self) -> Generator[SyncTransaction]:
        """One transaction. It commits at the end of the block, unless the block raised or was refused."""
        connection = self._borrow()
        try:
            with open_sync_transaction(connection, self._observer) as tx:
                yield tx
        finally:
            self._pool.putconn(connection)

    def run(self, call: Call[T]) -> T:
        """One kernel call in its own transaction."""
        connection = self._borrow()
        try:
            with self._observer.watch(call):
                return run(connection, call)
        except psycopg.OperationalError as error:
            if connection.closed:
                self._observer.lost_commit()
                raise CallLost.by(error) from error
            raise
        finally:
            self._pool.putconn(connection)

    def note_refusal(self, refusal: Refusal) -> None:
        """Count, log and record a refusal that was raised on a connection of yours."""
        self._observer.refused(refusal)

    def _borrow(self) -> psycopg.Connection[Any]:
        try:
            return self._pool.getconn()
        except PoolTimeout as error:
            raise PoolExhausted.by(self._pool.get_stats(), self.settings) from error
