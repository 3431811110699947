"""A place to run boxes in a test: a workspace, its boxes, and what a run of them left behind."""

import errno
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fencepost.metrics import Metrics
from fencepost_judge._metrics import JudgeMetrics
from fencepost_judge._protocol import RunOutcome
from fencepost_judge.sandbox import _box_binary as box_binary
from fencepost_judge.sandbox._box_files import BoxFiles, open_folder
from fencepost_judge.sandbox._run_spec import Limits, RunSpec, Site
from fencepost_judge.sandbox._sandbox_pool import SandboxPool

LIBRARIES = tuple(
    path
    for path in (
        "/usr/lib",
        "/usr/lib32",
        "/usr/lib64",
        "/usr/local/lib",
        "/lib",
        "/lib64",
        "/etc/ld.so.cache",
    )
    if Path(path).exists() and not Path(path).is_symlink()
)
QUICK = Limits(
    cpu_ms=200,
    # Ten times as long a wait for a processor is a fault of the machine.
    wall_ms=1000,
    memory_kb=65_536,
    output_kb=1024,
    disk_kb=16_384,
    inodes=2000,
    processes=32,
    open_files=64,
)


@dataclass(frozen=True)
class Ran:
    outcome: RunOutcome
    stdout: bytes
    stderr: bytes


class JudgingEnv:
    """A workspace below a test's folder. No other has its name: a process that has it mounted is in its box,
    and so are the processes that this one has started."""

    def __init__(
        self, folder: Path, *, cgroup: bool = True, roots: Sequence[str] = LIBRARIES, mark: str | None = None
    ) -> None:
        self.folder = folder
        self.mark = mark or f"workspace-{uuid.uuid4().hex}"
        self.workspace = folder / self.mark
        (self.workspace / "app").mkdir(parents=True)
        self.site = Site(self.workspace, roots, cgroup=cgroup)
        self.metrics = Metrics()
        self._judge_metrics = JudgeMetrics.on(self.metrics)
        self._outs = 0
        self._apart = cache(lambda: open_folder(folder, box_binary.compiled()))

    def boxes(self, **options: Any) -> SandboxPool:
        return SandboxPool(self.site, self._judge_metrics, **options)

    async def run(
        self,
        boxes: SandboxPool,
        args: Sequence[str],
        *,
        limits: Limits = QUICK,
        stdin: bytes = b"",
        out: Path | None = None,
        **options: Any,
    ) -> Ran:
        order = RunSpec(
            args=args,
            limits=limits,
            roots=self.site.roots,
            binds={"app": "/app"},
            out=out,
            out_kb=4096,
            **options,
        )
        with ExitStack() as closing:
            stdin_file, stdout_file, stderr_file = (self._scratch(closing) for _ in range(3))
            files = BoxFiles(stdin_file, stdout_file, stderr_file)
            os.write(files.stdin, stdin)
            os.lseek(files.stdin, 0, os.SEEK_SET)
            outcome = await boxes.run(order, files)
            return Ran(outcome, _read(files.stdout), _read(files.stderr))

    def script(self, body: str) -> Path:
        """A program in the place of fencepost-box."""
        path = self.folder / "script"
        path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n")
        path.chmod(0o755)
        return path

    def new_folder(self) -> Path:
        self._outs += 1
        folder = self.folder / f"out{self._outs}"
        folder.mkdir()
        return folder

    def processes(self, *, ours: bool = False) -> list[str]:
        """Strangers that run inside a box. With `ours` also what waits there for the next order: nothing of
        it may be left when the boxes are closed."""
        # Without privileges a program is ourselves to the machine outside.
        uid = os.geteuid() or self.site.outer_uid
        found = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [path.name for path in found if _is_in_a_box(path, uid, self.mark, ours=ours)]

    def counted(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        return self.metrics.registry.get_sample_value(name, dict(labels or {})) or 0.0

    def _scratch(self, closing: ExitStack) -> int:
        descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600, dir_fd=self._apart())
        closing.callback(os.close, descriptor)
        return descriptor


def cgroups_of(pid: int) -> list[Path]:
    """Folders in the cgroup tree that belong to a box with this process id."""
    return list(Path("/sys/fs/cgroup").glob(f"**/fencepost-box-*-{pid}-*"))


def mounts() -> set[str]:
    """Where something is mounted, without the named network namespaces of other tests: a box has none."""
    places = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {place for place in places if not place.startswith("/run/netns/")}


def _is_in_a_box(process: Path, uid: int, mark: str, *, ours: bool) -> bool:
    try:
        if process.stat().st_uid != uid or not _is_below_a_mount(process, mark):
            return False
        return ours or _is_a_stranger(process)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError as error:
        # One that has ended and was not yet waited for has no mounts.
        if error.errno == errno.EINVAL:
            return False
        raise


def _is_below_a_mount(process: Path, mark: str) -> bool:
    """Whether it or a process above it has the mark mounted: a program's own mounts are not listed."""
    while process.name != "0":
        if mark in (process / "mountinfo").read_text():
            return True
        process = process.parent / (process / "stat").read_text().rpartition(")")[2].split()[1]
    return False


def _is_a_stranger(process: Path) -> bool:
    try:
        return not (process / "exe").readlink().name.startswith("fencepost-box")
    except PermissionError:
        # Without privileges only a stranger can be looked at: the box's own processes hide from their user.
        return False


def _read(descriptor: int) -> bytes:
    return os.pread(descriptor, 1 << 22, 0)
