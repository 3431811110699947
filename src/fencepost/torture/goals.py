"""How much torture is enough: sizes that a full run must reach, each with its systems, faults and pace.

A run of any length tells how much of its goal it has reached, and how many hours the whole takes at its pace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencepost.torture.ordeal import Outcome
from fencepost.torture.pace import Pace
from fencepost.torture.schedule import FAMILIES
from fencepost.torture.stage import LEASE_SECONDS
from fencepost.torture.systems import system_of
from fencepost.torture.verdict import Floors

EFFECTS = "effects"
EACH_POINT = "hits of each crash point"


@dataclass(frozen=True, slots=True)
class Size:
    """So many of what happened: effects, hits of the rarest crash point, or faults of some kinds that hit."""

    what: str
    count: int
    kinds: Sequence[str] = ()

    def reached(self, outcome: Outcome) -> int:
        if self.what == EFFECTS:
            return sum(outcome.effects.values())
        if self.what == EACH_POINT:
            points = [point for name in outcome.plan.systems for point in system_of(name).points]
            return min((outcome.tally.points[point] for point in points), default=0)
        return sum(outcome.tally.hit[kind] for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Goal:
    """One command: what is run under which faults, how quickly they follow each other, and how much of it."""

    systems: Sequence[str]
    faults: Sequence[str]
    gap_seconds: float
    sizes: Sequence[Size]
    floors: Floors = field(default_factory=Floors)
    lease_seconds: float = LEASE_SECONDS
    pace: Pace = field(default_factory=Pace)


NETWORK = tuple(FAMILIES["network"])
MANY = Floors(effects_per_second=200.0)
"""By the thousand, five a second are one call in three minutes."""

GOALS: Mapping[str, Goal] = {
    "crashes": Goal(
        ("jobs", "players", "orders", "flows"),
        ("crash", "kill"),
        0.03,
        (
            Size("crash injections", 100_000, ("crash", "kill")),
            Size(EFFECTS, 1_000_000),
            Size(EACH_POINT, 500),
        ),
        lease_seconds=1.0,
        pace=Pace(open_max=200, weights={"crash": 4, "kill": 1}, evenly=True),
    ),
    "pauses": Goal(
        ("leases", "jobs", "nonces", "flows"),
        ("pause", "stall"),
        0.05,
        (Size("pauses beyond the lease", 20_000, ("pause", "stall")),),
        # Whoever sleeps loses no reply.
        Floors(ambiguous_per_second=0),
        lease_seconds=1.0,
        pace=Pace(crowd=3),
    ),
    "servers": Goal(
        ("leases", "jobs", "players"),
        ("postgres-kill", "redis-kill", "redis-wipe"),
        0.3,
        (
            Size("kills of PostgreSQL", 2000, ("postgres-kill",)),
            Size("kills of Redis", 2000, ("redis-kill",)),
            Size("wipes", 200, ("redis-wipe",)),
        ),
        lease_seconds=1.0,
        # A server comes back, and work is done, before the next blow: else nothing is there to be lost.
        pace=Pace(weights={"redis-kill": 9, "redis-wipe": 1}, abreast=True, rests=True),
    ),
    "network": Goal(
        ("leases", "jobs", "nonces", "players"),
        NETWORK,
        0.05,
        (Size("network faults", 10_000, NETWORK),),
        lease_seconds=1.0,
    ),
    "power": Goal(
        ("leases", "jobs"),
        ("power-cut",),
        0.5,
        (Size("power cuts", 1000, ("power-cut",)),),
        # Every byte goes through a process of ours, and the server reads its log after each cut.
        Floors(effects_per_second=2.0, hits_per_second=0.1),
        lease_seconds=1.0,
        pace=Pace(rests=True),
    ),
    "nonces": Goal(
        ("bulk-nonces",),
        ("kill", "pause"),
        1.0,
        (Size(EFFECTS, 10_000_000),),
        MANY,
        lease_seconds=1.0,
    ),
    "streams": Goal(
        ("bulk-flows",),
        ("crash", "kill"),
        1.0,
        (Size(EFFECTS, 10_000_000),),
        MANY,
        lease_seconds=1.0,
    ),
}


def told(goal: Goal, outcome: Outcome) -> list[dict[str, Any]]:
    """How much of each size was reached, and how long the whole takes at this pace."""
    return [
        {
            "what": size.what,
            "wanted": size.count,
            "reached": size.reached(outcome),
            "hours_for_all": hours(size.count, size.reached(outcome), outcome.seconds),
        }
        for size in goal.sizes
    ]


def hours(wanted: int, reached: int, seconds: float) -> float | None:
    """None when nothing of it was reached: then nobody knows."""
    return round(wanted / reached * seconds / 3600, 1) if reached else None
