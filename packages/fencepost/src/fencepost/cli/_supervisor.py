"""Supervises several worker processes: a process that ended is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fencepost.backoff import Backoff
from fencepost.cli._app_loader import find_application
from fencepost.cli._parent_watch import VARIABLE as PARENT_PIPE
from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.shutdown import Shutdown
from fencepost.cli.terminal import answer, answer_json, logs_json, remark
from fencepost.logs import configure_logging, get_logger

_log = get_logger(__name__)
_ENTRY = "from fencepost.cli._app import main; main()"
RESTARTS = Backoff(0.5, 30.0, jitter=0)
STEADY_SECONDS = 60.0
LOOK_SECONDS = 0.5
FAREWELL_SECONDS = 15.0
STDERR = 2
RAN_ITS_JOBS = 80
"""How a process of a supervisor ends that has run as many jobs as a process may. Only the supervisor sees it:
0 is also the end of a process that was stopped by a signal from outside."""


def worker_arguments(target: str, queues: Sequence[str], concurrency: int | None) -> list[str]:
    """What `fencepost worker` is called with, for a process that serves the same."""
    arguments = [target]
    arguments += ["--queues", ",".join(queues)] if queues else []
    arguments += [] if concurrency is None else ["--concurrency", str(concurrency)]
    return arguments


def worker_command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", _ENTRY, "worker", *arguments]


def next_start(exit_code: int, *, lived_seconds: float, falls: int) -> tuple[int, float]:
    """How often in a row the process has ended by now, and after how many seconds it is started again.

    A process that was stopped from outside is started again like one that failed: the number of processes
    was asked for, and a service manager that keeps stopping one must not be met by a busy loop.
    """
    if exit_code == RAN_ITS_JOBS:
        return 0, 0.0
    falls = 1 if lived_seconds > STEADY_SECONDS else falls + 1
    return falls, RESTARTS.seconds(falls)


@dataclass(slots=True)
class _Member:
    place: int
    process: subprocess.Popen[bytes]
    started_at: float
    falls: int = 0
    again_at: float = 0.0

    @property
    def is_hopeless(self) -> bool:
        """It ended because of wrong usage or settings, and would end again; it has printed the error."""
        return self.process.returncode in (ExitCode.USAGE, ExitCode.SETTINGS)


class Supervisor:
    """Runs `count` processes of `fencepost worker ...`. Each drains and ends when this process ends."""

    def __init__(
        self, arguments: Sequence[str], count: int, environment: Mapping[str, str], *, drain_seconds: float
    ) -> None:
        self._arguments = arguments
        self._environment = environment
        self._drain_seconds = drain_seconds
        self._parent_watch, self._grip = os.pipe()
        self._members = [self._hire(place) for place in range(count)]

    @property
    def pids(self) -> list[int]:
        return [member.process.pid for member in self._members]

    def keep_alive(self) -> None:
        """Restart processes that ended, after a delay that grows while a process keeps ending."""
        now = time.monotonic()
        for member in self._members:
            exit_code = member.process.poll()
            if exit_code is None or member.is_hopeless:
                continue
            if not member.again_at:
                member.falls, rest = next_start(
                    exit_code, lived_seconds=now - member.started_at, falls=member.falls
                )
                member.again_at = now + rest
                pid = member.process.pid
                if exit_code == RAN_ITS_JOBS:
                    _log.info("worker process replaced", pid=pid)
                else:
                    _log.warning("worker process ended", pid=pid, exit_code=exit_code, again_in_seconds=rest)
            if now >= member.again_at:
                fresh = self._hire(member.place)
                member.process, member.started_at, member.again_at = fresh.process, fresh.started_at, 0.0

    def stop(self) -> None:
        """Let all processes drain. One that takes too long is killed, and its jobs are taken over."""
        for member in self._members:
            member.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + self._drain_seconds
        for member in self._members:
            try:
                member.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
        os.close(self._grip)
        os.close(self._parent_watch)

    def _hire(self, place: int) -> _Member:
        process = subprocess.Popen(
            worker_command(self._arguments),
            env={**self._environment, PARENT_PIPE: str(self._parent_watch), **self._own_port(place)},
            pass_fds=[self._parent_watch],
            # A worker's output is not part of this command's answer.
            stdout=STDERR,
            # Ctrl-C in the terminal reaches only this process, which then drains them.
            start_new_session=True,
        )
        return _Member(place, process, time.monotonic())

    def _own_port(self, place: int) -> dict[str, str]:
        port = int(self._environment.get("METRICS_PORT") or 0)
        return {"METRICS_PORT": str(port + place)} if port else {}


def lead(arguments: Sequence[str], target: str, count: int, *, as_json: bool) -> None:
    """Keep `count` worker processes running until a stop is requested."""
    # Resolved here too, so that a wrong name is reported once and not by every process that ends.
    fp = find_application(target)
    configure_logging(level=fp.settings.log_level, form=fp.settings.log_format)
    ending = Shutdown()
    with ending.listening():
        supervisor = Supervisor(
            arguments, count, os.environ, drain_seconds=fp.job_settings.drain_seconds + FAREWELL_SECONDS
        )
        try:
            if as_json or logs_json():
                answer_json({"pid": os.getpid(), "processes": supervisor.pids}, indent=None)
            else:
                answer(f"{count} worker processes: {', '.join(map(str, supervisor.pids))}")
            while not ending.wait(LOOK_SECONDS):
                supervisor.keep_alive()
            remark("Draining.")
        finally:
            supervisor.stop()
    remark("Stopped. No process is left.")
