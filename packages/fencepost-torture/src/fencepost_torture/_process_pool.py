"""The processes of a run by system and place; those that die are replaced."""

from __future__ import annotations

import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from fencepost.embedded._deadline import Deadline
from fencepost.testing._fork_server import ForkedChild, ForkServer
from fencepost.testing.child_main import ChildTask
from fencepost_torture._process_main import TELL_WHERE, Slot, prepare, serve
from fencepost_torture._system_environment import ProcessTask

Preparation = Callable[..., None]
QUICK_DEATH_SECONDS = 0.5
DEATH_SECONDS = 60.0
TELLING_SECONDS = 1.0

State = Literal["running", "stopped", "dead"]


@dataclass
class SystemProcess:
    """One process, from its start to its end."""

    number: int
    task: ProcessTask
    started: float = field(default_factory=time.monotonic)
    state: State = "running"
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
    """Starts processes through a fork server, signals them, and hears when they stop and end.

    `on_crash` and `on_stall` are called with the crash point when a process died or stopped by its own order.
    `news` is set when a process has stopped or ended.
    """

    def __init__(
        self,
        log: Path,
        systems: Sequence[str],
        *,
        prepare: Preparation = prepare,
        prepare_arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`prepare` stands at the top level of its file: it is called in the process that is forked, with its
        arguments and the names of the systems. `environment` is added to the environment variables of every
        process."""
        self.places: dict[tuple[str, int], SystemProcess] = {}
        self.on_crash: Callable[[SystemProcess, str], None] = lambda process, point: None
        self.on_stall: Callable[[SystemProcess, str], None] = lambda process, point: None
        self.news = threading.Event()
        self.ended_by_themselves = 0
        self.restarts = 0
        self.is_over = False
        self._numbers = count(1)
        self._living: dict[int, _Living] = {}
        self._lock = threading.Lock()
        self._log = log.open("ab")
        self._directory = log.parent
        self._fork_server = ForkServer(
            ChildTask.of(prepare, *prepare_arguments, *systems), environment=environment, stderr=self._log
        )
        self._reports = selectors.DefaultSelector()
        self._closed, self._closing = os.pipe()
        self._reader = threading.Thread(target=self._read, name="torture-processes", daemon=True)

    def __enter__(self) -> Self:
        self._reports.register(self._closed, selectors.EVENT_READ)
        self._reader.start()
        try:
            self._fork_server.start()
        except RuntimeError as error:
            self.close()
            raise RuntimeError(f"{error} It is in {self._log.name}.") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._fork_server.close()
        os.close(self._closing)
        self._reader.join()
        os.close(self._closed)
        self._reports.close()
        self._log.close()

    def start(self, task: ProcessTask) -> SystemProcess:
        """Start a new process at a free place."""
        process = SystemProcess(next(self._numbers), task)
        file = self._directory / f"orders-{process.number}"
        slot = Slot(file)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - A descriptor is wanted.
            # What a service prints is in the log.
            streams = (nothing.fileno(), self._log.fileno(), self._log.fileno())
            child = self._fork_server.fork(ChildTask.of(serve, asdict(task), str(file)), streams)
        process.pid = child.pid
        living = _Living(process, child, slot, file)
        with self._lock:
            self._living[process.number] = living
            self.places[task.system, task.place] = process
        self._reports.register(child, selectors.EVENT_READ, living)
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
            return [living.process for living in self._living.values()]

    def _await(self, process: SystemProcess, point: str, signum: int, nth: int) -> None:
        with self._lock:
            if living := self._living.get(process.number):
                living.slot.order(f"{point} {signum} {nth}" if point else "")

    def _signal(self, process: SystemProcess, signum: signal.Signals) -> None:
        with self._lock:
            if living := self._living.get(process.number):
                living.child.send_signal(signum)

    def _read(self) -> None:
        while True:
            for key, _ in self._reports.select():
                if key.fd == self._closed:
                    return
                self._changed(key.data)

    def _changed(self, living: _Living) -> None:
        # Before the change is read: with the last one, the socket is closed.
        descriptor = living.child.fileno()
        status = living.child.change()
        point = living.slot.obeyed()
        if status is None:
            self._stopped(living.process, point)
        else:
            self._reports.unregister(descriptor)
            with self._lock:
                del self._living[living.process.number]
                living.slot.close()
            living.file.unlink()
            self._died(living.process, status, point)
        self.news.set()

    def _stopped(self, process: SystemProcess, point: str) -> None:
        process.state = "stopped"
        if point:
            process.ordered_at = None
            self.on_stall(process, point)
        elif process.resume_at is None:
            # The report is older than the end of its pause.
            self.resume(process)

    def _died(self, process: SystemProcess, status: int, point: str) -> None:
        process.obeyed = bool(point) and status == -signal.SIGKILL and not process.killed_by_us
        process.status, process.state = status, "dead"
        process.died.set()
        if process.obeyed:
            self.on_crash(process, point)
        elif not process.killed_by_us and status != 0:
            self.ended_by_themselves += 1


@dataclass(frozen=True, slots=True)
class _Living:
    """A process that has not ended: its fork, and the page for its orders."""

    process: SystemProcess
    child: ForkedChild
    slot: Slot
    file: Path
