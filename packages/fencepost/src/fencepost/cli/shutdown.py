"""Stop requests to a long-running command: Ctrl-C, a service manager, a closed terminal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from fencepost.cli.exit_codes import ExitCode

POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A launcher may forward a signal that the terminal sent to both: two at once are one request.
SAME_WISH_SECONDS = 1.0


@contextmanager
def interrupted_by_all() -> Generator[None]:
    """SIGTERM and SIGHUP interrupt like Ctrl-C: for a command that cleans up wherever it is interrupted."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _hearing(interrupt):
        yield


@contextmanager
def _hearing(hear: Callable[[int, FrameType | None], None]) -> Generator[None]:
    before = {number: signal.signal(number, hear) for number in POLITE}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Shutdown:
    """The first stop request is remembered until the command checks for it; a second one exits at once.

    Nothing is interrupted halfway: what is starting finishes starting, and is then stopped in order. To exit
    at once is safe too, because each server has a reaper process that ends it when this process is gone.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,  # pyright: ignore[reportPrivateUsage] - Documented.
    ) -> None:
        self._clock = clock
        self._leave = leave
        self._wished_at: float | None = None
        self._wished = threading.Event()

    def wait(self, seconds: float) -> bool:
        """True as soon as a stop is requested; False after `seconds` without a request."""
        return self._wished.wait(seconds)

    @contextmanager
    def listening(self) -> Generator[None]:
        """Count signals in this block instead of ending the process by them."""
        with _hearing(self._hear):
            yield

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        now = self._clock()
        if self._wished_at is None:
            self._wished_at = now
            self._wished.set()
        elif now - self._wished_at > SAME_WISH_SECONDS:
            self._leave(ExitCode.INTERRUPTED)
