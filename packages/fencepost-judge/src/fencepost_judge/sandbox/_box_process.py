"""The process of a box: started completely or not at all, and waited for until it ends."""

from __future__ import annotations

import asyncio
from typing import Any

MARGIN_SECONDS = 20.0


async def start_box(*words: Any, **options: Any) -> asyncio.subprocess.Process:
    """Start the process. A cancellation meanwhile is delayed to the caller's next await, where it can end the
    process.

    Cancelling the start itself would kill the process, which then leaves behind the cgroups that it created.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*words, **options))
    was_cancelled = False
    while not starting.done():
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            # Keeps the cancellation count right: a timeout, for example, checks whether another cancellation
            # is pending.
            task.uncancel()
            was_cancelled = True
    if was_cancelled:
        task.cancel()
    return starting.result()


async def see_off(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that was told to end. Its remaining output is read, so that it cannot block on
    writing."""
    try:
        async with asyncio.timeout(MARGIN_SECONDS):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
