"""Counts the faults that were injected and those that hit."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from fencepost_torture._schedule import Fault

FAULTS_MAX = 2000
"""How many are kept for the report; a run of hours has a million."""


@dataclass(frozen=True)
class Struck:
    """One fault that was injected, for the report."""

    at: float
    fault: Fault


@dataclass
class Tally:
    """What was injected and what hit, from any thread."""

    struck: Counter[str] = field(default_factory=Counter[str])
    hit: Counter[str] = field(default_factory=Counter[str])
    points: Counter[str] = field(default_factory=Counter[str])
    first_claims: list[float] = field(default_factory=list[float])
    """Seconds from each promotion of a standby to the first claim after it."""
    planned_faults: list[Struck] = field(default_factory=list[Struck])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, fault: Fault, at: float) -> None:
        with self._lock:
            self.struck[fault.kind] += 1
            if len(self.planned_faults) < FAULTS_MAX:
                self.planned_faults.append(Struck(at, fault))

    def count(self, kind: str, point: str = "") -> None:
        with self._lock:
            self.hit[kind] += 1
            if point:
                self.points[point] += 1
