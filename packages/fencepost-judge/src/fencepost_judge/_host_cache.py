"""Test data that the judges of one host share: each content is fetched from the store once for the host.

A file is named by its content's digest and checked against it whenever a judge takes it, so what another
process of the same user has damaged is fetched anew. Judges link to the files: one that is evicted here stays
with those that use it. Locks are files of their own, one for each beginning of a digest, held by flock: the
kernel releases those of a process that dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from fencepost.private_folder import make_private
from fencepost_judge._store import Store

NAME = "host-data"
LOCK_LETTERS = 2
WRITING = "writing-"


class HostCache:
    """A folder that every judge of the host uses. Evicts what was not used longest."""

    def __init__(self, store: Store, folder: Path, *, bytes_max: int) -> None:
        self._store = store
        self._folder = folder
        self._bytes_max = bytes_max
        self._locks = folder / "locks"
        make_private(folder)
        self._locks.mkdir(exist_ok=True, mode=0o700)

    def link(self, digest: str, target: Path) -> None:
        """Make the content appear at `target`, on the same file system. Raises as Store.get does."""
        place = self._folder / digest
        with self._locked(digest):
            if not _is_whole(place, digest):
                content = self._store.get(digest)
                self._make_room(len(content), digest)
                _write_whole(place, content)
            # The file's own times belong to those that watch it for changes: its use is noted beside it.
            (self._locks / digest).touch()
            scratch = target.with_name(f"{WRITING}{digest}")
            scratch.unlink(missing_ok=True)
            os.link(place, scratch)
            scratch.replace(target)

    def _make_room(self, wanted: int, for_digest: str) -> None:
        """Two judges may count at once: then a little more is evicted than needed."""
        found: list[tuple[float, int, str]] = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if path.is_file() and path.name != for_digest:
                    found.append((_used_at(self._locks / path.name), path.stat().st_size, path.name))
        left = sum(size for _, size, _ in found) + wanted
        for _, size, name in sorted(found):
            if left <= self._bytes_max:
                return
            (self._folder / name).unlink(missing_ok=True)
            (self._locks / name).unlink(missing_ok=True)
            left -= size

    @contextmanager
    def _locked(self, digest: str) -> Generator[None]:
        lock = os.open(
            self._locks / f"{digest[:LOCK_LETTERS]}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _used_at(mark: Path) -> float:
    try:
        return mark.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_whole(place: Path, digest: str) -> bool:
    try:
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError:
        return False


def _write_whole(place: Path, content: bytes) -> None:
    descriptor, scratch = tempfile.mkstemp(dir=place.parent, prefix=WRITING)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(scratch).chmod(0o644)
        Path(scratch).replace(place)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
