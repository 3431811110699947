"""Whoever waits for a row that somebody holds for too long has him ended.

A transaction that idles is ended by PostgreSQL. One that stands still inside COPY, or with an answer that its
client does not read, does not idle and survives every timeout. So while a mutation waits, somebody looks: the
database knows since when it has waited, and ends the holder when that is longer than anybody may hold a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, runtime_checkable

import psycopg
from prometheus_client import Counter

from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.kernel.eviction import EvictionDelay, connecting, outwait
from fencepost.logs import get_logger
from fencepost_players.mutations.planning import Planned

T = TypeVar("T")
_log = get_logger(__name__)


@runtime_checkable
class Evicts(Protocol):
    """A ledger that can end whoever holds a plan's rows for too long."""

    def evict(self, planned: Planned[Any]) -> Call[list[int]]:
        """Ends nobody before the service's own bound; answers the backends that it ended."""
        ...


class BlockerEviction:
    """The looks of one node: one at a time, over a connection of its own, because those of the pool may all
    be waiting."""

    def __init__(self, database_url: str, patience: EvictionDelay, evictions: Counter) -> None:
        self._database_url = database_url
        self._patience = patience
        self._evictions = evictions
        self._looking = asyncio.Lock()

    async def keep(self, attempt: Coroutine[Any, Any, T], evict: Callable[[], Call[list[int]]]) -> T:
        """Await the attempt, which waits for a row perhaps."""

        async def look() -> None:
            async with self._looking:
                await self._look(evict())

        return await outwait(attempt, look, self._patience)

    async def _look(self, evict: Call[list[int]]) -> None:
        try:
            async with connecting(self._database_url) as connection:
                ended = await run(connection, evict)
        except psycopg.Error as error:
            # The attempt goes on waiting, and tells by itself when it has waited long enough.
            _log.warning("not_evicted", error=str(error))
            return
        if ended:
            self._evictions.inc(len(ended))
            _log.warning("evicted", backends=ended)
