"""A disk that can be full: a file system in memory, of a size of our choice, that only this process sees.

It needs the right to mount, which a person's own machine gives to root alone. Where it is refused, the fault
is listed as not available.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
CLONE_NEWNS = 0x00020000
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
KEPT_FREE_BYTES = 64 * 1024
# What a server with a database for each system takes, and what a second of a run adds at most.
MEBIBYTES = 400
MEBIBYTES_PER_SECOND = 2
SECONDS_MAX = 600.0


@dataclass
class SmallDisk:
    """Mount it, put a server on it, and fill it up."""

    mebibytes: int = MEBIBYTES
    _place: Path | None = field(default=None, init=False)

    @contextmanager
    def mounted(self, place: Path) -> Generator[None]:
        place.mkdir(mode=0o700)
        _mount("tmpfs", place, "tmpfs", 0, f"size={self.mebibytes}m,mode=0700")
        self._place = place
        try:
            yield
        finally:
            self.drain()
            self._place = None
            _libc().umount2(os.fsencode(place), MNT_DETACH)

    def fill(self) -> None:
        """Take all that is free, but for a little: the next page of the log finds no room."""
        ballast = self._ballast()
        free = shutil.disk_usage(ballast.parent).free - KEPT_FREE_BYTES
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free))

    def drain(self) -> None:
        self._ballast().unlink(missing_ok=True)

    def _ballast(self) -> Path:
        assert self._place is not None, "the disk is filled while it is mounted"
        return self._place / "ballast"


def make_small_disk(seconds: float) -> SmallDisk | None:
    """A disk for a run, if this process may mount. Call it before any thread is started.

    The mount is in a namespace of our own, so that it is gone with us, however we end. It is made of memory:
    a long run would need too much of that.
    """
    if sys.platform != "linux" or os.geteuid() != 0 or seconds > SECONDS_MAX:
        return None
    if _libc().unshare(CLONE_NEWNS) != 0:
        return None
    try:
        _mount("none", Path("/"), "", MS_REC | MS_PRIVATE, "")
    except OSError:
        return None
    return SmallDisk(MEBIBYTES + int(MEBIBYTES_PER_SECOND * seconds))


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    arguments = [source.encode(), os.fsencode(target), kind.encode() or None, flags, options.encode() or None]
    if _libc().mount(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
