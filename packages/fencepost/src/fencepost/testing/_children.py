"""Real processes for tests: started, stepped, stopped and killed by the test, and never left behind."""

import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import IO, Any, Self

from fencepost import crashpoints
from fencepost._durations import Duration, seconds_of
from fencepost.embedded._deadline import Deadline
from fencepost.testing import _fork_server as fork_server
from fencepost.testing import child_main
from fencepost.testing._errors import ChildFailed
from fencepost.testing._fork_server import ForkedChild, ForkServer
from fencepost.testing._signals import Signals

OUTPUT_LINES_SHOWN = 30


class Child:
    """One Python function, or one module, in its own process.

        with Child(hold_lease, url, crash="holder.fenced:stop") as child:
            child.wait_until_stopped()
            ...
            child.resume()
            assert child.line("outcome") == "outcome refused"

    The function is at the top level of its file, and its arguments are JSON: nothing of this process is
    inherited. `crash` has the format of FENCEPOST_CRASH. The test can wait for lines that the child prints,
    and `say` gives it lines to read. The child dies with the block, and with this process, however that ends.
    """

    def __init__(
        self,
        target: Callable[..., object] | str,
        *arguments: Any,
        crash: str = "",
        signals: Signals | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        crashpoints.ordered({crashpoints.VARIABLE: crash})  # A malformed order fails here, not in the child.
        self.name, task = _task(target, arguments)
        self._process = _start(
            target,
            task,
            {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONUNBUFFERED": "1",
                crashpoints.VARIABLE: crash,
                **(signals.environment if signals else {}),
                **(environment or {}),
            },
        )
        self._stdout = _Lines(self._process.stdout)
        self._stderr = _Lines(self._process.stderr)

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it is running or stopped."""
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """Its standard output and standard error so far."""
        return "\n".join([*self._stdout.lines, *self._stderr.lines][-OUTPUT_LINES_SHOWN:])

    def line(self, start: str, *, within: Duration = 60) -> str:
        """The first line that starts with `start`; waits for it."""
        seconds = seconds_of("within", within)
        line = self._stdout.find(start, seconds)
        if line is None:
            raise self._failure(f"printed no line that starts with {start!r} within {seconds:g} s")
        return line

    def say(self, line: str) -> None:
        """Give the child a line on its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """SIGSTOP: freeze it at its current instruction."""
        self._process.send_signal(signal.SIGSTOP)
        self.wait_until_stopped()

    def wait_until_stopped(self, *, within: Duration = 60) -> None:
        """Wait until it is stopped, by `stop` or by its own crash order."""
        try:
            Deadline(seconds_of("within", within), f"{self.name} is stopped").wait(self._stands_still)
        except TimeoutError as error:
            raise self._failure("did not stop") from error

    def resume(self) -> None:
        """Continue it after a pause (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it has ended."""
        self._process.kill()
        self._process.wait()

    def wait(self, *, within: Duration = 60) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        seconds = seconds_of("within", within)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self._failure(f"still runs after {seconds:g} s") from None

    def succeed(self, *, within: Duration = 60) -> None:
        """Wait for its end, and fail unless the exit code is 0."""
        code = self.wait(within=within)
        if code != 0:
            raise self._failure(f"ended with {code}")

    def be_killed(self, *, within: Duration = 60) -> None:
        """Wait for its end, and fail unless it was the SIGKILL that was ordered."""
        code = self.wait(within=within)
        if code != -signal.SIGKILL:
            raise self._failure(f"ended with {code}, not by SIGKILL: was the crash point reached?")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._stdout.close()
        self._stderr.close()
        assert self._process.stdin is not None
        # Input that the child did not read cannot be flushed.
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _stands_still(self) -> bool:
        if self._process.is_stopped():
            return True
        if not self.is_alive:
            raise self._failure("ended")
        return False

    def _failure(self, what: str) -> ChildFailed:
        return ChildFailed(f"The child {self.name} {what}. Its output:\n{self.output}")


class _Lines:
    """The lines of a stream, read by a thread so that the child never blocks on its output."""

    def __init__(self, stream: IO[str] | None) -> None:
        assert stream is not None
        self.lines: list[str] = []
        self._stream = stream
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, name="fencepost-child", daemon=True)
        self._thread.start()

    def find(self, start: str, seconds: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._match(start) is not None, seconds)
            return self._match(start)

    def close(self) -> None:
        self._thread.join()
        self._stream.close()

    def _match(self, start: str) -> str | None:
        return next((line for line in self.lines if line.startswith(start)), None)

    def _read(self) -> None:
        for line in self._stream:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class _Fresh(subprocess.Popen[str]):
    """A child in a new interpreter."""

    def __init__(self, task: child_main.ChildTask, environment: Mapping[str, str]) -> None:
        super().__init__(
            [sys.executable, "-P", child_main.__file__, json.dumps(task._asdict())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def is_stopped(self) -> bool:
        if self.poll() is not None:
            return False
        state = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        return state is not None


def _start(
    target: Callable[..., object] | str, task: child_main.ChildTask, environment: Mapping[str, str]
) -> ForkedChild | _Fresh:
    """Starts the child: a module runs as a program in a new interpreter, a function in a fork."""
    home = None if isinstance(target, str) else inspect.getmodule(target)
    if home is None or not fork_server.IS_POSSIBLE:
        return _Fresh(task, environment)
    (their_in, our_in), (our_out, their_out), (our_err, their_err) = (os.pipe() for _ in range(3))
    theirs = (their_in, their_out, their_err)
    try:
        child = _FORK_SERVER.fork(task, theirs, environment=environment, modules=_ours_in(home))
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    child.stdin = open(our_in, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    child.stdout = open(our_out, encoding="utf-8")  # noqa: PTH123, SIM115
    child.stderr = open(our_err, encoding="utf-8")  # noqa: PTH123, SIM115
    return child


# One per process: a second one would load the same modules again.
_FORK_SERVER = ForkServer()


def _ours_in(module: ModuleType) -> set[str]:
    """The Fencepost modules that a module imports names from: loading them has no effects, so once is
    enough."""
    names = {
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        for value in vars(module).values()
    }
    return {
        name
        for name in names - {child_main.MODULE}
        if isinstance(name, str) and name.startswith(("fencepost.", "fencepost_")) and name in sys.modules
    }


def _task(
    target: Callable[..., object] | str, arguments: tuple[Any, ...]
) -> tuple[str, child_main.ChildTask]:
    if isinstance(target, str):
        return target, child_main.ChildTask(
            os.getpid(), target, None, [str(argument) for argument in arguments]
        )
    return target.__qualname__, child_main.ChildTask.of(target, *arguments)
