"""What a process of a run does, from its fork to its end.

The fork server performs `prepare`, so that a process that was killed is replaced quickly. A process can be
told while it runs to send itself a signal at a crash point: it reads its `Slot` at each.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fencepost import crashpoints
from fencepost.kernel.migrate import kernel
from fencepost_torture._system_environment import ProcessTask
from fencepost_torture._wall_clocks import go_by
from fencepost_torture.systems import system_of

TELL_WHERE = signal.SIGUSR1
"""A process that gets this signal writes the stack of each of its threads."""
HALF_BYTES = mmap.PAGESIZE // 2


class Slot:
    """A page that a process shares with the pool: its order, and the crash point where it obeyed."""

    def __init__(self, file: Path) -> None:
        with file.open("ab") as opened:
            opened.truncate(mmap.PAGESIZE)
        with file.open("r+b") as opened:
            self._page = mmap.mmap(opened.fileno(), mmap.PAGESIZE)
        self._version = 0

    @property
    def version(self) -> int:
        """A number that changes with each order, and is 0 while one is being written. One byte: written at
        once."""
        return self._page[0]

    def order(self, text: str) -> None:
        self._page[0] = 0
        self._put(1, text)
        self._version = self._version % 255 + 1
        self._page[0] = self._version

    def ordered(self) -> str:
        return self._get(1)

    def obey(self, point: str) -> None:
        self._put(HALF_BYTES, point)

    def obeyed(self) -> str:
        """The crash point where it obeyed since the last call; empty when it did not."""
        point = self._get(HALF_BYTES)
        self._put(HALF_BYTES, "")
        return point

    def close(self) -> None:
        self._page.close()

    def _put(self, at: int, text: str) -> None:
        data = text.encode() + b"\0"
        self._page[at : at + len(data)] = data

    def _get(self, at: int) -> str:
        return self._page[at : self._page.find(b"\0", at)].decode()


class ProcessControl:
    """Watches the crash points of a process, and reads its slot at each."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._version = 0
        self._watcher: crashpoints.Watcher | None = None

    def __call__(self, reached: str) -> None:
        version = self._slot.version
        if version and version != self._version:
            self._version, self._watcher = version, self._read()
        if self._watcher is not None:
            self._watcher(reached)

    def _read(self) -> crashpoints.Watcher | None:
        order = self._slot.ordered()
        if not order:
            return None
        point, signum, nth = order.split()

        def obey() -> None:
            self._slot.obey(point)
            os.kill(os.getpid(), int(signum))

        return crashpoints.at(point, obey, nth=int(nth))


def prepare(*systems: str) -> None:
    """Import what the systems need."""
    for name in systems:
        system_of(name).load()
    # What a client compares the database with when it opens: otherwise each process reads the same files.
    kernel()


def serve(facts: Mapping[str, Any], slot: str) -> None:
    """The whole life of a process."""
    task, code = ProcessTask(**facts), 1
    try:
        faulthandler.register(TELL_WHERE, file=sys.stderr)
        go_by(task.clock)
        with crashpoints.watching(ProcessControl(Slot(Path(slot)))):
            system_of(task.system).serve(task)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
