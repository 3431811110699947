"""Connections of one sink to an external database: a bounded number, shared by all tasks of the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from fencepost.flows._errors import FlowError, StartRefused

Connection = psycopg.AsyncConnection[Any]
CONNECT_SECONDS = 10
CONNECTIONS = 8
_ROOM = """
    select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
      (select r.rolconnlimit from pg_roles r where r.rolname = current_user),
      (select d.datconnlimit from pg_database d where d.datname = current_database())"""


class SinkPool:
    """A task that finds no free connection waits without a deadline: its lease is renewed meanwhile."""

    def __init__(self, sink: str, url: str, connections: int) -> None:
        if connections < 1:
            raise FlowError(f"connections of {sink} is {connections}; allowed: 1 and more.")
        self._sink = sink
        self._url = url
        self._bound = connections
        self._slots: asyncio.Semaphore | None = None
        self._idle: list[Connection] = []
        self._taken: dict[Connection, asyncio.Semaphore] = {}

    async def examine(self) -> None:
        """Raise StartRefused if the server does not allow this sink that many connections."""
        async with self.connection() as connection:
            row: Any = await (await connection.execute(_ROOM)).fetchone()
        limits = dict(zip(("its server", "its login", "its database"), row, strict=True))
        for what, limit in limits.items():
            # -1 means no limit.
            if 0 <= limit < self._bound:
                raise StartRefused(
                    f"{self._sink} may open {self._bound} connections, and {what} allows {limit}. Give the "
                    f"sink connections={max(1, limit)} or fewer, or raise the limit there (max_connections, "
                    "alter role ... connection limit, alter database ... connection limit)."
                )

    async def close(self) -> None:
        self._slots = None
        await self._part()

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        connection = await self.take()
        try:
            yield connection
        except psycopg.OperationalError:
            # The server is gone, or has terminated the session: the idle connections are dead too.
            await self._part()
            raise
        finally:
            await self.give_back(connection)

    async def take(self) -> Connection:
        """Return a connection outside any transaction. The caller must give it back."""
        slots = self._slots = self._slots or asyncio.Semaphore(self._bound)
        await slots.acquire()
        try:
            connection = self._rested() or await psycopg.AsyncConnection.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=CONNECT_SECONDS,
                application_name="fencepost",
            )
        except BaseException:
            slots.release()
            raise
        self._taken[connection] = slots
        return connection

    async def give_back(self, connection: Connection) -> None:
        slots = self._taken.pop(connection)
        try:
            # Do not return it to a pool that was closed meanwhile.
            if slots is self._slots and connection.info.transaction_status is TransactionStatus.IDLE:
                self._idle.append(connection)
            else:
                await connection.close()
        finally:
            slots.release()

    def _rested(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def _part(self) -> None:
        while self._idle:
            await self._idle.pop().close()
