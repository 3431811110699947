"""The processes of a run by system and place; those that die are replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from fencepost.embedded._deadline import Deadline
from fencepost.testing import child_main
from fencepost_torture._fork_server import TELL_WHERE
from fencepost_torture._system_environment import ProcessTask

FORK_SERVER = "fencepost_torture._fork_server"
READY_SECONDS = 120.0
QUICK_DEATH_SECONDS = 0.5
DEATH_SECONDS = 60.0
TELLING_SECONDS = 1.0

State = Literal["starting", "running", "stopped", "dead"]


@dataclass
class SystemProcess:
    """One process, from its start order to its end."""

    number: int
    task: ProcessTask
    started: float = field(default_factory=time.monotonic)
    state: State = "starting"
    status: int | None = None
    killed_by_us: bool = False
    resume_at: float | None = None
    stall_seconds: float = 0.0
    """How long it stays stopped when it has stopped by its own order."""
    ordered_at: float | None = None
    obeyed: bool = False
    """Whether it ended by its own order."""
    pid: int = 0
    died: threading.Event = field(default_factory=threading.Event)

    @property
    def is_alive(self) -> bool:
        return self.state != "dead"

    def is_under_orders(self, seconds: float) -> bool:
        """Whether it lives and got an order to end or stop at a crash point less than `seconds` ago."""
        ordered_at = self.ordered_at
        return self.is_alive and ordered_at is not None and time.monotonic() - ordered_at < seconds


class ProcessPool:
    """Starts and signals processes through a fork server, and receives its events.

    `on_crash` and `on_stall` are called with the crash point when a process died or stopped by its own order.
    `news` is set at every event of a process.
    """

    def __init__(
        self,
        log: Path,
        systems: Sequence[str],
        *,
        fork_server: str = FORK_SERVER,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to the environment variables of every process."""
        self.places: dict[tuple[str, int], SystemProcess] = {}
        self.on_crash: Callable[[SystemProcess, str], None] = lambda process, point: None
        self.on_stall: Callable[[SystemProcess, str], None] = lambda process, point: None
        self.news = threading.Event()
        self.ended_by_themselves = 0
        self.restarts = 0
        self.is_over = False
        self._numbers = count(1)
        self._living: dict[int, SystemProcess] = {}
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._log = log.open("ab")
        task = child_main.ChildTask(os.getpid(), fork_server, None, [*arguments, *systems])
        self._fork_server = subprocess.Popen(
            [sys.executable, "-P", child_main.__file__, json.dumps(task._asdict())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONUNBUFFERED": "1",
                **(environment or {}),
            },
        )
        self._reader = threading.Thread(target=self._read, name="torture-processes", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        if not self._ready.wait(READY_SECONDS) or self._fork_server.poll() is not None:
            self.close()
            raise RuntimeError(f"The fork server did not start; see {self._log.name}.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        assert self._fork_server.stdin is not None
        assert self._fork_server.stdout is not None
        self._fork_server.stdin.close()
        self._fork_server.wait()
        self._reader.join()
        self._fork_server.stdout.close()
        self._log.close()

    def start(self, task: ProcessTask) -> SystemProcess:
        """Start a new process at a free place."""
        process = SystemProcess(next(self._numbers), task)
        with self._lock:
            self._living[process.number] = process
            self.places[task.system, task.place] = process
        self._say({"do": "start", "number": process.number, "task": asdict(task)})
        return process

    def kill(self, process: SystemProcess) -> bool:
        """SIGKILL, which no process survives; False when it was dead or killed already."""
        if not process.is_alive or process.killed_by_us:
            return False
        process.killed_by_us = True
        self._signal(process, signal.SIGKILL)
        return True

    def stop(self, process: SystemProcess, seconds: float) -> bool:
        """SIGSTOP for `seconds`; False when it was dead or stopped already."""
        if process.state != "running" or process.resume_at is not None:
            return False
        process.resume_at = time.monotonic() + seconds
        self._signal(process, signal.SIGSTOP)
        return True

    def order(
        self, process: SystemProcess, point: str, signum: signal.Signals, nth: int, stall_seconds: float
    ) -> None:
        """The process signals itself when it reaches the crash point for the nth time from now on."""
        process.ordered_at, process.stall_seconds = time.monotonic(), stall_seconds
        self._await(process, point, int(signum), nth)

    def resume(self, process: SystemProcess) -> None:
        process.resume_at = None
        if process.state == "stopped":
            process.state = "running"
        self._signal(process, signal.SIGCONT)

    def resume_due(self) -> None:
        now = time.monotonic()
        for process in list(self.places.values()):
            if process.resume_at is not None and process.resume_at <= now:
                self.resume(process)

    def replace_the_dead(self, task_of: Callable[[SystemProcess], ProcessTask]) -> None:
        """A new process wherever one died; with a delay where it died at once without having been killed."""
        now = time.monotonic()
        for process in list(self.places.values()):
            wanted = process.killed_by_us or process.obeyed
            if not process.is_alive and (wanted or now - process.started > QUICK_DEATH_SECONDS):
                self.restarts += 1
                self.start(task_of(process))

    def disarm(self) -> None:
        """Every process continues, and none has an order to die any more."""
        for process in list(self.places.values()):
            if process.is_alive:
                self._await(process, "", 0, 0)
                self.resume(process)

    def end(self, *, within: float) -> list[SystemProcess]:
        """SIGTERM to every process; one that has not ended in time is killed and returned."""
        self.is_over = True
        for process in self.places.values():
            if process.is_alive:
                self._signal(process, signal.SIGTERM)
        try:
            Deadline(within, "every process has ended").wait(lambda: not self._alive())
        except TimeoutError:
            late = self._alive()
            # Each writes its stacks into the log: otherwise a process that hangs once in days is never
            # diagnosed.
            for process in late:
                self._signal(process, TELL_WHERE)
            time.sleep(TELLING_SECONDS)
            for process in late:
                self.kill(process)
            for process in late:
                assert process.died.wait(DEATH_SECONDS), f"{process.pid} outlived SIGKILL"
            return late
        return []

    def _alive(self) -> list[SystemProcess]:
        with self._lock:
            return list(self._living.values())

    def _await(self, process: SystemProcess, point: str, signum: int, nth: int) -> None:
        self._say({"do": "await", "number": process.number, "point": point, "signal": signum, "nth": nth})

    def _signal(self, process: SystemProcess, signum: signal.Signals) -> None:
        self._say({"do": "signal", "number": process.number, "signal": int(signum)})

    def _say(self, order: dict[str, Any]) -> None:
        assert self._fork_server.stdin is not None
        with self._lock:
            self._fork_server.stdin.write(json.dumps(order).encode() + b"\n")
            self._fork_server.stdin.flush()

    def _read(self) -> None:
        assert self._fork_server.stdout is not None
        for line in self._fork_server.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                self._ready.set()
                continue
            with self._lock:
                process = self._living[event["number"]]
            self._hear(process, event["event"], event["status"], event["point"])
        self._ready.set()

    def _hear(self, process: SystemProcess, event: str, status: int, point: str) -> None:
        match event:
            case "born":
                process.pid, process.state = status, "running"
            case "stopped":
                process.state = "stopped"
                if point:
                    process.ordered_at = None
                    self.on_stall(process, point)
                elif process.resume_at is None:
                    # The event is older than the end of its pause.
                    self.resume(process)
            case _:
                with self._lock:
                    del self._living[process.number]
                process.obeyed = bool(point) and status == -signal.SIGKILL and not process.killed_by_us
                process.status, process.state = status, "dead"
                process.died.set()
                if process.obeyed:
                    self.on_crash(process, point)
                elif not process.killed_by_us and status != 0:
                    self.ended_by_themselves += 1
        self.news.set()
