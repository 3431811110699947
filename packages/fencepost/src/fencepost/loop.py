"""A loop with `start`, `stop` and `tick`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fencepost.backoff import Backoff
from fencepost.logs import get_logger
from fencepost.metrics import Counter
from fencepost.signals import announce

_log = get_logger(__name__)
LAST_TICK_SECONDS = 10.0
RETRIES = Backoff(0.2, 30.0)


class Loop:
    """Calls `tick` until it is stopped. A tick returns how long to wait, in seconds; `wake` ends the wait.

    An exception in a tick is counted and logged, and the loop retries after a delay: it never ends silently.
    """

    def __init__(self, name: str, tick: Callable[[], Awaitable[float]], errors: Counter) -> None:
        self.name = name
        self._tick = tick
        self._errors = errors
        self._awake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start ticking, in a task of its own."""
        self._task = asyncio.create_task(self._run(), name=f"fencepost-{self.name}")

    async def stop(self) -> None:
        """Let the tick finish: an interrupted tick leaves its claims to expire with their leases."""
        if self._task is None:
            return
        self._stopping = True
        self._awake.set()
        await asyncio.wait([self._task], timeout=LAST_TICK_SECONDS)
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def wake(self) -> None:
        """Tick now instead of after the pause."""
        self._awake.set()

    async def _run(self) -> None:
        failures = 0
        while not self._stopping:
            self._awake.clear()
            try:
                wait_seconds = await self._tick()
                failures = 0
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_for_us():
                    raise
                failures += 1
                wait_seconds = self._failed(error, failures)
            announce(f"{self.name}.ticked")
            if wait_seconds > 0 and not self._stopping:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await self._awake.wait()

    def _failed(self, error: BaseException, failures: int) -> float:
        self._errors.labels(loop=self.name).inc()
        _log.warning(
            "loop_failed", loop=self.name, error=f"{type(error).__name__}: {error}", failures=failures
        )
        return RETRIES.seconds(failures)


def _is_for_us() -> bool:
    """Whether this task itself was cancelled, and not something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
