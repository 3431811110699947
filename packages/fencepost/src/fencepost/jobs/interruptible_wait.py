"""Waits that can end early."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def pause(seconds: float, unless: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await unless.wait()


async def unless_set(event: asyncio.Event, work: Coroutine[Any, Any, list[T]]) -> list[T]:
    """The result of the work, or nothing as soon as the event is set: then the work is cancelled."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else []
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.wait({working, waiting})
