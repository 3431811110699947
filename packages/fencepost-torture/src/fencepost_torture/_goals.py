"""The sizes that a goal must reach, each goal with its systems, faults and pace.

A run of any length contributes; `_score.py` adds up what the runs of a goal have contributed together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost_torture._pace import RunPace
from fencepost_torture._schedule import FAILOVERS, FAMILIES
from fencepost_torture._system_environment import LEASE_SECONDS
from fencepost_torture._verdict import Floors
from fencepost_torture.systems import system_of

EFFECTS = "effects"
EACH_POINT = "hits of each crash point"


@dataclass(frozen=True, slots=True)
class Yield:
    """What one run contributed, or several together."""

    hits: Counter[str] = field(default_factory=Counter[str])
    """By kind of fault."""
    points: Counter[str] = field(default_factory=Counter[str])
    """Hits by crash point."""
    effects: int = 0
    """Effects made under faults: those made without faults prove nothing."""

    def __add__(self, other: Yield) -> Yield:
        return Yield(self.hits + other.hits, self.points + other.points, self.effects + other.effects)


@dataclass(frozen=True, slots=True)
class Size:
    """A required count: of effects, of hits of every crash point, or of faults of some kinds that hit."""

    what: str
    count: int
    kinds: Sequence[str] = ()

    def amounts(self, brought: Yield, points: Sequence[str]) -> Mapping[str, int]:
        """What must reach `count`: one number, or one for each of the crash points."""
        if self.what == EFFECTS:
            return {EFFECTS: brought.effects}
        if self.what == EACH_POINT:
            return {point: brought.points[point] for point in points}
        return {self.what: sum(brought.hits[kind] for kind in self.kinds)}

    def reached(self, brought: Yield, points: Sequence[str]) -> int:
        return min(self.amounts(brought, points).values(), default=0)


@dataclass(frozen=True, slots=True)
class Goal:
    """One command: the systems, their faults, how quickly those follow each other, and the sizes to reach."""

    systems: Sequence[str]
    faults: Sequence[str]
    gap_seconds: float
    sizes: Sequence[Size]
    floors: Floors = field(default_factory=Floors)
    lease_seconds: float = LEASE_SECONDS
    pace: RunPace = field(default_factory=RunPace)

    def points(self) -> list[str]:
        """The crash points of its systems."""
        return [point for name in self.systems for point in system_of(name).points]


NETWORK = tuple(FAMILIES["network"])
CLUSTER = tuple(FAMILIES["cluster"])
WORKFLOW_FAULTS = ("crash", "kill", "pause", "stall", "postgres-kill", "redis-kill", "redis-wipe")
MANY = Floors(effects_per_second=200.0)
"""Where one call has a thousand effects, a floor of five a second is one call in three minutes."""

GOALS: Mapping[str, Goal] = {
    "crashes": Goal(
        ("jobs", "players", "orders", "flows", "leases", "nonces"),
        # While Redis is down jobs are claimed straight from PostgreSQL, and what it has lost is reconciled:
        # otherwise those crash points would not be reached.
        ("crash", "kill", "redis-kill", "redis-wipe"),
        0.02,
        (
            Size("crash injections", 100_000, ("crash", "kill")),
            Size(EFFECTS, 1_000_000),
            Size(EACH_POINT, 500),
        ),
        lease_seconds=1.0,
        # Holders of leases and nonces have no crash points: they die anywhere, and are quickly replaced.
        pace=RunPace(
            # The systems with the most crash points, some of which are seldom passed.
            crowds={"jobs": 2, "flows": 2},
            open_max=400,
            # Ten effects for each crash: more of them would take CPU time from the crashes.
            helpings_per_second={
                "jobs": 3,
                "players": 0.7,
                "orders": 1,
                "flows": 8,
                "leases": 6,
                "nonces": 0.5,
            },
            weights={"crash": 60, "kill": 45, "redis-kill": 1, "redis-wipe": 2},
            shares={"leases": 300, "nonces": 300},
            evenly=True,
        ),
    ),
    # Where none of the systems above comes: cron ticks, sinks that commit in phases, transactions on a chain,
    # verdicts.
    "further-crashes": Goal(
        ("odd-jobs", "sinks", "transactions", "judge"),
        ("crash", "kill"),
        0.02,
        (Size(EACH_POINT, 500),),
        lease_seconds=1.0,
        pace=RunPace(
            crowds={"sinks": 2},
            helpings_per_second={"odd-jobs": 3, "sinks": 4, "transactions": 4, "judge": 1.5},
            # A process that is killed anywhere reaches no crash point in that life.
            weights={"crash": 60, "kill": 1},
            evenly=True,
        ),
    ),
    # Every kind of fault that processes and servers have, on workflows alone.
    "workflows": Goal(
        ("workflows",),
        WORKFLOW_FAULTS,
        0.05,
        (
            Size(EFFECTS, 100_000),
            Size("faults", 10_000, WORKFLOW_FAULTS),
            Size(EACH_POINT, 200),
        ),
        # A workflow that was lost waits for its lease, and sleeps and waits besides.
        Floors(effects_per_second=2.0, hits_per_second=0.1),
        lease_seconds=1.0,
        pace=RunPace(
            # A stopped process, and one that starts, take hardly any CPU time: the others do the work.
            crowd=2,
            open_max=120,
            # A crash and a stall wait for their points, so they are drawn often: ten steps for each fault. A
            # process that was killed has to be started again, and after a server all of them connect again:
            # those cost most of the CPU time, and come more seldom than stops and wipes.
            weights={
                "crash": 550,
                "stall": 320,
                "pause": 90,
                "redis-wipe": 40,
                "kill": 25,
                "redis-kill": 5,
                "postgres-kill": 3,
            },
            evenly=True,
        ),
    ),
    "pauses": Goal(
        ("leases", "jobs", "nonces", "flows"),
        ("pause", "stall"),
        0.02,
        (Size("pauses beyond the lease", 20_000, ("pause", "stall")),),
        # A stopped process loses no reply.
        Floors(ambiguous_per_second=0),
        lease_seconds=1.0,
        pace=RunPace(crowd=3),
    ),
    "servers": Goal(
        ("leases", "jobs", "players"),
        ("postgres-kill", "redis-kill", "redis-wipe"),
        0.1,
        (
            Size("kills of PostgreSQL", 2000, ("postgres-kill",)),
            Size("kills of Redis", 2000, ("redis-kill",)),
            Size("wipes", 200, ("redis-wipe",)),
        ),
        lease_seconds=1.0,
        # A server comes back, and work is done, before the next fault: otherwise there is nothing to lose.
        pace=RunPace(crowd=2, weights={"redis-kill": 9, "redis-wipe": 1}, abreast=True, rests=True),
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
        0.2,
        (Size("power cuts", 1000, ("power-cut",)),),
        # Every byte goes through a process of ours, and the server replays its log after each cut.
        Floors(effects_per_second=2.0, hits_per_second=0.1),
        lease_seconds=1.0,
        pace=RunPace(rests=True),
    ),
    "failover": Goal(
        ("leases", "jobs", "steady-flows"),
        CLUSTER,
        0.2,
        (Size("failovers", 1000, FAILOVERS), Size(EFFECTS, 1_000_000)),
        # A failover takes seconds, and the primary has a synchronous standby again before the next.
        Floors(effects_per_second=2.0, hits_per_second=0.01, ambiguous_per_second=0),
        pace=RunPace(
            # A thousand effects for each failover: more of them would take CPU time from the cluster.
            helpings_per_second={"leases": 1, "jobs": 1, "steady-flows": 1},
            # A cut waits for the old primary to give up, and a full disk for the log to fill it.
            weights={"primary-kill": 5, "primary-crash": 5, "primary-freeze": 5, "switchover": 5},
            rests=True,
        ),
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
