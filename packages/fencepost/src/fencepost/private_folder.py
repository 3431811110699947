"""Folders that only their owner may open, regardless of the umask."""

from __future__ import annotations

import os
import stat
from pathlib import Path

PRIVATE = 0o700


def make_private(folder: Path) -> None:
    """Make the folder and its missing parents for their owner alone. Existing folders are left unchanged."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        try:
            one.mkdir()
        except FileExistsError:
            continue
        # mkdir's mode is subject to the umask; chmod's is not.
        one.chmod(PRIVATE)


def tighten(folder: Path) -> None:
    """Close a folder that an earlier version left open. Only for folders that are known to be ours."""
    status = folder.stat()
    if status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX and is_open(folder):
        folder.chmod(PRIVATE)


def is_open(folder: Path) -> bool:
    """Whether anyone but the owner may list, enter or change it."""
    return bool(stat.S_IMODE(folder.stat().st_mode) & 0o077)
