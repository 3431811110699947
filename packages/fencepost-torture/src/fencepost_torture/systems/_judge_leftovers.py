"""Finds what a judge leaves on its machine: folders, boxes, cgroups. A dead one must have left nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fencepost.testing import Breach

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
# Workspaces and cgroups are named by the pid and start time of their process: a pid may be reused.
WORKSPACE = r"/workspace/judge-(\d+)-(\d+)-[0-9a-f]+"
CGROUP = re.compile(r"fencepost-box-\d+-(\d+)-(\d+)")


class LeftoverScan:
    """Scans the folder of a system, and the cgroup tree, which other processes of this machine share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The end of the path, which is unique: a mount may begin anywhere above it.
        self._workspace = re.compile(re.escape(f"{folder.parent.name}/{folder.name}") + WORKSPACE)
        self._before = {path for path, _ in self._cgroups()}

    def of_the_dead(self) -> Iterator[Breach]:
        return self._left(also_living=False)

    def of_everybody(self) -> Iterator[Breach]:
        """To be called when every process has ended."""
        return self._left(also_living=True)

    def _left(self, *, also_living: bool) -> Iterator[Breach]:
        for path, owner in self._workspaces():
            if also_living or not _is_alive(*owner):
                yield Breach("left behind", "workspace", path.name)
        for path in (self._folder / "tmp").glob("*"):
            # A living process has files there only for a moment.
            yield Breach("left behind", "scratch", path.name)
        for process, owner in self._boxes():
            if also_living or not _is_alive(*owner):
                yield Breach("left behind", "box", f"process {process}")
        for path, owner in self._cgroups():
            # Those of living processes may be another judge's.
            if path not in self._before and not _is_alive(*owner):
                yield Breach("left behind", "cgroup", str(path))

    def _workspaces(self) -> Iterator[tuple[Path, tuple[str, str]]]:
        for path in (self._folder / "workspace").glob("*"):
            found = self._workspace.search(str(path))
            yield path, (found[1], found[2]) if found else ("", "")

    def _boxes(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Processes that have a workspace of ours mounted or in their arguments, each with its judge."""
        for process in PROC.iterdir():
            if process.name.isdigit() and (owner := self._owner_of(process)) is not None:
                yield process.name, owner

    def _owner_of(self, process: Path) -> tuple[str, str] | None:
        for name in ("cmdline", "mountinfo"):
            try:
                text = (process / name).read_text(errors="replace")
            except OSError:
                # The process has ended, is ending, or belongs to another user.
                continue
            if found := self._workspace.search(text):
                return found[1], found[2]
        return None

    def _cgroups(self) -> Iterator[tuple[Path, tuple[str, str]]]:
        for path in CGROUPS.rglob("fencepost-box-*"):
            if found := CGROUP.fullmatch(path.name):
                yield path, (found[1], found[2])


def _is_alive(pid: str, started: str) -> bool:
    try:
        text = (PROC / pid / "stat").read_text(errors="replace")
    except OSError:
        return False
    return bool(pid) and text.rpartition(")")[2].split()[19] == started
