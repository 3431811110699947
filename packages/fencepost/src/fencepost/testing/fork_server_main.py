"""The process of the fork server: loads Fencepost once, and forks for each task.

It receives tasks over the socket that is its standard input. A task comes with four descriptors: the child's
standard streams, and a socket for reports about it. The first report is the pid with a pidfd, which stays
valid when the pid is reused; the last is the exit status.

It ends with the process that started it, and its children end with it.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn, TextIO

from fencepost import crashpoints, signals
from fencepost.testing._forker import Forker
from fencepost.testing.child_main import ChildTask, perform

TASK_BYTES_MAX = 2**20
# Modules that nearly every child needs.
CORE = ("fencepost.client", "fencepost.jobs._worker", "fencepost.testing")


class ForkServerProcess:
    """The children by pid, each with its report socket."""

    def __init__(self, orders: socket.socket, parent: int) -> None:
        self._orders = orders
        self._parent = os.pidfd_open(parent)
        self._reports: dict[int, socket.socket] = {}
        self._forker = Forker()

    def run(self) -> None:
        """Runs until the process that started it has ended, or closes the socket."""
        self._forker.run(self._orders.fileno(), self._fork, self._ended, until=[self._parent])

    def _fork(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._orders, TASK_BYTES_MAX, 4)
        if not data:
            return False
        order = json.loads(data)
        for name in order["modules"]:
            importlib.import_module(name)
        gc.freeze()
        *streams, report = descriptors

        def live() -> None:
            os.close(report)
            self._leave()
            _live(order, streams)

        pid = self._forker.fork(live)
        for descriptor in streams:
            os.close(descriptor)
        self._reports[pid] = socket.socket(fileno=report)
        own = os.pidfd_open(pid)
        # The process that asked may have ended by now.
        with contextlib.suppress(OSError):
            socket.send_fds(self._reports[pid], [str(pid).encode()], [own])
        os.close(own)
        return True

    def _leave(self) -> None:
        """Releases, in the child, what belongs to the fork server."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(self._parent)
        for report in self._reports.values():
            report.close()

    def _ended(self, pid: int, status: int) -> None:
        with self._reports.pop(pid) as report, contextlib.suppress(OSError):
            report.send(str(os.waitstatus_to_exitcode(status)).encode())


def _live(order: dict[str, Any], streams: list[int]) -> NoReturn:
    """Runs a child from start to end, as in a new interpreter."""
    for place, descriptor in enumerate(streams):
        os.dup2(descriptor, place)
        os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (_by_lines(place) for place in (1, 2))
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    sys.path[:] = order["path"]
    # Until the interpreter's end: threads that the task left running reach crash points too.
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    for watcher in crashpoints.ordered(os.environ):
        stack.enter_context(crashpoints.watching(watcher))
    for listener in signals.ordered(os.environ):
        stack.enter_context(signals.listening(listener))
    perform(ChildTask(**order["task"]))
    sys.exit()


def _by_lines(place: int) -> TextIO:
    return open(place, "w", encoding="utf-8", buffering=1, closefd=False)


def main(parent: int) -> None:
    for name in CORE:
        importlib.import_module(name)
    # The terminal's Ctrl-C is for the process that runs the tests.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as orders:
        ForkServerProcess(orders, parent).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
