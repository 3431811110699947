"""Shares the client's connections among the tasks of a worker: a task that finds none free waits.

The client's own pool gives up after DATABASE_POOL_WAIT_SEC. That is right for a user's request; a task has a
lease, which is renewed meanwhile, and a failure would make it start again, with more work than before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar

from fencepost.database import AsyncDatabase
from fencepost.kernel.call import Call
from fencepost.transaction import Transaction

T = TypeVar("T")


class BoundedClient:
    """`run` and `transaction` of a client, with a limit on concurrent calls."""

    def __init__(self, fp: AsyncDatabase, places: int) -> None:
        self._fp = fp
        self._places = asyncio.Semaphore(places)

    async def run(self, call: Call[T]) -> T:
        async with self._places:
            return await self._fp.run(call)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        async with self._places, self._fp.transaction() as tx:
            yield tx
