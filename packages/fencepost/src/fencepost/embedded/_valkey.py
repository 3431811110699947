"""A Valkey (or Redis) server that we start and stop."""

import contextlib
import shutil
import signal
import socket
from pathlib import Path
from urllib.parse import quote

from fencepost.embedded._binaries import FoundBinaries, find_valkey
from fencepost.embedded._errors import EmbeddedError
from fencepost.embedded._identity import ourselves
from fencepost.embedded._process import StartPlan
from fencepost.embedded._server import EmbeddedServer

# The SHUTDOWN command takes 4 s, the signal 0.1 s.
FAREWELL = (signal.SIGTERM, signal.SIGKILL)
ANSWER_SECONDS_MAX = 5


class ValkeyServer(EmbeddedServer):
    """One Valkey server in one directory. It keeps nothing on disk unless `append_only` is set."""

    def __init__(
        self,
        directory: Path,
        *,
        append_only: bool = False,
        ephemeral: bool = False,
        binary: FoundBinaries | None = None,
    ) -> None:
        super().__init__(directory, socket_name="valkey.sock", ephemeral=ephemeral)
        self.binary = binary or find_valkey()
        self._append_only = append_only
        self._data = self.directory / "data"

    @property
    def url(self) -> str:
        """The URL, over the server's own socket."""
        return f"unix://{quote(str(self._home.socket))}?db=0"

    def flush(self) -> None:
        """Empty every database and forget the scripts. Connections stay."""
        for command in ("FLUSHALL SYNC", "SCRIPT FLUSH SYNC", "FUNCTION FLUSH SYNC"):
            answer = self._ask(command)
            if answer != "+OK":
                raise EmbeddedError(f"{command} was answered with {answer}.")

    def wipe(self) -> None:
        """Lose data, scripts and connections, as with a lost machine. Restarts it if it was running."""
        running = self.running
        if running:
            self.kill()
        shutil.rmtree(self._data, ignore_errors=True)
        if running:
            self.start()

    def _plan(self) -> StartPlan:
        self._data.mkdir(mode=0o700, exist_ok=True)
        return StartPlan(
            command=[self.binary.path, *self._options()],
            identity=ourselves(),
            log=self.log,
            farewell=FAREWELL,
            sweep=self._stray_paths(),
            lock=self._home.lock,
        )

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._home.socket),
            "unixsocketperm": "700",
            "dir": str(self._data),
            "save": "",
            "appendonly": "yes" if self._append_only else "no",
            "daemonize": "no",
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def _is_ready(self, pid: int) -> bool:
        """Sends a command: the server accepts connections before it has read its data (LOADING)."""
        with contextlib.suppress(OSError):
            return self._ask("PING") == "+PONG"
        return False

    def _clear_up(self) -> None:
        """Does nothing: a crash leaves nothing outside the directory."""

    def _ask(self, command: str) -> str:
        """The first line of the reply. Needs no client library, and no pool that must be closed."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS_MAX)
            connection.connect(str(self._home.socket))
            connection.sendall(f"{command}\r\n".encode())
            with connection.makefile("r", encoding="utf-8", newline="\r\n") as answer:
                return answer.readline().rstrip()
