"""Workers that stand still in the wrong moment do not keep others from what they were about to take."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from fencepost.embedded import Database
from fencepost.kernel import eviction
from fencepost.kernel.eviction import Patience


class Standing(psycopg.AsyncConnection[Any]):
    """Stands still between the answer and the commit, as a frozen process does."""

    stands = asyncio.Event()

    @asynccontextmanager
    async def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncGenerator[Any]:
        async with super().transaction(savepoint_name, force_rollback) as block:
            yield block
            self.stands.set()
            await asyncio.Event().wait()


async def test_a_taker_that_stands_still_before_its_commit_does_not_keep_the_next_one_out(
    database: Database,
) -> None:
    patience = Patience(idle_seconds_max=0.3)

    @asynccontextmanager
    async def connect(kind: type[psycopg.AsyncConnection[Any]]) -> AsyncGenerator[Any]:
        async with await kind.connect(database.url, autocommit=True) as connection:
            yield connection

    def takeover(owner: str) -> eviction.Takeover[Any]:
        return eviction.of_lease("r", owner, 60, grace_seconds=0)

    standing = asyncio.create_task(
        eviction.take_over(lambda: connect(Standing), takeover("a/boot-1"), patience)
    )
    async with asyncio.timeout(60):
        await Standing.stands.wait()

        taken = await eviction.take_over(
            lambda: connect(psycopg.AsyncConnection), takeover("b/boot-1"), patience
        )

    assert taken.resource == "r"
    standing.cancel()
    await asyncio.gather(standing, return_exceptions=True)
