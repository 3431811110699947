"""Chooses the disk of a run: the machine's own, one that can be full, or one whose power can be cut."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from fencepost_torture._mount_namespace import may_mount
from fencepost_torture._power_switch import DEVICE, PowerSwitch
from fencepost_torture._small_disk import SECONDS_MAX, SmallDisk


class Disk(Protocol):
    """The disk that holds the servers' files, and the faults it supports."""

    @property
    def server_settings(self) -> Mapping[str, str | int]: ...

    def mounted(self, place: Path) -> AbstractContextManager[None]: ...

    def fill(self) -> None: ...

    def drain(self) -> None: ...

    def sync(self) -> None:
        """Make everything written so far durable, as if the whole file system had been synced."""
        ...

    def cut_power(self) -> bool:
        """Lose what was not synced; False where this disk never loses anything."""
        ...


def choose_disk(kinds: Sequence[str], seconds: float) -> tuple[Disk | None, list[str]]:
    """The disk that the faults need, and the faults that this machine supports. Call it before any thread
    starts."""
    wanted = {"disk-full", "power-cut", "primary-full"} & set(kinds)
    disk: Disk | None = None
    if wanted and may_mount():
        if "power-cut" in wanted and os.access(DEVICE, os.R_OK | os.W_OK):
            disk = PowerSwitch()
        elif seconds <= SECONDS_MAX:
            disk = SmallDisk(seconds)
    possible = _possible(disk)
    return disk, [kind for kind in kinds if kind not in wanted or kind in possible]


def _possible(disk: Disk | None) -> set[str]:
    match disk:
        case None:
            return set()
        case PowerSwitch():
            return {"disk-full", "power-cut"}
        case _:
            return {"disk-full", "primary-full"}
