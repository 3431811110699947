"""The fork server: it has loaded everything once, so that a process that was killed is back in a moment.

It reads orders as JSON lines and answers with events. Only it signals its children: until it has collected
one, the number is that child's and nobody else's.

    {"do": "start", "number": 7, "errand": {...}, "crash": "jobs.ack.before:kill"}
    {"do": "signal", "number": 7, "signal": 9}

    {"number": 7, "event": "born" | "stopped" | "died", "status": -9}

It has one thread, as a process that forks should; when its standard input ends, it ends all its children.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from fencepost import crashpoints
from fencepost.testing.child_main import die_with
from fencepost.torture.stage import Errand
from fencepost.torture.systems import system_of

CHUNK_BYTES = 65536


class Nursery:
    """The children by their numbers."""

    def __init__(self, wake: int) -> None:
        self._wake = wake
        self._numbers: dict[int, int] = {}

    def run(self) -> None:
        """Until standard input ends."""
        rest = b""
        while True:
            ready, _, _ = select.select([0, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, CHUNK_BYTES)
            self._collect()
            if 0 in ready:
                data = os.read(0, CHUNK_BYTES)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
        for pid in self._numbers:
            os.kill(pid, signal.SIGKILL)

    def _obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "start":
            self._start(order)
            return
        for pid, number in self._numbers.items():
            if number == order["number"]:
                os.kill(pid, order["signal"])

    def _start(self, order: dict[str, Any]) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _live(parent, Errand(**order["errand"]), order["crash"])
        self._numbers[pid] = order["number"]
        _tell(order["number"], "born", pid)

    def _collect(self) -> None:
        for pid, status in _changes():
            if os.WIFSTOPPED(status):
                _tell(self._numbers[pid], "stopped", 0)
            else:
                _tell(self._numbers.pop(pid), "died", os.waitstatus_to_exitcode(status))


def _changes() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (change := os.waitpid(-1, os.WNOHANG | os.WUNTRACED)) != (0, 0):
            yield change


def _live(parent: int, errand: Errand, crash: str) -> None:
    """The whole life of a child. It never returns into the nursery's loop."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_with(parent)
        # What a service prints must not look like an event.
        os.dup2(2, 1)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - A descriptor is wanted.
            os.dup2(nothing.fileno(), 0)
        with contextlib.ExitStack() as armed:
            for watcher in crashpoints.ordered({crashpoints.VARIABLE: crash}):
                armed.enter_context(crashpoints.watching(watcher))
            system_of(errand.system).serve(errand)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _heard(_signum: int, _frame: FrameType | None) -> None:
    """Nothing: the descriptor has the news. Without a handler there would be none."""


def _tell(number: int, event: str, status: int) -> None:
    line = json.dumps({"number": number, "event": event, "status": status}) + "\n"
    os.write(1, line.encode())


def main(systems: Sequence[str]) -> None:
    """Load what the systems need, say so, and serve."""
    for name in systems:
        system_of(name).load()
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, _heard)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    # The terminal's Ctrl-C is for the one who runs the torture; it then ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _tell(0, "ready", 0)
    Nursery(wake).run()


if __name__ == "__main__":
    main(sys.argv[1:])
