"""The process of a box: started whole or not at all, and seen to its end."""

from __future__ import annotations

import asyncio
from typing import Any

MARGIN_SECONDS = 20.0


async def start_box(*words: Any, **options: Any) -> asyncio.subprocess.Process:
    """The process; who is cancelled meanwhile is so at his next wait, when he can end what he has started.

    A start that is cancelled itself kills the process, which then leaves the cgroups that it has made.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*words, **options))
    was_cancelled = False
    while not starting.done():
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            # Counted once: whoever cancelled, as a timeout does, looks whether somebody else did too.
            task.uncancel()
            was_cancelled = True
    if was_cancelled:
        task.cancel()
    return starting.result()


async def see_off(process: asyncio.subprocess.Process) -> None:
    """It was told to end. What it still says is read, so that it cannot hang on that."""
    try:
        async with asyncio.timeout(MARGIN_SECONDS):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
