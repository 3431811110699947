"""A disk whose power can be cut: mounts the file system of `fuse_server` and controls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fencepost_torture._mount_namespace import mount, unmount

DEVICE = Path("/dev/fuse")


class PowerSwitch:
    """A disk to mount, to put a server on, and to cut the power of."""

    # Shared memory in files of the data directory would go through the process that serves the disk.
    server_settings: Mapping[str, str | int] = {"dynamic_shared_memory_type": "posix"}

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def mounted(self, place: Path) -> Generator[None]:
        place.mkdir(mode=0o700)
        device = os.open(DEVICE, os.O_RDWR)
        try:
            options = f"fd={device},rootmode=40700,user_id=0,group_id=0,allow_other"
            mount("fencepost", place, "fuse", 0, options)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fencepost_torture._fuse_server", str(device)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(device,),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        finally:
            os.close(device)
        try:
            yield
        finally:
            unmount(place)
            self._end()

    def sync(self) -> None:
        """Sync everything: a server that restarts asks the kernel to, and the kernel does not ask FUSE."""
        self._say("sync")

    def cut_power(self) -> bool:
        self._say("cut")
        return True

    def fill(self) -> None:
        self._say("fill")

    def drain(self) -> None:
        self._say("drain")

    def _say(self, word: str) -> None:
        """Sends a word; returns when it is carried out."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()
        self._process.stdout.readline()

    def _end(self) -> None:
        """End the serving process: without it, the kernel ends what is left of the file system."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._process = None
