"""CPU time of a server and its clients: a figure that does not depend on other load on the machine."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass
class Spent:
    """Seconds of CPU time, known when the block has ended. Only where there is a /proc."""

    seconds: float = 0.0


@contextmanager
def processor_time(server_pid: int) -> Generator[Spent]:
    """What the server with this pid, its children, and our own ended children spend in the block."""
    spent = Spent()
    before = family_seconds(server_pid) + _children_seconds()
    yield spent
    spent.seconds = family_seconds(server_pid) + _children_seconds() - before


def parent_of(pid: int) -> int:
    """The parent of the process; 0 where it cannot be read."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def family_seconds(pid: int) -> float:
    """CPU time of the process, of the children that it has reaped, and of those that live."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    # User and system time, its own and that of reaped children.
    return sum(_fields(pid)[11:15]) + sum(own_seconds(int(child)) for child in children)


def own_seconds(pid: int) -> float:
    """CPU time of the process alone."""
    return sum(_fields(pid)[11:13])


def _fields(pid: int) -> list[float]:
    """The fields after the name, times converted to seconds; zeros for a process that has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return [0.0] * 20
    return [0.0, *(int(field) / _TICKS_PER_SECOND for field in stat.rpartition(")")[2].split()[1:20])]
