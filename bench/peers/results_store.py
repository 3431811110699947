"""What handlers leave for the benchmark: counts, waiting times, and which actions were done.

Runs inside the environments of the peers, so it needs nothing but Python. Each process writes files of its
own, so no process waits for another: a lock would be measured too.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path

_NUMBER = struct.Struct("q")
_SECONDS = struct.Struct("d")


class ResultsStore:
    """A directory that workers write and the benchmark reads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._count = 0
        self._page: mmap.mmap | None = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forget_page)

    def count(self) -> None:
        """Count one more job of this process. In shared memory: no system call for each job."""
        with self._lock:
            if self._page is None:
                self._page = self._new_page()
            self._count += 1
            _NUMBER.pack_into(self._page, 0, self._count)

    def waited(self, since: float) -> None:
        """A job submitted at `since` starts now. The monotonic clock is the same for all processes."""
        seconds = time.monotonic() - since
        with (self.directory / f"waited-{os.getpid()}").open("ab") as file:
            file.write(_SECONDS.pack(seconds))
        self.count()

    def act(self, who: str, what: str) -> None:
        """Record an action as a file with its name: a process that waits for it looks for the file."""
        (self.directory / f"act-{who}-{what}").touch()

    def acted(self, who: str, what: str) -> bool:
        return (self.directory / f"act-{who}-{what}").exists()

    def note(self, name: str, text: str) -> None:
        """Record something that a later process must know, such as the id of a job."""
        (self.directory / f"note-{name}").write_text(text)

    def noted(self, name: str) -> str:
        return (self.directory / f"note-{name}").read_text()

    def allow(self, who: str) -> None:
        """Let `who` continue. It polls for a file, because that also works in a process that was paused."""
        (self.directory / f"allowed-{who}").touch()

    def is_allowed(self, who: str) -> bool:
        return (self.directory / f"allowed-{who}").exists()

    def total(self) -> int:
        """The number of jobs that all processes have handled."""
        return sum(_NUMBER.unpack(_first_page(path))[0] for path in self.directory.glob("count-*"))

    def waits(self) -> list[float]:
        """Seconds from the submission to the start, of every job that was timed."""
        return [
            seconds
            for path in self.directory.glob("waited-*")
            for (seconds,) in _SECONDS.iter_unpack(path.read_bytes())
        ]

    def _forget_page(self) -> None:
        """After a fork the child has its own counter. A pid check would be a system call for each job."""
        self._page = None
        self._lock = threading.Lock()

    def _new_page(self) -> mmap.mmap:
        self._count = 0
        path = self.directory / f"count-{os.getpid()}"
        path.write_bytes(_NUMBER.pack(0))
        with path.open("r+b") as file:
            return mmap.mmap(file.fileno(), _NUMBER.size)


def _first_page(path: Path) -> bytes:
    # Between its creation and its first write the file is empty.
    return path.read_bytes()[: _NUMBER.size] or _NUMBER.pack(0)
