"""Who judges: every worker says that it is there, under a lease, and anybody may ask who is.

Being listed decides nothing. Jobs are claimed and fenced in PostgreSQL whoever is seen here, so a directory
that is away costs the list, and never a verdict.
"""

from __future__ import annotations

import os
import socket
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
    """What a worker says of itself when it comes, and what stays true as long as it is there."""

    owner: str
    """As in the jobs that it runs: a name with a boot id."""
    host: str
    version: str
    languages: Mapping[str, str]
    """Those that it can compile, with the versions of their compilers."""
    slots: int
    processors: int
    sandbox: str
    degraded: Sequence[str]


@dataclass(frozen=True, slots=True)
class Load:
    """How much it has to do at this moment."""

    busy: int = 0
    running: int = 0
    load_average: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWorker(WorkerInfo):
    """A worker as others see it. One that is lost ended without a word; one that left said so."""

    state: WorkerState
    busy: int
    """Boxes in use."""
    running: int
    """Submissions and trials in hand."""
    load_average: float
    """Of its whole machine, over a minute."""
    entered_at: datetime
    seen_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration: under which number or lease, and the token that keeps it."""

    owner: str
    place: int
    token: int


class RegistrationLost(FencepostError):
    """The lease ended before it was renewed: whoever is still there enters again."""


class Directory(Protocol):
    """Where workers are listed. Every backend passes the same tests."""

    async def enter(self, card: WorkerInfo) -> Registration: ...

    async def beat(self, seat: Registration, load: Load) -> None:
        """Raises SeatLost when the lease is over."""
        ...

    async def leave(self, seat: Registration) -> None: ...

    async def workers(self) -> Sequence[ListedWorker]:
        """By the order in which they entered."""
        ...


def card_of(
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


class JudgePresence:
    """Keeps one worker listed. `tick` is for a loop, which counts what goes wrong and comes back."""

    def __init__(
        self,
        directory: Directory,
        card: WorkerInfo,
        load: Callable[[], Load],
        listed: Gauge,
        *,
        lease_seconds: float,
    ) -> None:
        self._directory = directory
        self._card = card
        self._load = load
        self._listed = listed
        self._beat_seconds = lease_seconds / 3
        self._seat: Registration | None = None

    async def tick(self) -> float:
        if self._seat is None:
            self._listed.set(0)
            self._seat = await self._directory.enter(self._card)
            self._listed.set(1)
            _log.debug("judge_worker_listed", owner=self._card.owner, place=self._seat.place)
            announce("judge.listed")
        try:
            await self._directory.beat(self._seat, self._load())
        except RegistrationLost as lost:
            _log.warning("judge_worker_unlisted", owner=self._card.owner, why=str(lost))
            self._seat = None
            return 0.0
        return self._beat_seconds

    async def leave(self) -> None:
        """Say so; who cannot is noticed when the lease ends."""
        seat, self._seat = self._seat, None
        self._listed.set(0)
        if seat is not None:
            with suppress(FencepostError):
                await self._directory.leave(seat)
