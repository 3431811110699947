"""A server process as its starter sees it: started through a reaper, ended with all its descendants."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.embedded import _reaper as reaper
from fencepost.embedded._deadline import Deadline
from fencepost.embedded._errors import ServerStartError
from fencepost.embedded._identity import Identity

# The variables of our environment that a server gets. PGPORT and similar ones would change its configuration,
# and it must not see secrets.
ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class StartPlan:
    """How to run a server and how to end it."""

    command: Sequence[str | Path]
    identity: Identity
    log: Path
    farewell: tuple[signal.Signals, ...]
    sweep: tuple[Path, ...] = ()
    """What the reaper removes when we are killed and cannot."""
    lock: int | None = None
    """A descriptor that the server holds as long as any of its processes lives."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables in addition to those that every server gets."""


class KeptProcess:
    """A running server and its reaper."""

    def __init__(self, plan: StartPlan) -> None:
        task = reaper.SpawnSpec(
            command=[str(argument) for argument in plan.command],
            parent=os.getpid(),
            disguise=plan.identity.disguise,
            uid=plan.identity.uid,
            gid=plan.identity.gid,
            farewell=list(plan.farewell),
            sweep=[str(path) for path in plan.sweep],
        )
        self._plan = plan
        with plan.log.open("ab") as log:
            self._reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__, json.dumps(task._asdict())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**_environment(os.environ), **plan.environment},
                cwd="/",
                pass_fds=() if plan.lock is None else (plan.lock,),
                # A Ctrl-C in our terminal is for us; we stop the server after its users have finished.
                start_new_session=True,
            )
        assert self._reaper.stdout is not None
        with self._reaper.stdout as report:
            line = report.readline()
        if not line:
            self.wait(reaper.GRACE_SECONDS)
            raise ServerStartError(f"The keeper of {plan.command[0]} did not start; see {plan.log}.")
        self.pid = int(line)

    def is_alive(self) -> bool:
        """Whether the server, or any process that it left, still runs."""
        return self._reaper.poll() is None

    def wait(self, seconds: float) -> int | None:
        """The exit code once no process of the server is left; None if that takes longer."""
        try:
            code = self._reaper.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        return code

    def signal(self, signum: signal.Signals) -> None:
        """Signal the server itself."""
        if self.is_alive():
            reaper.send(self.pid, signum)

    def ask_to_stop(self) -> None:
        """Send the first of the signals that end this server."""
        self.signal(self._plan.farewell[0])

    def pids(self) -> list[int]:
        """The server's processes, the server first."""
        return reaper.descendants(self._reaper.pid)

    def pause(self) -> None:
        """Stop every process, as if the machine had frozen; return when all are stopped."""
        # The server first: it starts the others.
        self.signal(signal.SIGSTOP)
        Deadline(10, "every process of the server is stopped").wait(self._stands_still)

    def resume(self) -> None:
        for pid in reversed(self.pids()):
            reaper.send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Crash: SIGKILL for every process at once; return when none is left."""
        # The server is stopped and dies last: a child that sees it die would still send its client a message.
        self.signal(signal.SIGSTOP)
        for pid in reversed(self.pids()):
            reaper.send(pid, signal.SIGKILL)
        # The reaper ends any process that was missed.
        self.wait(3 * reaper.GRACE_SECONDS)

    def _stands_still(self) -> bool:
        table = reaper.process_table()
        # One that has ended stays in the table until its parent, which is stopped, asks for it.
        moving = [pid for pid in self.pids() if pid in table and table[pid].state not in "TtZX"]
        for pid in moving:
            reaper.send(pid, signal.SIGSTOP)
        return not moving


def run_to_end(command: Sequence[str | Path], identity: Identity, log: Path, *, seconds: float) -> int:
    """Run a program that ends by itself under an identity; returns its exit code."""
    process = KeptProcess(StartPlan(command, identity, log, farewell=(signal.SIGKILL,)))
    code = process.wait(seconds)
    if code is None:
        process.kill()
        return reaper.REFUSED
    return code


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: ours[name] for name in ENVIRONMENT if name in ours} | {"LC_ALL": "C", "TZ": "UTC"}
