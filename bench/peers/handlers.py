# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN201
# The packages it imports are those of the peers' environments, which the checkers here do not see.
"""The handlers of this benchmark: they do nothing, make one write, or wait until they may continue.

Runs inside the environments of the peers, which all have psycopg.
"""

from __future__ import annotations

import asyncio
import time

from psycopg_pool import AsyncConnectionPool, ConnectionPool
from runner import PeerTask

CONNECTIONS = 10
ALLOWED_SECONDS = 0.02
WRITE = "insert into public.effect (job, who) values (%s, %s)"


class AsyncHandlers:
    """For libraries that run coroutines."""

    def __init__(self, order: PeerTask) -> None:
        self.results = order.results
        self.who = order.worker
        self._url = order.admin_url
        self._pool: AsyncConnectionPool | None = None

    async def empty(self) -> None:
        self.results.count()

    async def timed(self, at: float) -> None:
        self.results.waited(at)

    async def write(self) -> None:
        """One commit of the handler's own, besides what the library does to finish the job."""
        await self.effect("load")
        self.results.count()

    async def zombie(self) -> str:
        """Starts, is stopped by a signal from outside, continues: writes, and returns its worker."""
        self.results.act(self.who, "started")
        await self.wait_until_allowed()
        await self.effect("zombie")
        self.results.act(self.who, "wrote")
        return self.who

    def functions(self):
        """The same as plain functions, for libraries that inspect their parameters."""

        async def empty() -> None:
            await self.empty()

        async def write() -> None:
            await self.write()

        async def timed(at: float) -> None:
            await self.timed(at)

        async def zombie() -> str:
            return await self.zombie()

        return {function.__name__: function for function in (empty, write, timed, zombie)}

    async def wait_until_allowed(self) -> None:
        while not self.results.is_allowed(self.who):  # noqa: ASYNC110 -- Another process opens it.
            await asyncio.sleep(ALLOWED_SECONDS)

    async def effect(self, job: str) -> None:
        if self._pool is None:
            self._pool = AsyncConnectionPool(
                self._url, min_size=1, max_size=CONNECTIONS, open=False, kwargs={"autocommit": True}
            )
            await self._pool.open()
        async with self._pool.connection() as connection:
            await connection.execute(WRITE, (job, self.who))


class SyncHandlers:
    """For libraries that run functions, in threads or in processes."""

    def __init__(self, order: PeerTask) -> None:
        self.results = order.results
        self.who = order.worker
        self._url = order.admin_url
        self._pool: ConnectionPool | None = None

    def empty(self) -> None:
        self.results.count()

    def timed(self, at: float) -> None:
        self.results.waited(at)

    def write(self) -> None:
        self.effect("load")
        self.results.count()

    def zombie(self) -> str:
        self.results.act(self.who, "started")
        self.wait_until_allowed()
        self.effect("zombie")
        self.results.act(self.who, "wrote")
        return self.who

    def wait_until_allowed(self) -> None:
        while not self.results.is_allowed(self.who):
            time.sleep(ALLOWED_SECONDS)

    def effect(self, job: str) -> None:
        if self._pool is None:
            self._pool = ConnectionPool(
                self._url, min_size=1, max_size=CONNECTIONS, open=True, kwargs={"autocommit": True}
            )
        with self._pool.connection() as connection:
            connection.execute(WRITE, (job, self.who))
