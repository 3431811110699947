"""The process of the fork server: loads Fencepost once, and forks for each task.

It receives tasks over the socket that is its standard input. A task comes with four descriptors: the child's
standard streams, and a socket for reports about it. The first report is the pid with a pidfd, which stays
valid when the pid is reused; the last is the exit status.

It has one thread, as a process that forks should, and it ends with the process that started it. Its children
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

ERRAND_BYTES_MAX = 2**20
# Modules that nearly every child needs.
CORE = ("fencepost.client", "fencepost.jobs.worker", "fencepost.testing")


class ForkServerProcess:
    """The children by pid, each with its report socket."""

    def __init__(self, orders: socket.socket, parent: int) -> None:
        self._orders = orders
        self._parent = os.pidfd_open(parent)
        self._reports: dict[int, socket.socket] = {}
        self._wake, alarm = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(alarm, False)
        signal.signal(signal.SIGCHLD, _heard)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        self._ours = (self._parent, self._wake, alarm)

    def run(self) -> None:
        """Runs until the process that started it has ended, or closes the socket."""
        while True:
            ready, _, _ = select.select([self._orders.fileno(), self._parent, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._collect()
            if self._parent in ready or (self._orders.fileno() in ready and not self._hatch()):
                break

    def _hatch(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._orders, ERRAND_BYTES_MAX, 4)
        if not data:
            return False
        order = json.loads(data)
        for name in order["modules"]:
            importlib.import_module(name)
        gc.freeze()
        *streams, report = descriptors
        fork_server = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(report)
            self._leave()
            _live(fork_server, order, streams)
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
        for descriptor in self._ours:
            os.close(descriptor)
        for report in self._reports.values():
            report.close()

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (change := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = change
                with self._reports.pop(pid) as report, contextlib.suppress(OSError):
                    report.send(str(os.waitstatus_to_exitcode(status)).encode())


def _live(fork_server: int, order: dict[str, Any], streams: list[int]) -> NoReturn:
    """Runs a child from start to end, as in a new interpreter."""
    die_with(fork_server)
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
    perform(ChildTask(**order["errand"]))
    sys.exit()


def _by_lines(place: int) -> TextIO:
    return open(place, "w", encoding="utf-8", buffering=1, closefd=False)


def _heard(_signum: int, _frame: FrameType | None) -> None:
    """Does nothing: the wakeup descriptor reports the signal, but only if a handler is set."""


def main(parent: int) -> None:
    for name in CORE:
        importlib.import_module(name)
    # The terminal's Ctrl-C is for the process that runs the tests.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as orders:
        ForkServerProcess(orders, parent).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
