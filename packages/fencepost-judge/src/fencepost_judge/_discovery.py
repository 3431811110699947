"""Worker discovery: each worker registers itself under a lease, and any process may list the workers.

A registration decides nothing. Jobs are claimed and fenced in PostgreSQL regardless of it, so when the
directory is unavailable, the list is missing, but no verdict is affected.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Literal, Protocol

from prometheus_client import Gauge

from fencepost.errors import FencepostError
from fencepost.logs import get_logger
from fencepost.signals import announce

_log = get_logger(__name__)
WorkerState = Literal["alive", "lost", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a worker states about itself when it registers; it stays true as long as the worker runs."""

    owner: str
    """The owner name in the jobs that it runs: a name with a boot id."""
    host: str
    version: str
    languages: Mapping[str, str]
    """The languages that it can compile, with the versions of their compilers."""
    slots: int
    processors: int
    sandbox: str
    degraded: Sequence[str]


@dataclass(frozen=True, slots=True)
class Load:
    """The current load of a worker."""

    busy: int = 0
    running: int = 0
    load_average: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorker(WorkerInfo):
    """A worker as others see it. A lost worker ended without unregistering; one that left has
    unregistered."""

    state: WorkerState
    busy: int
    """Boxes in use."""
    running: int
    """Submissions and custom runs in progress."""
    load_average: float
    """The load average of its whole machine, over a minute."""
    entered_at: datetime
    seen_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration: its number or lease, and the token that renews it."""

    owner: str
    number: int
    token: int


class RegistrationLost(FencepostError):
    """The lease ended before it was renewed: a worker that is still running registers again."""


class Directory(Protocol):
    """Where workers are listed. Every backend passes the same tests."""

    async def enter(self, info: WorkerInfo) -> Registration: ...

    async def beat(self, registration: Registration, load: Load) -> None:
        """Renew the lease and report the load. Raises RegistrationLost when the lease has ended."""
        ...

    async def leave(self, registration: Registration) -> None: ...

    async def workers(self) -> Sequence[ListedWorker]:
        """In order of registration."""
        ...


def worker_info(
    owner: str, languages: Mapping[str, str], *, slots: int, sandbox: str, degraded: Sequence[str]
) -> WorkerInfo:
    return WorkerInfo(
        owner=owner,
        host=socket.gethostname(),
        version=version("fencepost"),
        languages=dict(languages),
        slots=slots,
        processors=os.cpu_count() or 1,
        sandbox=sandbox,
        degraded=list(degraded),
    )


class JudgeListing:
    """Keeps one worker registered. A loop calls `tick`, counts its errors and calls it again."""

    def __init__(
        self,
        directory: Directory,
        info: WorkerInfo,
        load: Callable[[], Load],
        listed: Gauge,
        *,
        lease_seconds: float,
    ) -> None:
        self._directory = directory
        self._info = info
        self._load = load
        self._listed = listed
        self._lease_seconds = lease_seconds
        self._beat_seconds = lease_seconds / 3
        self._held_from = 0.0
        self._registration: Registration | None = None

    async def tick(self) -> float:
        if self._registration is None:
            self._listed.set(0)
            self._held_from = time.monotonic()
            self._registration = await self._directory.enter(self._info)
            self._listed.set(1)
            _log.debug(
                "fencepost_judge_worker_listed", owner=self._info.owner, number=self._registration.number
            )
            announce("judge.listed")
        began = time.monotonic()
        try:
            await self._directory.beat(self._registration, self._load())
        except RegistrationLost as lost:
            self._listed.set(0)
            _log.warning("judge_worker_unlisted", owner=self._info.owner, why=str(lost))
            self._registration = None
            return 0.0
        except Exception:
            # The directory is away: until the lease runs out the worker is still in it.
            if time.monotonic() - self._held_from >= self._lease_seconds:
                self._listed.set(0)
            raise
        self._held_from = began
        self._listed.set(1)
        return self._beat_seconds

    async def leave(self) -> None:
        """Unregister. If that fails, the worker disappears when its lease ends."""
        registration, self._registration = self._registration, None
        self._listed.set(0)
        if registration is not None:
            with suppress(FencepostError):
                await self._directory.leave(registration)
