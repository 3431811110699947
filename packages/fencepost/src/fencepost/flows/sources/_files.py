"""Lines of files as a source. The offset is the position in bytes after a line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from fencepost.flows._errors import GraphRefused, SourceTrimmed
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows._record import Offset
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._source import Chunk, partition_name


class FileLines:
    """The lines of one or more files, as bytes; one partition per file. With `follow` it waits for more
    lines.

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
        return list(self._paths)

    def extent(self, partition: str) -> int | None:
        return None if self._follow else self._paths[partition].stat().st_size

    def reads(self, partition: str) -> str:
        return f"file {partition}"

    async def open(self, context: FlowContext, partition: str, after: Offset | None) -> FileReader:
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
    def __init__(self, file: BinaryIO, position: int, *, follow: bool) -> None:
        self._file = file
        self._position = position
        self._follow = follow

    async def read(self, limit: int, wait_seconds: float) -> Chunk:
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
        return None

    async def close(self) -> None:
        self._file.close()
