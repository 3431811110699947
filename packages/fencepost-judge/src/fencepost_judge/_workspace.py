"""The judge's folder on this machine: sources, compiled programs and test data that boxes may read.

Each process has its own folder, so two judges never share one; a sweep removes those of processes that are
gone.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fencepost_judge._store import remove_folder
from fencepost_judge.sandbox._box_files import open_folder

PREFIX = "judge-"


class Workspace:
    """Open it as a context manager; its folder is removed at the end.

    `box` is fencepost-box, which keeps the folder's path from programs. `passable` lets the boxes' user reach
    the folder by its path, which bubblewrap requires.
    """

    def __init__(self, root: Path, *, box: Path | None = None, passable: bool = False) -> None:
        self._root = root
        self._box = box
        self._passable = passable
        self.folder = root / f"{PREFIX}{os.getpid()}-{_start_of(os.getpid())}-{secrets.token_hex(4)}"

    def __enter__(self) -> Workspace:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._passable:
            self._root.chmod(0o711)
        sweep(self._root)
        # Readable for the boxes' user, which reaches it by a mount and not through the folders above it.
        self.folder.mkdir(mode=0o755)
        for name in ("apps", "data"):
            (self.folder / name).mkdir(mode=0o755)
        self._descriptor = open_folder(self.folder, self._box)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)
        remove_folder(self.folder)

    def new_app(self) -> Path:
        folder = self.folder / "apps" / secrets.token_hex(12)
        folder.mkdir(mode=0o755)
        return folder

    def place(self, path: Path) -> str:
        """A path of the workspace as a run specification names it."""
        return str(path.relative_to(self.folder))

    def write_sources(self, sources: Mapping[str, bytes]) -> Path:
        folder = self.new_app()
        for name, text in sources.items():
            # The names come from the submitter: each must be one file of this folder, and no other.
            target = folder / Path(name).name
            target.write_bytes(text)
            target.chmod(0o644)
        return folder

    def put_beside(self, folder: str, name: str, content: bytes) -> None:
        """Write a file of the package into a program's folder; it replaces a file of the compiler or the
        author."""
        target = self.folder / folder / Path(name).name
        target.unlink(missing_ok=True)
        target.write_bytes(content)
        target.chmod(0o644)

    @contextmanager
    def reading(self, path: Path) -> Generator[int]:
        """A file of the workspace, open for a program to read."""
        descriptor = os.open(self.place(path), os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def scratch_file(self, content: bytes = b"") -> Generator[int]:
        """A file without a name: nothing of it is left, whatever happens."""
        descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=self._descriptor)
        try:
            os.write(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
            yield descriptor
        finally:
            os.close(descriptor)


def sweep(root: Path) -> None:
    """Remove the folders of judges that are gone."""
    for folder in root.glob(f"{PREFIX}*"):
        parts = folder.name.removeprefix(PREFIX).split("-")
        if len(parts) == 3 and parts[0].isdigit() and _start_of(int(parts[0])) != parts[1]:
            remove_folder(folder)


def _start_of(pid: int) -> str:
    """The start time of a process, by the kernel's clock: it distinguishes processes that reuse a pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "gone"
    return text.rpartition(")")[2].split()[19]
