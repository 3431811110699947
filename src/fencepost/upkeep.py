"""Forgetting what nobody needs any more: on every process that stays, at once, without an election.

A batch of a fixed size at a fixed interval is a fixed rate, and one day the load is above it. So a tick
deletes batch after batch until one is short. SKIP LOCKED parts the work among the processes.
"""

from __future__ import annotations

import asyncio
import random
from typing import Protocol, TypeVar

from fencepost.kernel import outbox, refusal
from fencepost.kernel.call import Call
from fencepost.logs import get_logger
from fencepost.settings import Settings
from fencepost.signals import announce

T = TypeVar("T")
_log = get_logger(__name__)
BATCH = 1000
BATCHES_PER_TICK = 50
TICK_SECONDS = 60.0


class Database(Protocol):
    async def run(self, call: Call[T]) -> T: ...


async def until_short(database: Database, forget: Call[int], batch: int = BATCH) -> bool:
    """Batch after batch until one is not full, and whether one was: a stopping process is not waited for."""
    for _ in range(BATCHES_PER_TICK):
        if await database.run(forget) < batch:
            return True
    return False


class Upkeep:
    """Settled messages, events, and recorded refusals. `tick` is for who has loops, `run` for others."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    async def tick(self) -> float:
        settings = self._settings
        messages = await until_short(self._database, outbox.prune(settings.message_keep_seconds, BATCH))
        history = await until_short(self._database, refusal.prune(settings.history_keep_seconds, BATCH))
        announce("upkeep.done")
        # Jittered, so that many processes do not prune at once; and at once again while there is more.
        return TICK_SECONDS * random.uniform(0.8, 1.2) if messages and history else 0.0  # noqa: S311

    async def run(self) -> None:
        """Until it is cancelled. A server that is away for a while is waited for."""
        while True:
            try:
                wait_seconds = await self.tick()
            except Exception as error:
                _log.warning("upkeep_failed", error=f"{type(error).__name__}: {error}")
                wait_seconds = TICK_SECONDS
            await asyncio.sleep(wait_seconds)
