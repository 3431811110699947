"""Unpacks an untrusted zip: every member is checked before the first byte is written."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from fencepost.errors import InvalidInput

MEMBERS_MAX = 20_000
BYTES_MAX = 2 << 30
RATIO_MAX = 200
RATIO_FREE_BYTES = 1 << 20
NAME_BYTES_MAX = 400
BLOCK_BYTES = 1 << 16


def unpack(archive: Path, folder: Path, *, bytes_max: int = BYTES_MAX) -> None:
    """Unpack into a new, empty folder. Raises InvalidInput naming the member; then nothing of the folder
    may be used."""
    try:
        with zipfile.ZipFile(archive) as opened:
            members = list(_judged(opened.infolist(), archive.stat().st_size, bytes_max))
            left = bytes_max
            for member, path in members:
                left -= _extract(opened, member, folder / path, left)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
        raise InvalidInput(f"The archive cannot be read: {error}.", field="archive") from error


def _judged(
    infos: list[zipfile.ZipInfo], archive_bytes: int, bytes_max: int
) -> Iterator[tuple[zipfile.ZipInfo, PurePosixPath]]:
    if len(infos) > MEMBERS_MAX:
        raise InvalidInput(f"The archive has {len(infos)} members; at most {MEMBERS_MAX}.", field="archive")
    total = sum(info.file_size for info in infos)
    if total > bytes_max:
        raise InvalidInput(f"The archive unpacks to {total} bytes; at most {bytes_max}.", field="archive")
    if total > RATIO_FREE_BYTES + archive_bytes * RATIO_MAX:
        raise InvalidInput(
            f"The archive unpacks to {total} bytes from {archive_bytes}: it looks like a decompression bomb.",
            field="archive",
        )
    seen: set[str] = set()
    for info in infos:
        path = _safe_path(info)
        # On a file system that ignores case they would be one file.
        key = str(path).casefold()
        if key in seen:
            raise _refused(info, "is there twice")
        seen.add(key)
        yield info, path


def _safe_path(info: zipfile.ZipInfo) -> PurePosixPath:
    # zipfile cuts a name at a zero byte and replaces separators: orig_filename has the name as written.
    name = info.orig_filename
    if "\\" in name or "\0" in name or any(ord(c) < 32 for c in name):
        raise _refused(info, "has a name with a backslash or a control character")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or ":" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise _refused(info, "would be written outside the folder, or has an invalid name")
    if not path.parts:
        raise _refused(info, "has no name")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _refused(info, "is a link or a special file")
    if info.header_offset < 0:
        raise _refused(info, "lies before the beginning of the archive")
    if info.flag_bits & 1:
        raise _refused(info, "is encrypted")
    return path


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Counts the bytes written: the size in the member's header is only a claim."""
    written = 0
    # Exclusive: a member must not replace the file of another one.
    try:
        if member.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return 0
        target.parent.mkdir(parents=True, exist_ok=True)
        with opened.open(member) as source, target.open("xb") as file:
            while block := source.read(BLOCK_BYTES):
                written += len(block)
                if written > left or written > member.file_size:
                    raise _refused(member, "is larger than it says")
                file.write(block)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise _refused(member, "is a file and a folder at once") from None
    return written


def _refused(info: zipfile.ZipInfo, why: str) -> InvalidInput:
    return InvalidInput(
        f"The member {info.orig_filename[:200]!r} {why}. Nothing was imported.", field="archive"
    )
