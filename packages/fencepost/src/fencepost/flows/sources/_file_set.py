"""Files that appear in a place: each is read once, in the order in which they were found.

What is found is appended to a log, each file with its version, and gets a number there; an offset is that
number and how many rows of the file were read. So nothing depends on how the place lists its files later. The
last row of a file has the offset at which the next file begins: a file whose rows are all committed is not
opened again, and may be removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol, TypeVar

from fencepost._durations import Duration, seconds_of
from fencepost.flows._errors import FlowError, GraphRefused, SourceChanged
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Offset, order
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._file_formats import FileFormat, RowReader
from fencepost.flows.sources._log import Entry, SourceLog
from fencepost.flows.sources._source import Chunk
from fencepost.logs import get_logger

_log = get_logger(__name__)
T = TypeVar("T")
AT_ONCE = 1000
POLL_SECONDS = 0.05
Changed = Literal["refuse", "read", "ignore"]
CHANGED: tuple[Changed, ...] = ("refuse", "read", "ignore")


class FoundFile(NamedTuple):
    """A file in its place, by its path below the root. Another content has another version."""

    path: str
    version: str
    size: int


class OpenFile(NamedTuple):
    stream: BinaryIO
    version: str
    """What the stream has the content of."""


class FileStore(Protocol):
    """Where files lie. Its methods block, and are called in threads."""

    @property
    def place(self) -> str:
        """Its address, for people."""
        ...

    def check(self) -> None:
        """Raise StartRefused, with the remedy, if it cannot be listed."""
        ...

    def found(self) -> Iterator[FoundFile]:
        """Every file, the oldest first where that is known."""
        ...

    def open(self, file: FoundFile) -> OpenFile:
        """Open a file. Raises FileNotFoundError."""
        ...

    def version_of(self, stream: BinaryIO) -> str | None:
        """The version of an open file by now; None where it cannot change while it is open."""
        ...


class FileSet:
    """The source over a store; `FolderFiles` and `BucketFiles` are made of it."""

    promise = Promise(EXACTLY_ONCE, "found files are listed in a log, and can be read again from any row")
    resumes = True

    def __init__(
        self,
        store: FileStore,
        kind: FileFormat,
        *,
        pattern: str,
        partitions: int,
        changed: Changed,
        every: Duration,
        settled: Duration,
        name: str,
    ) -> None:
        if changed not in CHANGED:
            raise GraphRefused(f"changed is {changed!r}; allowed: {', '.join(CHANGED)}.")
        if not 1 <= partitions <= 256:
            raise GraphRefused(f"partitions is {partitions}; allowed: from 1 to 256.")
        self.name = name
        self.store = store
        self.kind = kind
        self.changed: Changed = changed
        self.every_seconds = seconds_of("every", every)
        self.settled_seconds = seconds_of("settled", settled)
        self._pattern = pattern
        self._count = partitions

    @property
    def partitions(self) -> Sequence[str]:
        """The numbers of its partitions: a file belongs to one of them by its path."""
        return [str(number) for number in range(self._count)]

    def reads(self, partition: str) -> str:
        """What a partition reads, for people. Another number of partitions reads something else."""
        return f"files {self.store.place}/{self._pattern} {partition}/{self._count}"

    def takes(self, path: str, partition: str) -> bool:
        """Whether a file belongs to a partition: hidden ones, and those of other names, belong to none."""
        parts = path.split("/")
        if any(part.startswith((".", "_")) for part in parts):
            return False
        if not fnmatchcase(path if "/" in self._pattern else parts[-1], self._pattern):
            return False
        return zlib.crc32(path.encode("utf-8", "surrogateescape")) % self._count == int(partition)

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> FileSetReader:
        """Read from behind an offset."""
        self.kind.check()
        await in_thread(self.store.check)
        log = SourceLog(context, f"{self.name}:{partition}")
        state = await log.state()
        number, row = (1, 0) if after is None else order(after)
        if number > state.last + 1:
            raise SourceChanged(
                f"The log of the files of {self.name} ends at {state.last}, and this flow has come to "
                f"{after}: the database was put back to an older state. Restore a savepoint of that time."
            )
        return FileSetReader(self, log, partition, number, row, bounded=context.bounded)


class FileSetReader:
    """Reads the files of one partition, one after the other."""

    def __init__(
        self, source: FileSet, log: SourceLog, partition: str, number: int, row: int, *, bounded: bool
    ) -> None:
        self._source = source
        self._log = log
        self._partition = partition
        self._number = number
        """The file that is read, or comes next."""
        self._row = row
        """How many of its rows were read."""
        self._bounded = bounded
        self._listed: list[Entry] = []
        self._file: FoundFile | None = None
        self._rows: RowReader | None = None
        self._seen: set[bytes] = set()
        self._settling: dict[str, tuple[str, float]] = {}
        self._looks_at = 0.0

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        deadline = time.monotonic() + wait_seconds
        while True:
            if self._rows is not None or await self._open_next():
                chunk = await self._take(limit)
                if chunk.values:
                    return chunk
                continue
            if time.monotonic() >= self._looks_at:
                if await self._look():
                    continue
                self._looks_at = time.monotonic() + self._source.every_seconds
                if self._bounded and not self._settling:
                    return Chunk((), (), ended=True)
            left = deadline - time.monotonic()
            if left <= 0:
                return Chunk((), ())
            looks_in = max(self._looks_at - time.monotonic(), POLL_SECONDS)
            await asyncio.sleep(min(left, looks_in))

    async def acknowledge(self, offset: Offset) -> None:
        """Does nothing: the files stay, and the log knows them again."""

    async def lag(self, count: int) -> int | None:
        return None

    async def close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            await in_thread(rows.close)

    async def _take(self, limit: int) -> Chunk:
        rows, file = self._rows, self._file
        assert rows is not None
        assert file is not None
        first = rows.row + 1
        values, ended = await in_thread(rows.take, limit)
        offsets = [f"{self._number}-{row}" for row in range(first, rows.row + 1)]
        self._row = rows.row
        if ended:
            version = self._source.store.version_of(rows.stream)
            if version is not None and version != file.version:
                self._was_changed(file, version)
            await self.close()
            self._pass_by()
            if offsets:
                offsets[-1] = f"{self._number}-0"
        return Chunk(values, offsets)

    async def _open_next(self) -> bool:
        """Open the next file of the log; False when all are read."""
        while True:
            if not self._listed:
                self._listed = await self._log.read(self._number - 1, AT_ONCE)
            if not self._listed:
                return False
            entry = self._listed.pop(0)
            if entry.number != self._number:
                self._number, self._row = entry.number, 0
            file = FoundFile(**entry.content)
            if await self._opened(file):
                self._file = file
                return True
            self._pass_by()

    async def _opened(self, file: FoundFile) -> bool:
        """Open a file behind the rows that were read; False if it is to be passed by."""
        try:
            version = await in_thread(self._open_rows, file)
        except FileNotFoundError:
            version = None
        rows = self._rows
        if rows is None:
            self._was_changed(file, version)
            return False
        if not rows.skipped_all:
            raise SourceChanged(
                f"{file.path} has fewer rows than the {self._row} that were read of it before, and the same "
                "version. Put back what it was, or restore a savepoint from before it."
            )
        return True

    def _open_rows(self, file: FoundFile) -> str:
        """Open the rows of a file, unless it has another version, which is returned."""
        stream, version = self._source.store.open(file)
        try:
            if version == file.version:
                self._rows = RowReader(stream, file.path, self._source.kind, self._row)
        finally:
            if self._rows is None:
                stream.close()
        return version

    def _pass_by(self) -> None:
        self._number, self._row, self._file = self._number + 1, 0, None

    def _was_changed(self, file: FoundFile, version: str | None) -> None:
        """Raises unless changed files are to be passed by, or another version of it will be found."""
        what = "is gone" if version is None else f"is another one ({version}, and it was {file.version})"
        told = f"{file.path} in {self._source.store.place} {what}, after {self._row} of its rows were read."
        if self._source.changed == "refuse":
            raise SourceChanged(
                f"{told} Put it back as it was; or let the source read changed files whole as new ones "
                "(changed='read'), or pass them by (changed='ignore')."
            )
        _log.warning("flow_file_changed", source=self._source.name, file=file.path, rows=self._row)

    async def _look(self) -> bool:
        """List the place, and append what is new to the log; whether something was."""
        found = await in_thread(self._unseen)
        settled = self._settled(found)
        count = 0
        for first in range(0, len(settled), AT_ONCE):
            count += await self._append(settled[first : first + AT_ONCE])
        return count > 0

    def _unseen(self) -> list[FoundFile]:
        source = self._source
        return [
            file
            for file in source.store.found()
            if source.takes(file.path, self._partition) and _digest(file) not in self._seen
        ]

    def _settled(self, found: Sequence[FoundFile]) -> list[FoundFile]:
        """Those that have been as they are for long enough: one that is being written changes."""
        if not self._source.settled_seconds:
            return list(found)
        now = time.monotonic()
        before = self._settling
        self._settling = {}
        settled: list[FoundFile] = []
        for file in found:
            version, since = before.get(file.path, (file.version, now))
            if version == file.version and now - since >= self._source.settled_seconds:
                settled.append(file)
            else:
                self._settling[file.path] = (file.version, since if version == file.version else now)
        return settled

    async def _append(self, files: Sequence[FoundFile]) -> int:
        """Append files that the log does not know; returns how many."""
        ids = [name for file in files for name in (file.path, _version_id(file))]
        known = await self._log.known(ids)
        new: list[tuple[str, FoundFile]] = []
        for file in files:
            first = known.get(file.path)
            if first is None:
                new.append((file.path, file))
            elif first["version"] != file.version and _version_id(file) not in known:
                self._is_changed(file, first["version"])
                if self._source.changed == "read":
                    new.append((_version_id(file), file))
        count = await self._log.append([(name, file._asdict()) for name, file in new]) if new else 0
        self._seen.update(_digest(file) for file in files)
        return count

    def _is_changed(self, file: FoundFile, before: str) -> None:
        if self._source.changed == "refuse":
            raise SourceChanged(
                f"{file.path} in {self._source.store.place} was found as {before}, and is {file.version} "
                "now. Give new content a name of its own; or let the source read changed files whole as new "
                "ones (changed='read'), or pass them by (changed='ignore')."
            )
        _log.warning("flow_file_changed", source=self._source.name, file=file.path, rows=None)


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that blocks in a thread. If the caller is cancelled it waits for the end first: a file
    is not closed while it is read."""
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise


def _version_id(file: FoundFile) -> str:
    """The id of a file that was found in another version before."""
    return f"{file.path}\n{file.version}"


def _digest(file: FoundFile) -> bytes:
    """A file and its version in few bytes: there may be millions."""
    name = _version_id(file).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(name, digest_size=16).digest()


def place_name(place: str) -> str:
    """A source's name, made of its place."""
    name = place.rstrip("/").rpartition("/")[2]
    if not name:
        raise FlowError(f"The place {place!r} has no name: give the source one (name=).")
    return name.replace(":", "-")
