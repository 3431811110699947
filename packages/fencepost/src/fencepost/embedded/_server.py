"""The lifecycle of an embedded server, the same for both kinds: start, stop, crash, freeze."""

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.embedded._deadline import Deadline
from fencepost.embedded._errors import NotRunningError, ServerStartError
from fencepost.embedded._process import KeptProcess, StartPlan
from fencepost.embedded._server_dir import ServerDir

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30


class EmbeddedServer(ABC):
    """One server in one directory, on a unix socket that only its owner reaches.

    An `ephemeral` server's directory is removed when it stops, and also when we are killed.
    """

    def __init__(self, directory: Path, *, socket_name: str, ephemeral: bool) -> None:
        self._home = ServerDir(directory, socket_name)
        self._ephemeral = ephemeral
        self._process: KeptProcess | None = None

    @abstractmethod
    def _plan(self) -> StartPlan:
        """Prepare the directory and return what to run in it."""

    @abstractmethod
    def _is_ready(self, pid: int) -> bool:
        """Whether the server with this process id accepts connections."""

    @abstractmethod
    def _clear_up(self) -> None:
        """Remove what a crashed server leaves outside its directory."""

    @property
    def directory(self) -> Path:
        """Where the server keeps its data."""
        return self._home.directory

    @property
    def log(self) -> Path:
        """The server's log; the log of the previous start is beside it."""
        return self._home.log

    @property
    def running(self) -> bool:
        """Whether its process is alive."""
        return self._process is not None and self._process.is_alive()

    @property
    def pids(self) -> list[int]:
        """Every process of the server, the main one first."""
        return self._alive().pids()

    def start(self) -> Self:
        """Start, and return when connections are accepted. Does nothing if it already runs."""
        if self.running:
            return self
        # It may have ended by itself while we still hold the lock.
        self._end()
        self._home.close()
        self._home.open()
        try:
            self._process = KeptProcess(self._plan())
            self._home.sign(self._process.pid)
            self._wait_until_ready(self._process)
        except BaseException:
            # The directory stays, even an ephemeral one: its log shows what went wrong.
            self._end()
            self._home.leave()
            raise
        return self

    def stop(self) -> None:
        """Shut down cleanly: clients are disconnected, everything is written. No effect if not running."""
        self._end()
        if self._home.leave() and self._ephemeral:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """Crash: every process ends at once. The address stays the same for the next start."""
        self._alive().kill()
        self._process = None
        self._clear_up()
        self._home.close()

    def restart(self) -> None:
        """Stop cleanly, if it runs, and start at the same address."""
        self._end()
        self.start()

    def pause(self) -> None:
        """Freeze every process, like a machine that no longer answers."""
        self._alive().pause()

    def resume(self) -> None:
        """Continue the process after a pause (SIGCONT)."""
        self._alive().resume()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _stray_paths(self) -> tuple[Path, ...]:
        """What the reaper removes when we are killed."""
        return (*self._home.stray_sockets, *([self.directory] if self._ephemeral else []))

    def _alive(self) -> KeptProcess:
        if self._process is None or not self._process.is_alive():
            raise NotRunningError(f"The server in {self.directory} is not running.")
        return self._process

    def _wait_until_ready(self, process: KeptProcess) -> None:
        try:
            Deadline(START_SECONDS_MAX, "the server accepts connections").wait(
                lambda: self._is_ready(process.pid) or not process.is_alive()
            )
        except TimeoutError as error:
            raise ServerStartError(f"{error}\n{self._home.log_tail()}") from error
        if not process.is_alive():
            raise ServerStartError(
                f"The server in {self.directory} ended while it started.\n{self._home.log_tail()}"
            )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.resume()
        process.ask_to_stop()
        if process.wait(STOP_SECONDS_MAX) is None:
            # Committed data is in the log of both servers: the next start recovers it.
            process.kill()
        self._clear_up()
