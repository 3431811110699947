"""A unit that a worker holds, and its condition."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.backoff import Backoff
from fencepost.flows.failing import told
from fencepost.flows.shuffle_sender import ShuffleSender
from fencepost.flows.task import Task
from fencepost.flows.units import Unit
from fencepost.kernel.lease import Lease

RETRIES = Backoff(0.2, 5.0, jitter=0)
ERROR_CHARACTERS_MAX = 1000


@dataclass
class Assignment:
    """Exists from when the unit's lease is taken until it is given up or lost."""

    unit: Unit
    lease: Lease
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    """Consecutive failures."""
    ended: bool = False
    lost: bool = False
    error: str | None = None
    trouble: dict[str, str] = field(default_factory=dict[str, str])
    """What is known of the failure, for operators: step, stream, offset and remedy."""
    asked_at: datetime | None = None
    """The newest commit request of an operator that was passed on to it."""
    running: asyncio.Task[None] | None = None
    work: Task | ShuffleSender | None = None

    def failed(self, error: Exception, ran_seconds: float) -> float:
        """Record a failure; returns how long to wait: twice as long each time, until it has run for longer
        than that."""
        self.failures = 1 if ran_seconds > RETRIES.most_seconds else self.failures + 1
        self.error = f"{type(error).__name__}: {error}".replace("\0", "")[:ERROR_CHARACTERS_MAX]
        self.trouble = told(error)
        return RETRIES.seconds(self.failures)

    def mended(self) -> None:
        self.error, self.trouble = None, {}

    @property
    def story(self) -> dict[str, Any]:
        """What blocks the unit, for its activity report; empty once it makes progress."""
        if self.error is not None and self.work is not None and self.work.progressed:
            self.mended()
        if self.error is None:
            return {}
        return {"error": self.error, "failures": self.failures, **self.trouble}
