"""Forks children and reaps them: what every fork server does.

A fork server has loaded everything that its children need, so a child is there in milliseconds. It has one
thread, as a process that forks should.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from fencepost.testing.child_main import die_with

CHUNK_BYTES = 65536


class Forker:
    """Made once in a process, which ends its children when it ends: the kernel does, on Linux."""

    def __init__(self, *, stops: bool = False) -> None:
        """With `stops`, a child that was stopped is reported too."""
        self._flags = os.WNOHANG | (os.WUNTRACED if stops else 0)
        self._wake, self._alarm = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._alarm, False)
        signal.signal(signal.SIGCHLD, _heard)
        signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)

    def fork(self, live: Callable[[], None]) -> int:
        """The pid of a new child, which calls `live` and must not return from it."""
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._wake)
            os.close(self._alarm)
            die_with(server)
            live()
            raise AssertionError("A forked child must exit in its own process.")
        return pid

    def run(
        self,
        orders: int,
        obey: Callable[[], bool],
        changed: Callable[[int, int], None],
        *,
        until: Sequence[int] = (),
    ) -> None:
        """Call `obey` when `orders` can be read, and `changed` with the pid and the status of a child that
        ended or stopped. Returns when `obey` returns False, or when a descriptor of `until` can be read."""
        while True:
            ready, _, _ = select.select([orders, *until, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, CHUNK_BYTES)
            for pid, status in self._changes():
                changed(pid, status)
            if any(descriptor in ready for descriptor in until) or (orders in ready and not obey()):
                return

    def _changes(self) -> Iterator[tuple[int, int]]:
        with contextlib.suppress(ChildProcessError):
            while (change := os.waitpid(-1, self._flags)) != (0, 0):
                yield change


def _heard(_signum: int, _frame: FrameType | None) -> None:
    """Does nothing: the wakeup descriptor reports the signal, but only if a handler is set."""
