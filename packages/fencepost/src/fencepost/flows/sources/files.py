"""Files as sources: the lines of known files, and all files that appear in a folder or a bucket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from fencepost._durations import Duration
from fencepost.flows._errors import GraphRefused, SourceTrimmed, StartRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Offset
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._file_formats import Csv, FileFormat, Lines, Parquet
from fencepost.flows.sources._file_set import Changed, FileSet, FoundFile, OpenFile, place_name
from fencepost.flows.sources._source import Chunk, partition_name

__all__ = ["BucketFiles", "Csv", "FileLines", "FileReader", "FolderFiles", "Lines", "Parquet"]


class FileLines:
    """The lines of one or more files, as bytes; one partition per file. With `follow` it waits for more
    lines. The offset is the position in bytes after a line.

    Positions are stored by the file's name, without its folder: files may be added, removed, moved together
    and reordered. Where two files have the same name, pass a mapping from unique names.
    """

    promise = Promise(EXACTLY_ONCE, "a file can be read again from any position")

    def __init__(
        self,
        paths: Path | str | Sequence[Path | str] | Mapping[str, Path | str],
        *,
        follow: bool = False,
        name: str = "file",
    ) -> None:
        given = _named(paths)
        self._paths = {partition_name(called): path for called, path in given}
        if not given or len(self._paths) < len(given):
            names = sorted(called for called, _ in given)
            raise GraphRefused(
                f"FileLines needs one or more files, each under a name of its own, and got {names}. "
                "Give a mapping: FileLines({'eu': path, 'us': path})."
            )
        self._follow = follow
        self.name = name

    @property
    def partitions(self) -> Sequence[str]:
        """The names of its partitions."""
        return list(self._paths)

    def extent(self, partition: str) -> int | None:
        """The offset at which a partition ends; None if it has no end."""
        return None if self._follow else self._paths[partition].stat().st_size

    def reads(self, partition: str) -> str:
        """What a partition reads, for people."""
        return f"file {partition}"

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> FileReader:
        """Read a partition from behind an offset."""
        path = self._paths[partition]
        position = int(after or 0)
        if path.stat().st_size < position:
            raise SourceTrimmed(f"{path} is shorter than the {position} bytes that were read of it before.")
        file = path.open("rb")
        file.seek(position)
        return FileReader(file, position, follow=self._follow)


def _named(
    paths: Path | str | Sequence[Path | str] | Mapping[str, Path | str],
) -> list[tuple[str, Path]]:
    if isinstance(paths, Mapping):
        return [(called, Path(path)) for called, path in paths.items()]
    given = [paths] if isinstance(paths, Path | str) else paths
    return [(Path(path).name, Path(path)) for path in given]


class FileReader:
    """Reads the lines of one file."""

    def __init__(self, file: BinaryIO, position: int, *, follow: bool) -> None:
        self._file = file
        self._position = position
        self._follow = follow

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
        """The next values."""
        values: list[bytes] = []
        offsets: list[int] = []
        while len(values) < limit:
            line = self._file.readline()
            if not line or (self._follow and not line.endswith(b"\n")):
                # A line that is still being written is read again when it is complete.
                self._file.seek(self._position)
                break
            self._position += len(line)
            values.append(line.rstrip(b"\r\n"))
            offsets.append(self._position)
        ended = not self._follow and len(values) < limit
        if not values and not ended:
            await asyncio.sleep(wait_seconds)
        return Chunk(values, offsets, ended=ended)

    async def acknowledge(self, offset: Offset) -> None:
        """Does nothing: the file stays."""

    async def lag(self, count: int) -> int | None:
        """How much waits."""
        return None

    async def close(self) -> None:
        """Release what is open."""
        self._file.close()


class FolderFiles(FileSet):
    """The rows of every file in a folder and below it, each file once; new files are found while it runs.

    A file is known by its path below the folder, and by size and time of its content. Names that begin with a
    dot or an underscore are not read: write a file under such a name and rename it, and it is never seen
    half. A file that is written in place is taken once it has been the same for `settled`. `pattern` is a
    name such as `*.csv`, or with a slash a whole path. With `partitions`, that many tasks share the files, by
    their paths. What happens to a file with other content by then says `changed`: `refuse` stops the flow,
    `read` reads it whole as a new file, `ignore` passes it by.
    """

    def __init__(
        self,
        folder: Path | str,
        kind: FileFormat | None = None,
        *,
        pattern: str = "*",
        partitions: int = 1,
        changed: Changed = "refuse",
        every: Duration = 1.0,
        settled: Duration = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(
            _Folder(Path(folder)),
            kind or Lines(),
            pattern=pattern,
            partitions=partitions,
            changed=changed,
            every=every,
            settled=settled,
            name=name or place_name(str(folder)),
        )


class BucketFiles(FileSet):
    """The rows of every object below a URL such as `s3://bucket/prefix`, each object once; as `FolderFiles`.

    An object is known by its name and its ETag. It is downloaded whole, in that version, before its rows are
    read. `options` are those of the store (`endpoint`, `region`, `access_key_id`, `secret_access_key`);
    missing ones come from the variables of the cloud, such as AWS_REGION, or from the machine's role.
    """

    def __init__(
        self,
        url: str,
        kind: FileFormat | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        pattern: str = "*",
        partitions: int = 1,
        changed: Changed = "refuse",
        every: Duration = 10.0,
        name: str | None = None,
    ) -> None:
        from fencepost.flows._bucket import Bucket  # noqa: PLC0415 - Its library is an optional extra.

        super().__init__(
            Bucket(url, options or {}),
            kind or Lines(),
            pattern=pattern,
            partitions=partitions,
            changed=changed,
            every=every,
            settled=0,
            name=name or place_name(url),
        )


class _Folder:
    """A folder as a store of files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def place(self) -> str:
        return str(self._root)

    def check(self) -> None:
        try:
            os.scandir(self._root).close()
        except OSError as error:
            raise StartRefused(
                f"The folder {self._root} cannot be listed: {error.strerror}. Make it (mkdir -p "
                f"{self._root}), or give the user {os.getuid()} the right to read it."
            ) from None

    def found(self) -> Iterator[FoundFile]:
        aged: list[tuple[int, FoundFile]] = []
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder, name)
                try:
                    facts = path.stat()
                except FileNotFoundError:
                    continue  # Removed, or renamed, since the folder was listed.
                below = path.relative_to(self._root).as_posix()
                aged.append((facts.st_mtime_ns, FoundFile(below, _version(facts), facts.st_size)))
        return (file for _, file in sorted(aged))

    def open(self, file: FoundFile) -> OpenFile:
        stream = (self._root / file.path).open("rb")
        return OpenFile(stream, _version(os.fstat(stream.fileno())))

    def version_of(self, stream: BinaryIO) -> str | None:
        return _version(os.fstat(stream.fileno()))


def _version(facts: os.stat_result) -> str:
    return f"{facts.st_size}-{facts.st_mtime_ns}"
