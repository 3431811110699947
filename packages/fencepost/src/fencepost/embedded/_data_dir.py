"""A PostgreSQL data directory on disk: made, copied, and cleared of the remains of a crash."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from fencepost.embedded import _reaper as reaper
from fencepost.embedded._binaries import FoundBinaries
from fencepost.embedded._errors import DirectoryInUseError, IdentityError, ServerStartError
from fencepost.embedded._identity import Identity, candidates
from fencepost.embedded._process import run_to_end

SUPERUSER = "postgres"
# Only the owner can reach the socket's directory, so it is trusted. TCP is rejected until pg_hba.conf is
# edited.
INITDB_OPTIONS = (
    f"--username={SUPERUSER}",
    "--auth-local=trust",
    "--auth-host=reject",
    "--encoding=UTF8",
    "--no-locale",
)
PID_LINE, SHARED_MEMORY_LINE, STATUS_LINE = 0, 6, 7
IPC_RMID = 0


def choose_identity(binary: FoundBinaries, data: Path, sockets: Path, log: Path) -> Identity:
    """The best identity under which the binary really runs here. It is given the directories it needs."""
    for candidate in candidates(data):
        identity = settle(candidate, binary, data, sockets)
        if identity.disguise == "stay" or _runs(binary, identity, log):
            return identity
    raise IdentityError(
        f"PostgreSQL does not run as uid {os.geteuid()}: it refuses root and accounts without a name, and "
        "this machine allows neither a user namespace nor a change of account. Run as a named account that "
        f"is not root. {log} has the details."
    )


def settle(identity: Identity, binary: FoundBinaries, data: Path, sockets: Path) -> Identity:
    """Give the identity the directories it writes to, and the right to traverse those it may not enter."""
    identity.own(data.parent)
    identity.own(sockets)
    return identity.reaching(binary.path, data, sockets)


def _runs(binary: FoundBinaries, identity: Identity, log: Path) -> bool:
    return run_to_end([binary.path, "--version"], identity, log, seconds=30) == 0


def default_cache() -> Path | None:
    """Where the result of initdb is kept between runs, if this account has a cache directory."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "fencepost"
    try:
        return Path.home() / ".cache" / "fencepost"
    except RuntimeError:
        return None


def create(
    data: Path, binary: FoundBinaries, identity: Identity, *, cache: Path | None, durable: bool, log: Path
) -> None:
    """Make a data directory if there is none. It appears complete or not at all."""
    # The directory is locked, so an unfinished one belongs to a process that was killed.
    for abandoned in data.parent.glob("new-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=data.parent) as work_dir:
        identity.own(Path(work_dir))
        unfinished = Path(work_dir) / "data"
        template = cache and _template(cache, binary, identity, log)
        if template:
            shutil.copytree(template, unfinished, copy_function=shutil.copy)
            identity.own_tree(unfinished)
        else:
            _initdb(unfinished, binary, identity, log, *INITDB_OPTIONS, "--no-sync")
        if durable:
            _initdb(unfinished, binary, identity, log, "--sync-only")
        unfinished.rename(data)


def _template(cache: Path, binary: FoundBinaries, identity: Identity, log: Path) -> Path | None:
    """A data directory that no server uses, to be copied; None when the cache cannot be written.

    Copies share one system identifier. That matters only to replication between them, which is not used.
    """
    template = cache / f"initdb-{_fingerprint(binary)}"
    if template.exists():
        return template
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        work_dir = tempfile.TemporaryDirectory(prefix="new-", dir=cache)
    except OSError:
        return None
    with work_dir as directory:
        identity.own(Path(directory))
        unfinished = Path(directory) / "data"
        _initdb(unfinished, binary, identity.reaching(cache), log, *INITDB_OPTIONS, "--no-sync")
        # Another process may have finished first; its result is equivalent.
        with contextlib.suppress(OSError):
            unfinished.rename(template)
    return template


def _fingerprint(binary: FoundBinaries) -> str:
    """Identifies this build and our options, regardless of where the build is installed."""
    with binary.path.open("rb") as program:
        digest = hashlib.file_digest(program, "sha256")
    digest.update(" ".join(INITDB_OPTIONS).encode())
    return digest.hexdigest()[:16]


def _initdb(data: Path, binary: FoundBinaries, identity: Identity, log: Path, *options: str) -> None:
    command: list[str | Path] = [binary.beside("initdb"), f"--pgdata={data}", *options]
    if run_to_end(command, identity, log, seconds=120) != 0:
        raise ServerStartError(f"initdb failed.\n{log.read_text(errors='replace')[-2000:]}")


def refuse_or_clear_pid_file(data: Path) -> None:
    """Refuse a data directory with a live server; remove the pid file that a dead one left.

    PostgreSQL removes the file itself unless *any* process has that pid now, which is usual when a container
    starts again: its first pids are always the same.
    """
    note = PidFile.read(data)
    if note is None:
        return
    if _is_server_of(note.pid, data):
        raise DirectoryInUseError(
            f"{data} is in use by a PostgreSQL server with the process id {note.pid} that was not started "
            "from here. Stop it, or choose another directory."
        )
    (data / "postmaster.pid").unlink(missing_ok=True)


def _is_server_of(pid: int, data: Path) -> bool:
    entry = reaper.process_table().get(pid)
    if entry is None or entry.state == "Z":
        return False
    # A server's working directory is its data directory. If that cannot be read, trust the pid file.
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    except OSError:
        return True


class PidFile:
    """The pid file in the data directory, which describes the running server."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self.pid = int(lines[PID_LINE])

    @classmethod
    def read(cls, data: Path) -> PidFile | None:
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            return cls((data / "postmaster.pid").read_text().splitlines())
        return None

    def is_ready(self) -> bool:
        """pg_ctl waits for the same status."""
        return self._lines[STATUS_LINE : STATUS_LINE + 1] == ["ready   "]

    def shared_memory_id(self) -> int | None:
        """The System V segment by which PostgreSQL recognises a live server of the same data."""
        with contextlib.suppress(IndexError, ValueError):
            return int(self._lines[SHARED_MEMORY_LINE].split()[1])
        return None


def release_shared_memory(data: Path) -> None:
    """Remove the segment that a crashed server leaves in the kernel; a machine has room for 4096 of them."""
    note = PidFile.read(data)
    segment = note and note.shared_memory_id()
    if segment:
        ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)
