"""The resource usage of running processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True, slots=True)
class Seen:
    """The maxima seen so far, and whether a process was runnable at the last poll."""

    cpu_ms: int = 0
    peak_kb: int = 0
    is_runnable: bool = False


def children_of(pid: int) -> Sequence[int]:
    """The children of all its threads; empty for a process that is gone."""
    found: list[int] = []
    with suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def look_at(pids: Iterable[int], before: Seen) -> Seen:
    """These processes and all below them. CPU time includes children that are gone and were waited for."""
    ticks, peak_kb, runnable = 0, before.peak_kb, False
    todo = list(pids)
    while todo:
        pid = todo.pop()
        todo += children_of(pid)
        fields = _stat(pid)
        if fields:
            ticks += sum(map(int, fields[11:15]))
            peak_kb = max(peak_kb, int(fields[21]) * _PAGE_KB)
            runnable = runnable or "R" in states_of(pid)
    return Seen(max(before.cpu_ms, ticks * 1000 // _TICKS), peak_kb, runnable)


def _stat(pid: int | str) -> list[str]:
    """The fields after the process name, which may contain anything: state first."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return text.rpartition(")")[2].split()
    return []


def states_of(pid: int) -> set[str]:
    """The states of all its threads, by the kernel's letters; empty for a process that is gone."""
    with suppress(OSError):
        stats = (_stat(f"{pid}/task/{task.name}") for task in Path(f"/proc/{pid}/task").iterdir())
        return {fields[0] for fields in stats if fields}
    return set()
