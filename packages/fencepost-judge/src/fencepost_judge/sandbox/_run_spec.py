"""What a run may do and use, as a value, and as the arguments that fencepost-box reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run. Time is CPU time; the wall clock only ends programs that sleep."""

    cpu_ms: int = 1000
    wall_ms: int = 10_000
    memory_kb: int = 262_144
    output_kb: int = 65_536
    stack_kb: int | None = None
    processes: int = 64
    open_files: int = 64
    disk_kb: int = 65_536
    inodes: int = 4096

    def words(self) -> list[str]:
        # By default only the memory limit bounds the stack: a deep recursion then ends with a memory verdict.
        stack_kb = self.memory_kb if self.stack_kb is None else self.stack_kb
        return [
            f"cpu_ms={self.cpu_ms}",
            f"wall_ms={self.wall_ms}",
            f"memory_kb={self.memory_kb}",
            f"output_kb={self.output_kb}",
            f"stack_kb={stack_kb}",
            f"processes={self.processes}",
            f"open_files={self.open_files}",
            f"disk_kb={self.disk_kb}",
            f"inodes={self.inodes}",
        ]

    def with_(self, **changes: int) -> Self:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run: what to start, and its environment.

    `binds` maps a path below the workspace to its place in the box, read-only. `out` is a host folder, new
    and empty, that receives what the program left in /out; `out_from`, below the workspace, is the initial
    content of /out. With `in_out` the program starts in /out, not in /box. `core` is
    the processor that it runs on.
    """

    args: Sequence[str]
    limits: Limits = field(default_factory=Limits)
    roots: Sequence[str] = ()
    binds: Mapping[str, str] = field(default_factory=dict[str, str])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    proc: bool = False
    out: Path | None = None
    out_kb: int = 65_536
    out_files: int = 512
    out_from: str | None = None
    in_out: bool = False
    core: int | None = None
    job_id: str = ""
    attempt_id: int = 0

    def words(self) -> list[str]:
        words = [f"job_id={self.job_id}", f"attempt_id={self.attempt_id}", *self.limits.words()]
        words += [f"root={root}" for root in self.roots]
        words += [f"bind={source}:{target}" for source, target in self.binds.items()]
        words += [f"env={name}={value}" for name, value in self.env.items()]
        words += [f"arg={arg}" for arg in self.args]
        if self.proc:
            words.append("proc=1")
        if self.out is not None:
            words += [f"out_dir={self.out}", f"out_kb={self.out_kb}", f"out_files={self.out_files}"]
        if self.out_from is not None:
            words.append(f"out_from={self.out_from}")
        if self.in_out:
            words.append("in_out=1")
        if self.core is not None:
            words.append(f"core={self.core}")
        return words

    def packet(self) -> bytes:
        return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in self.words())


@dataclass(frozen=True, slots=True)
class Site:
    """What an agent can show to its runs: toolchains, and the judge's own folder."""

    workspace: Path
    roots: Sequence[str] = ()
    cgroup: bool = True
    outer_uid: int = 65_533

    def words(self) -> list[str]:
        words = [f"workspace={self.workspace}", f"outer_uid={self.outer_uid}"]
        words += [f"site_root={root}" for root in self.roots]
        return words if self.cgroup else [*words, "cgroup=none"]
