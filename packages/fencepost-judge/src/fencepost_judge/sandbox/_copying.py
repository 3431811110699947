"""Copies files out of a box in Python, as `box/copyout.c` does: step by step, following no links."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

DEPTH_MAX = 16
FILES_MAX = 512
BLOCK_BYTES = 65_536


class OutputRefused(Exception):
    """The program's output is not a plain tree of files, or is too large. `reason` is shown to its author."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Budget:
    def __init__(self, bytes_max: int, files_max: int) -> None:
        self.bytes, self.files = bytes_max, files_max

    def take_file(self) -> None:
        self.files -= 1
        if self.files < 0:
            raise OutputRefused("output_too_many_files")

    def take(self, count: int) -> None:
        self.bytes -= count
        if self.bytes < 0:
            raise OutputRefused("output_too_large")


def copy_out(source: Path, target: Path, *, bytes_max: int, files_max: int = FILES_MAX) -> None:
    """Every process of the box has ended by now, but the names and types of files are still untrusted."""
    budget = _Budget(bytes_max, files_max)
    origin = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    place = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _copy_folder(origin, place, DEPTH_MAX, budget)
    finally:
        os.close(origin)
        os.close(place)


def bytes_below(folder: Path) -> int:
    """The total size of the files; a file that disappears meanwhile counts as absent."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size  # noqa: PTH118
    return total


def _copy_folder(origin: int, place: int, depth: int, budget: _Budget) -> None:
    for name in os.listdir(origin):
        budget.take_file()
        try:
            entry = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=origin)
        except OSError as error:
            is_link = stat.S_ISLNK(os.lstat(name, dir_fd=origin).st_mode)
            raise OutputRefused("output_link" if is_link else "output_unreadable") from error
        try:
            _copy_entry(entry, name, place, depth, budget)
        finally:
            os.close(entry)


def _copy_entry(entry: int, name: str, place: int, depth: int, budget: _Budget) -> None:
    kind = os.fstat(entry).st_mode
    if stat.S_ISREG(kind):
        _copy_file(entry, name, place, 0o755 if kind & 0o111 else 0o644, budget)
    elif not stat.S_ISDIR(kind):
        raise OutputRefused("output_special_file")
    elif depth == 0:
        raise OutputRefused("output_too_deep")
    else:
        os.mkdir(name, 0o755, dir_fd=place)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
        try:
            _copy_folder(entry, below, depth - 1, budget)
        finally:
            os.close(below)


def _copy_file(entry: int, name: str, place: int, mode: int, budget: _Budget) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    written = os.open(name, flags, mode, dir_fd=place)
    with os.fdopen(written, "wb") as file:
        while block := os.read(entry, BLOCK_BYTES):
            budget.take(len(block))
            file.write(block)
