"""The one value that carries pools and settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from fencepost.errors import Refusal, ServerUnavailable
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.kernel.lease import owner_name
from fencepost.kernel.migrate import VERSION_QUERY, check_version
from fencepost.metrics import KernelMetrics, Metrics
from fencepost.recorder import RefusalRecorder
from fencepost.settings import Settings
from fencepost.transaction import SyncTransaction, Transaction, open_sync_transaction, open_transaction
from fencepost.whereabouts import of_this_directory

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class Fencepost:
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
        self._counts = KernelMetrics.on(self.metrics)
        self._recorder = RefusalRecorder(
            database_url, self.owner, on_drop=self._counts.unrecorded_refusals.inc
        )
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] = AsyncConnectionPool(
            database_url, open=False, name="service", **_pool_options(self.settings)
        )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, config_file: Path | None = None) -> Self:
        """From DATABASE_URL, or from the embedded pair that `fencepost up` runs in this directory."""
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
        async with AsyncExitStack() as undo:
            await self._pool.open()
            undo.push_async_callback(self.close)
            try:
                await self._pool.wait(self.settings.connect_seconds)
            except psycopg.OperationalError as error:
                raise _unreachable(error) from error
            async with self._pool.connection() as connection:
                check_version(await _installed_version(connection))
            undo.pop_all()
        self.metrics.watch_pool("service", self._pool.get_stats)

    async def close(self) -> None:
        await self._pool.close()
        self._recorder.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """One transaction. It commits at the end of the block, unless the block raised or was refused."""
        async with (
            self._pool.connection() as connection,
            open_transaction(connection, self.note_refusal) as tx,
        ):
            yield tx

    async def run(self, call: Call[T]) -> T:
        """One kernel call in a transaction of its own."""
        try:
            async with self._pool.connection() as connection:
                return await run(connection, call)
        except Refusal as refusal:
            self.note_refusal(refusal)
            raise

    @contextmanager
    def sync(self) -> Generator[SyncFencepost]:
        """The same for code without an event loop, with a pool of its own."""
        with SyncFencepost(self.database_url, self.settings, self) as facade:
            yield facade

    def note_refusal(self, refusal: Refusal) -> None:
        """Count, log and record a refusal."""
        self._counts.refusals.labels(reason=refusal.reason, noun=refusal.noun or "unknown").inc()
        _log.info(
            "refused",
            reason=refusal.reason,
            noun=refusal.noun,
            subject=refusal.subject,
            attempted=dict(refusal.attempted),
            seen=dict(refusal.seen),
        )
        self._recorder.note(refusal)


class SyncFencepost:
    """`Fencepost` for Django, Flask and scripts: the same calls, without an event loop."""

    def __init__(self, database_url: str, settings: Settings, parent: Fencepost) -> None:
        self._parent = parent
        self._settings = settings
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            database_url, open=False, name="service-sync", **_pool_options(settings)
        )

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._pool.open()
            undo.callback(self._pool.close)
            try:
                self._pool.wait(self._settings.connect_seconds)
            except psycopg.OperationalError as error:
                raise _unreachable(error) from error
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    @contextmanager
    def transaction(self) -> Generator[SyncTransaction]:
        with (
            self._pool.connection() as connection,
            open_sync_transaction(connection, self._parent.note_refusal) as tx,
        ):
            yield tx

    def run(self, call: Call[T]) -> T:
        try:
            with self._pool.connection() as connection:
                return run(connection, call)
        except Refusal as refusal:
            self._parent.note_refusal(refusal)
            raise


def _pool_options(settings: Settings) -> dict[str, Any]:
    return {
        "min_size": settings.pool_min,
        "max_size": settings.pool_max,
        "timeout": settings.pool_wait_seconds,
        # Transactions are begun and committed by us, aloud; everything else is one statement.
        "kwargs": {
            "autocommit": True,
            "connect_timeout": max(1, round(settings.connect_seconds)),
            "application_name": "fencepost",
        },
    }


async def _installed_version(connection: psycopg.AsyncConnection[Any]) -> int | None:
    try:
        cursor = await connection.execute(VERSION_QUERY, ("kernel",))
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return None
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


def _unreachable(error: psycopg.OperationalError) -> ServerUnavailable:
    return ServerUnavailable(f"PostgreSQL cannot be reached: {error}. Check DATABASE_URL and the server.")
