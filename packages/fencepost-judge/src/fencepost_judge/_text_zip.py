"""Zip archives of text files, from strangers."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

from fencepost.errors import InvalidInput


def read_texts(content: bytes, *, bytes_max: int, files_max: int, field: str) -> dict[str, str]:
    """The files by their paths. The archive is not believed about the sizes that it states."""
    found, left = dict[str, str](), bytes_max
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [one for one in archive.infolist() if not one.is_dir()]
            if len(entries) > files_max:
                raise InvalidInput(
                    f"The archive has {len(entries)} files; allowed are {files_max}.", field=field
                )
            for entry in entries:
                with archive.open(entry) as file:
                    text = file.read(left + 1)
                left -= len(text)
                if left < 0:
                    raise InvalidInput(f"The files have more than {bytes_max} bytes.", field=field)
                found[entry.filename] = text.decode()
    except (zipfile.BadZipFile, UnicodeDecodeError, NotImplementedError, RuntimeError, EOFError) as error:
        raise InvalidInput(
            f"This is no zip archive of text files ({type(error).__name__}).", field=field
        ) from None
    return found


def write_texts(files: Mapping[str, str]) -> bytes:
    """The same files are the same archive: no times are written."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return held.getvalue()
