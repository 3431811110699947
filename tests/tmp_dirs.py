"""Where the servers of the tests keep their data."""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - Only a name of our own making is used in it.
ROOM_BYTES = 4 * 2**30


def server_place() -> str | None:
    """A directory for the `dir` of tempfile: in memory if there is room, else wherever tempfile finds some.

    None of these servers must outlive its test. A disk that is told of each of their thousands of files takes
    longer than the tests do.
    """
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK)
    return str(MEMORY) if usable and shutil.disk_usage(MEMORY).free > ROOM_BYTES else None


def server_directory() -> Path:
    """A new directory with a path short enough for a socket; an ephemeral server removes it."""
    return Path(tempfile.mkdtemp(prefix="fencepost-test-", dir=server_place()))
