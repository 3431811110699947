"""The processes of a run, as we see them: by system and place, replaced when they die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from fencepost.embedded.deadline import Deadline
from fencepost.testing import child_main
from fencepost.torture.stage import Errand

NURSERY = "fencepost.torture.nursery"
READY_SECONDS = 120.0
QUICK_DEATH_SECONDS = 0.5

State = Literal["starting", "running", "stopped", "dead"]


@dataclass
class Process:
    """One process, from its order to its end."""

    number: int
    errand: Errand
    crash: str
    started: float = field(default_factory=time.monotonic)
    state: State = "starting"
    status: int | None = None
    killed_by_us: bool = False
    resume_at: float | None = None
    stall_seconds: float = 0.0
    """How long it sleeps when it has stopped by its own order."""
    pid: int = 0

    @property
    def is_alive(self) -> bool:
        return self.state != "dead"

    def is_under_orders(self, seconds: float) -> bool:
        """Whether it lives to end, or to stop, somewhere, and had its order for less than so long."""
        return self.is_alive and bool(self.crash) and time.monotonic() - self.started < seconds


class Crew:
    """Starts and signals processes through a nursery, and hears what becomes of them.

    `on_crash` and `on_stall` are called when a process died or stopped by its own order.
    """

    def __init__(
        self, log: Path, systems: Sequence[str], *, nursery: str = NURSERY, arguments: Sequence[str] = ()
    ) -> None:
        self.places: dict[tuple[str, int], Process] = {}
        self.on_crash: Callable[[Process], None] = lambda process: None
        self.on_stall: Callable[[Process], None] = lambda process: None
        self.ended_by_themselves = 0
        self.restarts = 0
        self.is_over = False
        self._all: dict[int, Process] = {}
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._log = log.open("ab")
        errand = child_main.Errand(os.getpid(), nursery, None, [*arguments, *systems])
        self._nursery = subprocess.Popen(
            [sys.executable, "-P", child_main.__file__, json.dumps(errand._asdict())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, name="torture-crew", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        if not self._ready.wait(READY_SECONDS) or self._nursery.poll() is not None:
            self.close()
            raise RuntimeError(f"The nursery did not start; see {self._log.name}.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait()
        self._reader.join()
        self._nursery.stdout.close()
        self._log.close()

    def start(self, errand: Errand, crash: str = "", *, stall_seconds: float = 0.0) -> Process:
        """A new process at a place, where nobody is."""
        process = Process(len(self._all) + 1, errand, crash, stall_seconds=stall_seconds)
        with self._lock:
            self._all[process.number] = process
            self.places[errand.system, errand.place] = process
        self._say({"do": "start", "number": process.number, "errand": asdict(errand), "crash": crash})
        return process

    def kill(self, process: Process) -> bool:
        """SIGKILL, and wait; False when it was dead already."""
        if not process.is_alive:
            return False
        process.killed_by_us = True
        self._signal(process, signal.SIGKILL)
        self._until(process, "dead")
        return True

    def stop(self, process: Process, seconds: float) -> bool:
        """SIGSTOP for so long; False when it was dead or stopped already."""
        if process.state != "running":
            return False
        process.resume_at = time.monotonic() + seconds
        self._signal(process, signal.SIGSTOP)
        return True

    def resume(self, process: Process) -> None:
        process.resume_at = None
        if process.state == "stopped":
            process.state = "running"
        self._signal(process, signal.SIGCONT)

    def resume_due(self) -> None:
        now = time.monotonic()
        for process in list(self.places.values()):
            if process.resume_at is not None and process.resume_at <= now:
                self.resume(process)

    def replace_the_dead(self, errand_of: Callable[[Process], Errand]) -> None:
        """A new process wherever one died; a moment later where it died at once."""
        now = time.monotonic()
        for process in list(self.places.values()):
            if not process.is_alive and now - process.started > QUICK_DEATH_SECONDS:
                self.restarts += 1
                self.start(errand_of(process))

    def disarm(self, errand_of: Callable[[Process], Errand]) -> None:
        """Everybody goes on, and nobody has an order to die any more."""
        for process in list(self.places.values()):
            if process.crash and process.is_alive:
                self.kill(process)
            elif process.is_alive:
                self.resume(process)
        for process in list(self.places.values()):
            if not process.is_alive:
                self.start(errand_of(process))

    def end(self, *, within: float) -> list[Process]:
        """SIGTERM to everybody; who has not ended in time is killed, and answered."""
        self.is_over = True
        for process in self.places.values():
            if process.is_alive:
                self._signal(process, signal.SIGTERM)
        try:
            Deadline(within, "every process has ended").wait(
                lambda: not any(process.is_alive for process in self._all.values())
            )
        except TimeoutError:
            late = [process for process in self._all.values() if process.is_alive]
            for process in late:
                self.kill(process)
            return late
        return []

    def _until(self, process: Process, state: State) -> None:
        Deadline(60, f"process {process.number} is {state}").wait(lambda: process.state == state)

    def _signal(self, process: Process, signum: signal.Signals) -> None:
        self._say({"do": "signal", "number": process.number, "signal": int(signum)})

    def _say(self, order: dict[str, Any]) -> None:
        assert self._nursery.stdin is not None
        with self._lock:
            self._nursery.stdin.write(json.dumps(order).encode() + b"\n")
            self._nursery.stdin.flush()

    def _read(self) -> None:
        assert self._nursery.stdout is not None
        for line in self._nursery.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                self._ready.set()
                continue
            self._hear(self._all[event["number"]], event["event"], event["status"])
        self._ready.set()

    def _hear(self, process: Process, event: str, status: int) -> None:
        match event:
            case "born":
                process.pid, process.state = status, "running"
            case "stopped":
                process.state = "stopped"
                if process.resume_at is None:
                    self.on_stall(process)
            case _:
                process.status, process.state = status, "dead"
                if process.crash and status == -signal.SIGKILL and not process.killed_by_us:
                    self.on_crash(process)
                elif not process.killed_by_us and status != 0:
                    self.ended_by_themselves += 1
