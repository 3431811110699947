"""Runs one request at a time for each hot row, in the order of arrival.

Requests that must be planned on the locked row would each take a connection and wait for the lock on it. They
wait here instead: a node has one of them in the database for each row, and the pool stays free for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fencepost_players.mutations.errors import Aborted

# The same limit as a mutation's wait for the row itself.
WAIT_SECONDS_MAX = 30.0


@dataclass(slots=True)
class _Line:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class RowQueues:
    """The queues of one node, by scope."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def is_busy(self, scope: str) -> bool:
        return scope in self._lines

    @asynccontextmanager
    async def turn(self, scope: str) -> AsyncGenerator[None]:
        line = self._lines.setdefault(scope, _Line())
        line.length += 1
        try:
            await _acquire(line.turn)
            try:
                yield
            finally:
                line.turn.release()
        finally:
            line.length -= 1
            if line.length == 0:
                del self._lines[scope]


async def _acquire(turn: asyncio.Lock) -> None:
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await turn.acquire()
    except TimeoutError:
        raise Aborted(
            "Others have waited for the same rows all the time. Nothing was written; send it again.",
            reason="contention",
            retry_seconds=WAIT_SECONDS_MAX / 3,
        ) from None
