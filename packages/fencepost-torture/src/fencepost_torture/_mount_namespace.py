"""Mounts in a namespace of our own: no other process sees them, and they end with this one."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWNS = 0x00020000
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2


def may_mount() -> bool:
    """Whether this process may mount; if so, it has its own namespace from now on. Call it before any thread
    starts."""
    if sys.platform != "linux" or os.geteuid() != 0 or _libc().unshare(CLONE_NEWNS) != 0:
        return False
    try:
        mount("none", Path("/"), "", MS_REC | MS_PRIVATE, "")
    except OSError:
        return False
    return True


def mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    arguments = [source.encode(), os.fsencode(target), kind.encode() or None, flags, options.encode() or None]
    if _libc().mount(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def unmount(target: Path) -> None:
    """Detaches it from the tree at once; the kernel unmounts it when its last user has closed it."""
    _libc().umount2(os.fsencode(target), MNT_DETACH)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
