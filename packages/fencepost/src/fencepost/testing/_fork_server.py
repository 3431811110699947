"""Children from a fork server: forks of a process that has already loaded Fencepost.

Loading what a child needs takes an interpreter most of a second of CPU time. The fork server does it once,
and has no state of the tests that use it: a child inherits no more than one that was started in a new
interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO

from fencepost import crashpoints, signals
from fencepost.testing import child_main, fork_server_main

IS_POSSIBLE = hasattr(os, "pidfd_open")


class ForkedChild:
    """A child of the fork server, with the interface of Popen that `Child` uses."""

    def __init__(self, number: int, own: int, report: socket.socket, streams: tuple[int, int, int]) -> None:
        self.pid = number
        self.stdin: IO[str] = open(streams[0], "w", encoding="utf-8")  # noqa: PTH123, SIM115
        self.stdout: IO[str] = open(streams[1], encoding="utf-8")  # noqa: PTH123, SIM115
        self.stderr: IO[str] = open(streams[2], encoding="utf-8")  # noqa: PTH123, SIM115
        self._own = own
        self._report = report
        self._reading = threading.Lock()
        self._code: int | None = None

    def __del__(self) -> None:
        os.close(self._own)

    def send_signal(self, signum: int) -> None:
        """Uses the pidfd: the pid may belong to another process once the fork server has reaped this one."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._own, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        with self._reading:
            if self._code is None:
                self._code = self._reported(timeout)
                self._report.close()
            return self._code

    def is_stopped(self) -> bool:
        with suppress(OSError):
            state = Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            return state == "T" and self.poll() is None
        return False

    def _reported(self, timeout: float | None) -> int:
        self._report.settimeout(timeout)
        try:
            told = self._report.recv(64)
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
        # When the fork server ends, its children end too.
        return int(told) if told else -signal.SIGKILL


class ForkServer:
    """Starts its process with the first child, and again after a fork: one fork server serves one process."""

    def __init__(self) -> None:
        self._orders: socket.socket | None = None
        self._owner = 0
        self._ordering = threading.Lock()

    def fork(
        self, task: child_main.ChildTask, environment: Mapping[str, str], home: ModuleType
    ) -> ForkedChild:
        """A process for this task, whose function is in the module `home`."""
        pipes = [os.pipe() for _ in range(3)]
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = pipes
        report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = {
            "task": task._asdict(),
            "environment": dict(environment),
            "directory": str(Path.cwd()),
            "path": sys.path,
            "modules": sorted(_ours_in(home)),
        }
        with theirs:
            given = [their_in, their_out, their_err, theirs.fileno()]
            socket.send_fds(self._ready(), [json.dumps(order).encode()], given)
        for descriptor in given[:3]:
            os.close(descriptor)
        number, own, _, _ = socket.recv_fds(report, 64, 1)
        if not number:
            raise RuntimeError("The fork server has ended; its error output is above.")
        return ForkedChild(int(number), own[0], report, (our_in, our_out, our_err))

    def _ready(self) -> socket.socket:
        with self._ordering:
            if self._orders is None or self._owner != os.getpid():
                self._orders, self._owner = _start(), os.getpid()
            return self._orders


def _start() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    # Crash orders of a test are only for the child that it names.
    for name in (crashpoints.VARIABLE, signals.VARIABLE):
        environment.pop(name, None)
    with theirs:
        fork_server = subprocess.Popen(
            [sys.executable, "-P", fork_server_main.__file__, str(os.getpid())],
            stdin=theirs.fileno(),
            env=environment,
        )
    # It ends with this process, and is not waited for: it outlives every test.
    fork_server.returncode = 0
    atexit.register(ours.close)
    return ours


def _ours_in(module: ModuleType) -> set[str]:
    """The Fencepost modules that a module imports names from: loading them has no effects, so once is
    enough."""
    names = {
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        for value in vars(module).values()
    }
    return {
        name
        for name in names
        if isinstance(name, str) and name.startswith("fencepost.") and name in sys.modules
    }
