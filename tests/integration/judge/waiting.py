"""Waiting in a test: for a condition by its name, with a deadline, and without a loop of one's own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencepost.embedded._deadline import PAUSES, Deadline

WAIT_SECONDS = 60
T = TypeVar("T")


async def until(condition: str, holds: Callable[[], bool]) -> None:
    """Meanwhile the loop goes on."""
    await asyncio.to_thread(Deadline(WAIT_SECONDS, condition).wait, holds)


async def found(
    condition: str,
    look: Callable[[], Awaitable[T]],
    is_it: Callable[[T], bool],
    *,
    within: float = WAIT_SECONDS,
) -> T:
    """What `look` answers as soon as it is the one; TimeoutError tells the last that was not."""
    clock, pauses = asyncio.get_running_loop().time, PAUSES.waits()
    end = clock() + within
    while not is_it(seen := await look()):
        if clock() >= end:
            raise TimeoutError(f"Timed out after {within:g} s waiting until {condition}: {seen!r}.")
        await asyncio.sleep(next(pauses))
    return seen
