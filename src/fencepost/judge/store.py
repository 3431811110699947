"""Test data by content: a file is named by the digest of what is in it, and checked when it is read."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

BLOCK_BYTES = 1 << 20


class CorruptData(Exception):
    """What is stored under a digest is something else: a broken disk, or a hand."""


class Store:
    """A folder of contents. Several processes may use it at once: a file appears whole, or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        place = self._place(digest)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(place, content)
        return digest

    def get(self, digest: str) -> bytes:
        """Raises FileNotFoundError, or CorruptData when the content is not what its name says."""
        content = self._place(digest).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise CorruptData(
                f"The test data {digest[:12]}… is not what was stored. Import the problem again."
            )
        return content

    def _place(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest


class Cache:
    """Contents that boxes may see, below a workspace; bounded, the longest unused go first."""

    def __init__(self, store: Store, workspace: Path, *, bytes_max: int = 1 << 30) -> None:
        self._store = store
        self._folder = workspace / "data"
        self._bytes_max = bytes_max
        self._folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """The content as a file of the workspace, checked against its digest when it came there."""
        place = self._folder / digest
        try:
            os.utime(place)
        except FileNotFoundError:
            content = self._store.get(digest)
            self._make_room(len(content))
            _write_whole(place, content)
        return place

    def _make_room(self, wanted: int) -> None:
        files = sorted(
            (entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(self._folder)
        )
        used = sum(size for _, size, _ in files)
        for _, size, path in files:
            if used + wanted <= self._bytes_max:
                return
            # A box that has it open or mounted keeps it: only the name goes.
            Path(path).unlink(missing_ok=True)
            used -= size


def _write_whole(place: Path, content: bytes) -> None:
    descriptor, scratch = tempfile.mkstemp(dir=place.parent, prefix="writing-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(scratch).chmod(0o644)
        Path(scratch).replace(place)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def remove_folder(folder: Path) -> None:
    """Only folders that we made and filled ourselves; links in them are removed, not followed."""
    shutil.rmtree(folder, ignore_errors=True)
