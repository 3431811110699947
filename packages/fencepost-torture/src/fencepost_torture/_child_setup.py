"""What all processes of a torture run have in common."""

from __future__ import annotations

import asyncio
import signal
from types import FrameType

from fencepost.cli.shutdown import SignalEvent
from fencepost.settings import Settings

# Short timeouts: a server that is down is asked again instead of being waited for.
PATIENT = Settings(
    pool_min=0, pool_max=2, pool_wait_seconds=3.0, connect_seconds=3.0, redis_reply_seconds=2.0
)


def until_told_to_end() -> SignalEvent:
    """An event that SIGTERM sets. For the main thread of a process."""
    ending = SignalEvent()

    def end(_signum: int, _frame: FrameType | None) -> None:
        ending.set()

    signal.signal(signal.SIGTERM, end)
    return ending


def told_to_end() -> asyncio.Event:
    """The same inside an event loop."""
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    return ending
