"""A server's directory: locked while the server runs, with a socket at a path that is short enough."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from fencepost.embedded._deadline import Deadline
from fencepost.embedded._errors import DirectoryInUseError
from fencepost.embedded._reaper import GRACE_SECONDS, process_table
from fencepost.private_folder import make_private

# The kernel's limit is 108 bytes with the final zero, 104 on macOS.
SOCKET_PATH_BYTES_MAX = 100
# The time a reaper needs to end a server that ignores signals.
LAST_BREATH_SECONDS = 3 * GRACE_SECONDS


class ServerDir:
    """The directory of one server, while one process of this machine holds it.

    The server's processes hold the lock too, through an inherited descriptor. So it is held exactly as long
    as one of them lives, regardless of their starter and of pids that a container reuses after a restart.
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
        """The directory of the socket, which only its owner can reach."""
        assert self._sockets is not None, "there is a socket directory between open and close"
        return self._sockets

    @property
    def socket(self) -> Path:
        return self.sockets / self._socket_name

    @property
    def stray_sockets(self) -> tuple[Path, ...]:
        """The socket directory if it lies outside the server's directory."""
        return () if self.sockets.is_relative_to(self.directory) else (self.sockets,)

    def open(self) -> None:
        """Create what is missing and take the lock, or raise an error that names its holder."""
        make_private(self.directory)
        self._lock = _take_lock(self.directory / "lock")
        self.sign(os.getpid())
        # The previous log explains why the previous server ended.
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.old"))
        self.log.touch(mode=0o600)
        if self._sockets is None or not self._sockets.exists():
            self._sockets = self._make_sockets()

    def sign(self, holder: int) -> None:
        """Write the holder of the lock and its starter to the file, for error messages of other processes."""
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, f"{holder} {os.getpid()}".encode(), 0)

    def close(self) -> None:
        """Release the lock and keep the socket's path, so that a restart has the same address."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def leave(self) -> bool:
        """Release everything, and remove the socket's directory. False if there was nothing to release."""
        if self._sockets is None:
            return False
        # Without the lock, a socket inside the directory may already be another process's.
        if self._lock is not None or self.stray_sockets:
            shutil.rmtree(self._sockets, ignore_errors=True)
        self._sockets = None
        self.close()
        return True

    def log_tail(self, lines: int = 20) -> str:
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _make_sockets(self) -> Path:
        near = self.directory / "run"
        if len(os.fsencode(near / self._socket_name)) <= SOCKET_PATH_BYTES_MAX:
            make_private(near)
            return near
        return Path(tempfile.mkdtemp(prefix="fencepost-"))


def _take_lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _try_lock(descriptor) or _wait_for_a_dying_holder(descriptor):
        return descriptor
    holder, _ = _signature(descriptor)
    os.close(descriptor)
    raise DirectoryInUseError(
        f"{path.parent} is in use by a server with the process id {holder}. Stop it, or choose another "
        "directory."
    )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_a_dying_holder(descriptor: int) -> bool:
    """A server whose starter was just killed is about to end: its reaper ends it."""
    _, starter = _signature(descriptor)
    if starter in process_table():
        return False
    try:
        Deadline(LAST_BREATH_SECONDS, "the lock is free").wait(lambda: _try_lock(descriptor))
    except TimeoutError:
        return False
    return True


def _signature(descriptor: int) -> tuple[int, int]:
    """The holder of the lock, and the process that started it."""
    holder, _, starter = os.pread(descriptor, 64, 0).decode().partition(" ")
    return int(holder or 0), int(starter or 0)
