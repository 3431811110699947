"""Children from a fork server: forks of a process that has already loaded what they need.

Loading Fencepost takes an interpreter most of a second of CPU time. The fork server does it once, and has no
state of the process that uses it: a child inherits no more than one that was started in a new interpreter.
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
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from fencepost import crashpoints, signals
from fencepost.testing import child_main, fork_server_main

IS_POSSIBLE = hasattr(os, "pidfd_open")
READY_SECONDS = 120.0


class ForkedChild:
    """A child of the fork server, with the interface of Popen that `Child` uses."""

    stdin: IO[str] | None = None
    stdout: IO[str] | None = None
    stderr: IO[str] | None = None

    def __init__(self, number: int, own: int, report: socket.socket) -> None:
        self.pid = number
        self._own = own
        self._report = report
        self._reading = threading.Lock()
        self._code: int | None = None

    def __del__(self) -> None:
        os.close(self._own)

    def fileno(self) -> int:
        """Can be read when there is a change to tell of."""
        return self._report.fileno()

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
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._reading:
            while self._code is None:
                self.change(None if deadline is None else max(0.0, deadline - time.monotonic()))
            return self._code

    def change(self, timeout: float | None = None) -> int | None:
        """Wait until it ends or stops next: the exit code, negative for a signal, or None when it stopped."""
        self._report.settimeout(timeout)
        try:
            told = self._report.recv(64)
        except (TimeoutError, BlockingIOError):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
        if told != fork_server_main.STOPPED:
            # When the fork server ends, its children end too.
            self._code = int(told) if told else -signal.SIGKILL
            self._report.close()
        return self._code

    def is_stopped(self) -> bool:
        with suppress(OSError):
            state = Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            return state == "T" and self.poll() is None
        return False


class ForkServer:
    """Starts its process with the first child, and again after a fork: one fork server serves one process.

    `prepare` is performed once in that process: every child has what it leaves there. `environment` is added
    to the environment variables of that process and of its children.
    """

    def __init__(
        self,
        prepare: child_main.ChildTask | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        self._prepare = prepare
        self._environment = environment or {}
        self._stderr = stderr
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._owner = 0
        self._ordering = threading.Lock()

    def start(self) -> socket.socket:
        """The socket to its process, which is ready to fork."""
        with self._ordering:
            if self._orders is None or self._owner != os.getpid():
                self._orders, self._owner = self._started(), os.getpid()
            return self._orders

    def fork(
        self,
        task: child_main.ChildTask,
        streams: Sequence[int],
        *,
        environment: Mapping[str, str] | None = None,
        modules: Iterable[str] = (),
    ) -> ForkedChild:
        """A process for this task, with these standard streams. The modules are loaded before it is forked:
        once for all children."""
        order = {
            "task": task._asdict(),
            "environment": self._variables() if environment is None else dict(environment),
            "directory": str(Path.cwd()),
            "path": sys.path,
            "modules": sorted(modules),
        }
        orders = self.start()
        report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(orders, [json.dumps(order).encode()], [*streams, theirs.fileno()])
        number, own, _, _ = socket.recv_fds(report, 64, 1)
        if not number:
            report.close()
            raise RuntimeError("The fork server has ended; its standard error says why.")
        return ForkedChild(int(number), own[0], report)

    def close(self) -> None:
        """End its process, and all its children."""
        orders, process = self._orders, self._process
        if orders is None or process is None or self._owner != os.getpid():
            return
        self._orders = None
        # Reaches it also where a process that was forked without exec has a copy of the socket.
        with suppress(OSError):
            orders.shutdown(socket.SHUT_RDWR)
        orders.close()
        process.wait()

    def _started(self) -> socket.socket:
        assert IS_POSSIBLE, "A fork server needs pidfds, which only Linux has."
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        preparation = [] if self._prepare is None else [json.dumps(self._prepare._asdict())]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", fork_server_main.__file__, str(os.getpid()), *preparation],
                stdin=theirs.fileno(),
                stderr=self._stderr,
                env=self._variables(),
            )
        ours.settimeout(READY_SECONDS)
        with suppress(TimeoutError):
            if ours.recv(64) == fork_server_main.READY:
                ours.settimeout(None)
                atexit.register(self.close)
                return ours
        self._process.kill()
        self._process.wait()
        ours.close()
        raise RuntimeError("The fork server did not start; its standard error says why.")

    def _variables(self) -> dict[str, str]:
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONUNBUFFERED": "1",
            **self._environment,
        }
        # Crash orders of a test are only for the child that it names.
        for name in (crashpoints.VARIABLE, signals.VARIABLE):
            variables.pop(name, None)
        return variables
