"""A disk whose power can be cut: the file system of `power_disk`, mounted, and the switch in our hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fencepost_torture.mount_namespace import mount, unmount

DEVICE = Path("/dev/fuse")


class PowerSwitch:
    """Mount it, put a server on it, and cut the power."""

    # Shared memory that lies in files of the data directory would go through the process that serves them.
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
                [sys.executable, "-m", "fencepost_torture.fuse_server", str(device)],
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
        """A server that comes back asks the kernel for it, and the kernel asks no file system in FUSE."""
        self._say("sync")

    def cut_power(self) -> bool:
        self._say("cut")
        return True

    def fill(self) -> None:
        self._say("fill")

    def drain(self) -> None:
        self._say("drain")

    def _say(self, word: str) -> None:
        """Returns when it is done."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()
        self._process.stdout.readline()

    def _end(self) -> None:
        """Without the one who serves it, the kernel ends what is left of the file system."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._process = None
