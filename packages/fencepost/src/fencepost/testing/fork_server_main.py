"""The process of a fork server: loads what its children need once, and forks for each task.

It reads tasks from the socket that is its standard input, and says `ready` there when it has loaded
everything. A task comes with four descriptors: the child's standard streams, and a socket for reports about
the child. The first report is the pid with a pidfd, which stays valid when the pid is reused. `stopped`
follows each time that the child stops; the last report is the exit status.

It has one thread, as a process that forks should. It ends with the process that started it, and its children
end with it.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from types import FrameType
from typing import Any, NoReturn, TextIO

from fencepost import crashpoints, signals
from fencepost.testing.child_main import ChildTask, die_with, perform

READY = b"ready"
STOPPED = b"stopped"
TASK_BYTES_MAX = 2**20
CHUNK_BYTES = 65536
# Modules that nearly every child needs.
CORE = ("fencepost.client", "fencepost.jobs._worker", "fencepost.testing")


class ForkServerProcess:
    """The children by pid, each with its report socket."""

    def __init__(self, orders: socket.socket, parent: int) -> None:
        self._orders = orders
        self._parent = os.pidfd_open(parent)
        self._reports: dict[int, socket.socket] = {}
        self._wake, self._alarm = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._alarm, False)
        signal.signal(signal.SIGCHLD, _heard)
        signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)

    def run(self) -> None:
        """Runs until the process that started it has ended, or closes the socket."""
        orders = self._orders.fileno()
        self._orders.send(READY)
        while True:
            ready, _, _ = select.select([orders, self._parent, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, CHUNK_BYTES)
            self._report_changes()
            if self._parent in ready or (orders in ready and not self._fork()):
                return

    def _fork(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._orders, TASK_BYTES_MAX, 4)
        if not data:
            return False
        order = json.loads(data)
        for name in order["modules"]:
            importlib.import_module(name)
        # Objects that exist now are in pages shared with every child: frozen, the collector does not touch
        # them.
        gc.freeze()
        *streams, report = descriptors
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(report)
            self._leave()
            die_with(server)
            _live(order, streams)
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
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor in (self._wake, self._alarm, self._parent):
            os.close(descriptor)
        for report in self._reports.values():
            report.close()

    def _report_changes(self) -> None:
        """Tells of each child that has ended or stopped."""
        with contextlib.suppress(ChildProcessError):
            while (change := os.waitpid(-1, os.WNOHANG | os.WUNTRACED)) != (0, 0):
                pid, status = change
                if os.WIFSTOPPED(status):
                    _tell(self._reports[pid], STOPPED)
                else:
                    with self._reports.pop(pid) as report:
                        _tell(report, str(os.waitstatus_to_exitcode(status)).encode())


def _tell(report: socket.socket, news: bytes) -> None:
    with contextlib.suppress(OSError):
        report.send(news)


def _heard(_signum: int, _frame: FrameType | None) -> None:
    """Does nothing: the wakeup descriptor reports the signal, but only if a handler is set."""


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


def main(parent: int, preparation: str | None = None) -> None:
    """Load everything, and serve. The preparation is a `ChildTask` as JSON: what it leaves in this process,
    every child has."""
    for name in CORE:
        importlib.import_module(name)
    if preparation is not None:
        perform(ChildTask(**json.loads(preparation)))
    gc.collect()
    # The terminal's Ctrl-C is for the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as orders:
        ForkServerProcess(orders, parent).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
