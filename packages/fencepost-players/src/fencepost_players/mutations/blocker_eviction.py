"""Terminates backends that hold a row past the limit while others wait for it.

PostgreSQL ends a transaction that idles. One that hangs inside COPY, or with a result that its client does
not read, does not idle and survives every timeout. So while a mutation waits, this checks for blockers: the
database knows how long the mutation has waited, and terminates the holder when that exceeds the limit.
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
    """A store that can terminate backends that hold a plan's rows past the limit."""

    def evict(self, planned: Planned[Any]) -> Call[list[int]]:
        """Terminates no backend before the service's own limit; returns the pids of those it terminated."""
        ...


class BlockerEviction:
    """The checks of one node: one at a time, over a connection of its own, because those of the pool may all
    be waiting."""

    def __init__(self, database_url: str, patience: EvictionDelay, evictions: Counter) -> None:
        self._database_url = database_url
        self._patience = patience
        self._evictions = evictions
        self._looking = asyncio.Lock()

    async def keep(self, attempt: Coroutine[Any, Any, T], evict: Callable[[], Call[list[int]]]) -> T:
        """Await the attempt, and check for blockers while it waits for a row."""

        async def look() -> None:
            async with self._looking:
                await self._look(evict())

        return await outwait(attempt, look, self._patience)

    async def _look(self, evict: Call[list[int]]) -> None:
        try:
            async with connecting(self._database_url) as connection:
                ended = await run(connection, evict)
        except psycopg.Error as error:
            # The attempt goes on waiting, and raises by itself when it reaches its own limit.
            _log.warning("not_evicted", error=str(error))
            return
        if ended:
            self._evictions.inc(len(ended))
            _log.warning("evicted", backends=ended)
