"""Mounting in a namespace of our own: nobody else sees it, and it is gone with us, however we end."""

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
    """Whether this process may mount, and does so unseen from now on. Call it before any thread."""
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
    """At once for whoever looks, and truly when the last one has let go."""
    _libc().umount2(os.fsencode(target), MNT_DETACH)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
