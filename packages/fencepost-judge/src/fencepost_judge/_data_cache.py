"""A local cache of test data: contents that boxes may read, as files of a workspace."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from pathlib import Path

from fencepost_judge._host_cache import HostCache
from fencepost_judge._store import Store

Stamp = tuple[int, int, int, int]


class Cache:
    """Files named by their content's digest, bounded in size, least recently used removed first. It belongs
    to one process, and no other writes there.

    A content is checked against its digest when it is fetched. At each use the file must be the one that was
    checked, unmodified since then: a file that was written to, replaced or removed is fetched again,
    from the host's shared data if there is any.
    """

    def __init__(
        self, store: Store, workspace: Path, *, bytes_max: int = 1 << 30, host: HostCache | None = None
    ) -> None:
        """With `host` the contents come from there: from the store once for all judges of the host."""
        self._store = store
        self._host = host
        self._folder = workspace / "data"
        self._bytes_max = bytes_max
        self._folder.mkdir(parents=True, exist_ok=True)
        # In order of use. Threads that fetch modify it too.
        self._kept: dict[str, Stamp] = {}
        self._lock = threading.Lock()
        self._coming: dict[str, asyncio.Task[None]] = {}

    async def path(self, digest: str) -> Path:
        """The content as a file. Concurrent requests share one fetch, which runs outside the event loop."""
        place = self._folder / digest
        if self._use(digest, place):
            return place
        coming = self._coming.get(digest)
        if coming is None:
            coming = asyncio.create_task(asyncio.to_thread(self._fetch, digest, place))
            self._coming[digest] = coming
            coming.add_done_callback(lambda _: self._coming.pop(digest, None))
        # Shielded: a cancelled caller does not cancel the fetch for the others.
        await asyncio.shield(coming)
        return place

    def _use(self, digest: str, place: Path) -> bool:
        with self._lock:
            stamp = self._kept.pop(digest, None)
            if stamp is None or stamp != _stamp(place):
                return False
            self._kept[digest] = stamp
            return True

    def _fetch(self, digest: str, place: Path) -> None:
        if self._host is not None:
            self._host.link(digest, place)
            with self._lock:
                # A link that another judge makes or removes changes the stamp: then it is checked again.
                self._keep(digest, place)
                self._make_room(0)
            return
        content = self._store.get(digest)
        with self._lock:
            self._make_room(len(content))
            _write_whole(place, content)
            self._keep(digest, place)

    def _keep(self, digest: str, place: Path) -> None:
        stamp = _stamp(place)
        if stamp is not None:
            self._kept[digest] = stamp

    def _make_room(self, wanted: int) -> None:
        used = sum(size for _, size, _, _ in self._kept.values())
        for digest, (_, size, _, _) in list(self._kept.items()):
            if used + wanted <= self._bytes_max or (len(self._kept) == 1 and not wanted):
                return
            # A box that has the file open or mounted keeps it: only the name is removed.
            (self._folder / digest).unlink(missing_ok=True)
            del self._kept[digest]
            used -= size


def _stamp(place: Path) -> Stamp | None:
    """Identifies the file and its last change. Only the kernel sets the change time."""
    try:
        found = place.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


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
