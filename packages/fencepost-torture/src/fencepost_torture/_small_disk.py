"""A disk that can be full: a file system in memory, of a chosen size."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fencepost_torture._mount_namespace import mount, unmount

KEPT_FREE_BYTES = 64 * 1024
PAGE_BYTES = 4096
FIRST_STEP_BYTES = 1024**4
# What a server with a database for each system takes, and the most that a second of a run adds.
MEBIBYTES = 400
MEBIBYTES_PER_SECOND = 2
SECONDS_MAX = 600.0


@dataclass
class SmallDisk:
    """A disk to mount, to put a server on, and to fill up. In memory: a long run would need too much."""

    seconds: float
    server_settings: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    _place: Path | None = field(default=None, init=False)

    @contextmanager
    def mounted(self, place: Path) -> Generator[None]:
        place.mkdir(mode=0o700)
        mebibytes = MEBIBYTES + int(MEBIBYTES_PER_SECOND * self.seconds)
        mount("tmpfs", place, "tmpfs", 0, f"size={mebibytes}m,mode=0700")
        self._place = place
        try:
            yield
        finally:
            self.drain()
            self._place = None
            unmount(place)

    def fill(self) -> None:
        """Take nearly all that is free: the next page of the log finds no room."""
        ballast = self._ballast()
        with ballast.open("wb") as file:
            taken, step = 0, FIRST_STEP_BYTES
            # In steps: the server writes meanwhile, and not all that was free at a look is there after it.
            while (free := shutil.disk_usage(ballast.parent).free) > KEPT_FREE_BYTES and step >= PAGE_BYTES:
                size = min(step, max(PAGE_BYTES, free - KEPT_FREE_BYTES))
                try:
                    os.posix_fallocate(file.fileno(), taken, size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step = size // 2
                else:
                    taken += size

    def drain(self) -> None:
        self._ballast().unlink(missing_ok=True)

    def sync(self) -> None:
        """Does nothing: this disk loses nothing."""

    def cut_power(self) -> bool:
        """False: it does not track what was synced, so it cannot drop the rest."""
        return False

    def _ballast(self) -> Path:
        assert self._place is not None, "the disk is filled while it is mounted"
        return self._place / "ballast"
