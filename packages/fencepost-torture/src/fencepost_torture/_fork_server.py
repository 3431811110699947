"""The fork server: it has imported everything once, so that a process that was killed is replaced quickly.

It reads orders as JSON lines and answers with events. Only it signals its children: until it has reaped a
child, the pid cannot belong to another process.

    {"do": "start", "number": 7, "task": {...}}
    {"do": "signal", "number": 7, "signal": 9}
    {"do": "await", "number": 7, "point": "jobs.ack.before", "signal": 9, "nth": 2}

    {"number": 7, "event": "born" | "stopped" | "died", "status": -9, "point": "jobs.ack.before"}

`await` is for a running child: it sends itself the signal when it reaches that crash point for the nth time
from then on. `point` in an event says that it did.

When its standard input ends, it ends all its children.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from fencepost import crashpoints
from fencepost.kernel.migrate import kernel
from fencepost.testing._forker import CHUNK_BYTES, Forker
from fencepost_torture._system_environment import ProcessTask
from fencepost_torture._wall_clocks import go_by
from fencepost_torture.systems import system_of

TELL_WHERE = signal.SIGUSR1
"""A child that gets this signal writes the stack of each of its threads."""
HALF_BYTES = mmap.PAGESIZE // 2


class Slot:
    """A page that a child shares with the fork server: its order, and the crash point where it obeyed."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
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
    """Watches the crash points of a child, and reads its slot at each."""

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


class ForkServer:
    """Starts, signals and reaps the children, which it keeps by their numbers."""

    def __init__(self) -> None:
        self._forker = Forker(stops=True)
        self._rest = b""
        self._numbers: dict[int, int] = {}
        self._slots: dict[int, Slot] = {}

    def run(self) -> None:
        """Serves until standard input ends."""
        self._forker.run(0, self._read, self._changed)
        for pid in self._numbers:
            os.kill(pid, signal.SIGKILL)

    def _read(self) -> bool:
        data = os.read(0, CHUNK_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(data)

    def _obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "start":
            self._start(order)
            return
        for pid, number in self._numbers.items():
            if number == order["number"] and order["do"] == "signal":
                os.kill(pid, order["signal"])
            elif number == order["number"]:
                point = order["point"]
                self._slots[pid].order(f"{point} {order['signal']} {order['nth']}" if point else "")

    def _start(self, order: dict[str, Any]) -> None:
        task, slot = ProcessTask(**order["task"]), Slot()
        pid = self._forker.fork(lambda: _live(task, slot))
        self._numbers[pid] = order["number"]
        self._slots[pid] = slot
        _tell(order["number"], "born", pid)

    def _changed(self, pid: int, status: int) -> None:
        point = self._slots[pid].obeyed()
        if os.WIFSTOPPED(status):
            _tell(self._numbers[pid], "stopped", 0, point)
        else:
            self._slots.pop(pid).close()
            _tell(self._numbers.pop(pid), "died", os.waitstatus_to_exitcode(status), point)


def _live(task: ProcessTask, slot: Slot) -> None:
    """The whole life of a child. It never returns into the fork server's loop."""
    code = 1
    try:
        faulthandler.register(TELL_WHERE, file=sys.stderr)
        go_by(task.clock)
        # What a service prints must not be read as an event.
        os.dup2(2, 1)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - A descriptor is wanted.
            os.dup2(nothing.fileno(), 0)
        with crashpoints.watching(ProcessControl(slot)):
            system_of(task.system).serve(task)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _tell(number: int, event: str, status: int, point: str = "") -> None:
    line = json.dumps({"number": number, "event": event, "status": status, "point": point}) + "\n"
    os.write(1, line.encode())


def main(systems: Sequence[str]) -> None:
    """Import what the systems need, report that, and serve."""
    for name in systems:
        system_of(name).load()
    # What a client compares the database with when it opens: otherwise each child reads the same files.
    kernel()
    server = ForkServer()
    # The terminal's Ctrl-C is for the process that runs the torture, which then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Objects that exist now are in pages shared with every child: frozen, the collector does not touch them.
    gc.collect()
    gc.freeze()
    _tell(0, "ready", 0)
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
