"""Which fault comes when, and where: a function of the seed, so that a run can be repeated.

The schedule has no end and does not depend on the clock or the system. A slow machine gets less far in it,
but the nth fault of a seed is the same everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# How often each kind comes, by family. `--faults` takes families and kinds.
FAMILIES: Mapping[str, Mapping[str, int]] = {
    "process": {"kill": 5, "crash": 8, "pause": 4, "stall": 4},
    "postgres": {"postgres-kill": 1, "postgres-restart": 1, "postgres-freeze": 1},
    "redis": {"redis-kill": 1, "redis-restart": 1, "redis-wipe": 2, "redis-freeze": 1},
    "network": {
        "net-delay": 2,
        "net-cut": 2,
        "net-half-open": 2,
        "net-refuse": 1,
        "net-lost-reply": 3,
        "net-lost-commit": 2,
        "net-reorder": 2,
    },
    "clock": {"clock-jump": 2, "node-clock-jump": 2, "postgres-clock-jump": 1},
    "disk": {"disk-full": 1},
    "power": {"power-cut": 1},
    "backup": {"restore": 1},
    "cluster": {
        "primary-kill": 3,
        "primary-crash": 3,
        "primary-freeze": 3,
        "primary-cut": 2,
        "primary-full": 1,
        "switchover": 3,
        "standbys-cut": 1,
        "clients-cut": 1,
        "standby-kill": 1,
    },
}
FAILOVERS = ("primary-kill", "primary-crash", "primary-freeze", "primary-cut", "primary-full", "switchover")
"""The faults of a cluster that end with another primary."""
# Only when they are asked for: with power-cut every byte of the server goes through a process of ours, which
# is slow; restore loses commits, so that no answer from before it has to hold; those of a cluster need one.
BY_NAME_ONLY = ("power-cut", "restore", *FAMILIES["cluster"])
KINDS: Mapping[str, int] = {kind: weight for kinds in FAMILIES.values() for kind, weight in kinds.items()}
NODE_CLOCK, POSTGRES_CLOCK = "node-clock-jump", "postgres-clock-jump"
NTHS = (1, 1, 2, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """What the schedule knows of one system: how many processes it has, and its crash points."""

    name: str
    processes: int
    points: Sequence[str]
    bears_clock_jumps: bool = True
    uses_redis: bool = True
    bears_restores: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: how long after the one before, its kind, its target, the crash point, its duration."""

    number: int
    gap_seconds: float
    kind: str
    system: str
    place: int
    point: str
    nth: int
    leases: float
    """How long it lasts, in lease periods: a pause is always longer than one."""
    at_redis: bool
    """For the network: which of the two servers is cut off."""

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def chosen_kinds(names: Sequence[str]) -> list[str]:
    """The kinds that the names, of families or of kinds, stand for, in the order of the table."""
    unknown = [name for name in names if name not in FAMILIES and name not in KINDS]
    if unknown:
        raise ValueError(f"There is no fault {', '.join(unknown)}; allowed: {', '.join([*FAMILIES, *KINDS])}")
    return [
        kind
        for family, kinds in FAMILIES.items()
        for kind in kinds
        if (not names and kind not in BY_NAME_ONLY) or family in names or kind in names
    ]


def schedule(
    seed: int,
    kinds: Sequence[str],
    roles: Sequence[ProcessRole],
    *,
    gap_seconds: float,
    weights: Mapping[str, int] = KINDS,
    shares: Mapping[str, int] | None = None,
) -> Iterator[Fault]:
    """The faults of a seed, one after another, without end: each kind once, and then by their weights. The
    target is drawn from the systems that the kind applies to, by their shares, which are 1 by default."""
    shares = shares or {}
    # Every fault takes the same number of draws, so that a new system changes only its own faults.
    chance = random.Random(seed)  # noqa: S311 - Repeatable, no secret.
    # A kind that applies to no system never comes.
    possible = [kind for kind in kinds if _is_borne(kind, roles)]
    often = [weights.get(kind, KINDS[kind]) for kind in possible]
    # So a short run has every kind too.
    first = chance.sample(possible, len(possible))
    number = 0
    while possible:
        number += 1
        gap = chance.uniform(0.3, 1.7) * gap_seconds
        [drawn] = chance.choices(possible, often)
        kind = first.pop() if first else drawn
        fitting = [role for role in roles if _bears(role, kind)]
        [role] = chance.choices(fitting, [shares.get(role.name, 1) for role in fitting])
        place, point, at_redis = chance.random(), chance.random(), chance.random()
        yield Fault(
            number=number,
            gap_seconds=round(gap, 3),
            kind=kind,
            system=role.name,
            place=int(place * role.processes),
            point=role.points[int(point * len(role.points))] if role.points else "",
            nth=NTHS[int(chance.random() * len(NTHS))],
            leases=round(chance.uniform(1.2, 2.5), 2),
            at_redis=role.uses_redis and kind in AT_EITHER and at_redis < 0.35,
        )


def abreast(kinds: Sequence[str]) -> list[list[str]]:
    """The kinds as groups that need not wait for each other: faults of Redis, and the rest."""
    redis = [kind for kind in kinds if kind in FAMILIES["redis"]]
    others = [kind for kind in kinds if kind not in redis]
    return [group for group in (others, redis) if group]


# A commit is PostgreSQL's: the two kinds that lose one are for its proxy alone.
AT_EITHER = {"net-delay", "net-cut", "net-half-open", "net-refuse", "net-lost-reply", "net-reorder"}


def _is_borne(kind: str, roles: Sequence[ProcessRole]) -> bool:
    """All systems share PostgreSQL's own clock, so all must tolerate its jump; other faults have one
    target."""
    borne = [_bears(role, kind) for role in roles]
    return all(borne) if kind == POSTGRES_CLOCK else any(borne)


def _bears(role: ProcessRole, kind: str) -> bool:
    if kind == NODE_CLOCK:
        # No system depends on the clock of a node.
        return True
    if kind in FAMILIES["clock"]:
        return role.bears_clock_jumps
    if kind in FAMILIES["backup"]:
        return role.bears_restores
    if kind in ("crash", "stall"):
        return bool(role.points)
    return role.uses_redis if kind in FAMILIES["redis"] else True


def unavailable(kinds: Sequence[str]) -> dict[str, str]:
    """What a torture run with these faults leaves out, with the reason."""
    missing: dict[str, str] = {}
    if NODE_CLOCK not in kinds:
        missing["clocks of nodes"] = (
            "they jump by libfaketime, and this machine has none that works with its Python "
            "(pip install libfaketime), or they were not asked for"
        )
    if POSTGRES_CLOCK not in kinds:
        missing["PostgreSQL's own clock"] = (
            "as the clocks of nodes, and only where every system bears it; "
            "the clock by which leases are judged jumps for one system (clock-jump)"
        )
    if "power-cut" not in kinds:
        missing["power-cut"] = (
            "it is slow, and so only done when asked for (--faults power); "
            "it needs the right to mount, as root has on Linux, and /dev/fuse"
        )
    if "disk-full" not in kinds:
        missing["disk-full"] = (
            "a disk of a chosen size needs the right to mount, as root has on Linux, "
            "and a run of ten minutes at most"
        )
    return missing
