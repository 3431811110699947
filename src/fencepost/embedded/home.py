"""A server's directory: locked while the server lives, with a socket in a place that is short enough."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from fencepost.embedded.errors import DirectoryInUseError

# The kernel's limit is 108 bytes with the final zero, 104 on macOS.
SOCKET_PATH_BYTES_MAX = 100
PRIVATE = 0o700


class Home:
    """The directory of one server, while one process of this machine holds it.

    The lock is held by the server's processes too, through an inherited descriptor. So it stays held exactly
    as long as one of them lives, whoever started them, and whichever pid a container reuses after a restart.
    """

    def __init__(self, directory: Path, socket_name: str) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "server.log"
        self._socket_name = socket_name
        self._lock: int | None = None
        self._sockets: Path | None = None

    @property
    def lock(self) -> int:
        assert self._lock is not None, "the directory is locked between open and close"
        return self._lock

    @property
    def sockets(self) -> Path:
        """The directory of the socket, reachable by its owner only."""
        assert self._sockets is not None, "there is a socket directory between open and close"
        return self._sockets

    @property
    def socket(self) -> Path:
        return self.sockets / self._socket_name

    @property
    def stray_sockets(self) -> tuple[Path, ...]:
        """The socket directory when it lies outside the server's directory."""
        return () if self.sockets.is_relative_to(self.directory) else (self.sockets,)

    def open(self) -> None:
        """Create what is missing and take the lock, or say which process has it."""
        self.directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        self._lock = _take_lock(self.directory / "lock")
        # The previous log explains the previous end.
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.old"))
        self.log.touch(mode=0o600)
        if self._sockets is None or not self._sockets.exists():
            self._sockets = self._make_sockets()

    def sign(self, pid: int) -> None:
        """Write down who holds the lock, for the next one who asks."""
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, str(pid).encode(), 0)

    def close(self) -> None:
        """Let go of the lock and keep the socket's place, so that a restart has the same address."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def leave(self) -> None:
        """Remove the socket directory."""
        self.close()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None

    def log_tail(self, lines: int = 20) -> str:
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _make_sockets(self) -> Path:
        near = self.directory / "run"
        if len(os.fsencode(near / self._socket_name)) <= SOCKET_PATH_BYTES_MAX:
            near.mkdir(mode=PRIVATE, exist_ok=True)
            return near
        return Path(tempfile.mkdtemp(prefix="fencepost-"))


def _take_lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode() or "unknown"
        os.close(descriptor)
        raise DirectoryInUseError(
            f"{path.parent} is in use by a server with the process id {holder}. Stop it, or choose another "
            "directory."
        ) from None
    return descriptor
