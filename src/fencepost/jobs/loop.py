"""A loop: start, stop, tick, and nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from prometheus_client import Counter

from fencepost.signals import announce

_log = structlog.get_logger(__name__)


class Loop:
    """Calls `tick` until it is stopped. A tick answers how long to wait, in seconds; `wake` cuts the wait
    short.

    Whatever a tick raises is counted, logged and waited for: a loop that dies in silence is the worst of
    bugs.
    """

    def __init__(self, name: str, tick: Callable[[], Awaitable[float]], errors: Counter) -> None:
        self.name = name
        self._tick = tick
        self._errors = errors
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"fencepost-{self.name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def wake(self) -> None:
        self._awake.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            self._awake.clear()
            try:
                wait_seconds = await self._tick()
                failures = 0
            except Exception as error:
                failures += 1
                wait_seconds = min(30.0, 0.1 * 2**failures) * random.uniform(0.9, 1.1)  # noqa: S311
                self._errors.labels(loop=self.name).inc()
                _log.warning(
                    "loop_failed", loop=self.name, error=f"{type(error).__name__}: {error}", failures=failures
                )
            announce(f"{self.name}.ticked")
            if wait_seconds > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._awake.wait(), wait_seconds)
