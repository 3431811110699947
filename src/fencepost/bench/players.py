"""bench-players: mutations through the pipeline, beside pgbench running the same statements on plain tables.

The sides take turns, so that noise from outside hits all of them; a figure is the median over the rounds.
Every client has a player of its own, and its mutations come one after the other.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path
from statistics import median, quantiles

from fencepost.bench.pgbench import Pgbench
from fencepost.bench.players_cleaning import Steadiness, steady_state
from fencepost.bench.players_nodes import NODES, WARM_UP_CALLS, Crew, Done, Errand, crew, work
from fencepost.bench.report import Goal, Report, Row, machine
from fencepost.bench.stage import migrated_database, server_facts
from fencepost.embedded import Database, ValkeyServer

CLIENTS = 32
SHARE_MIN = 0.7
CLAIM_COST_MAX = 0.15
RESPONSE_COST_MAX = 0.20
CLEANING_TIMES_MIN = 2
# Vacuum comes once a minute: in a short run the table still grows into its size.
GROWTH_MAX = 1.2
SCRIPTS = ("player_mutation", "player_execute", "player_execute_claim", "player_execute_response")


@dataclass(frozen=True, slots=True)
class Length:
    rounds: int
    calls: int
    steady_seconds: float
    keep_seconds: float


QUICK = Length(rounds=3, calls=40, steady_seconds=10, keep_seconds=3)
WHOLE = Length(rounds=3, calls=150, steady_seconds=300, keep_seconds=60)


@dataclass(frozen=True, slots=True)
class Pace:
    """Calls a second over all clients, and the slowest hundredth of them."""

    rate: float
    p99_ms: float | None = None


@dataclass
class Arena:
    """All sides, on one database. Each measurement gets new players."""

    database: Database
    redis_url: str
    scripts: Path
    nodes: Crew
    bases: count[int] = field(default_factory=lambda: count(0, 1000))

    def by_pgbench(self, script: str, calls: int) -> Pace:
        variables = {"base": self._stock(), "i": 0}
        path = self.scripts / f"{script}.sql"
        return Pace(Pgbench(self.database).rate(path, connections=CLIENTS, calls=calls, variables=variables))

    def by_pipeline(self, calls: int, *, with_redis: bool, repeats: bool = False) -> Pace:
        """All nodes at once. A repeat's first sending executes; the others are answered by Redis."""
        base, share = self._stock(), CLIENTS // NODES
        redis_url = self.redis_url if with_redis else None
        errands = [
            Errand(self.database.url, redis_url, base + node * share, share, calls, repeats, self.nodes.start)
            for node in range(NODES)
        ]
        done = list(self.nodes.pool.map(work, errands))
        return pace_of(done)

    def _stock(self) -> int:
        base = next(self.bases)
        folder = files("fencepost.bench").joinpath("stock")
        with self.database.connect_admin() as admin:
            admin.execute(folder.joinpath("players.sql").read_text().encode())
            rows = folder.joinpath("player_rows.sql").read_text()
            admin.execute(rows.encode(), {"first": base, "count": CLIENTS})
        return base


def run(*, quick: bool) -> Report:
    length = QUICK if quick else WHOLE
    with (
        migrated_database() as database,
        _valkey() as valkey,
        as_file(files("fencepost.bench").joinpath("scripts")) as scripts,
        crew() as nodes,
    ):
        facts = machine(**server_facts(database))
        paces = measure(Arena(database, valkey.url, scripts, nodes), length)
        steadiness = asyncio.run(
            steady_state(database, seconds=length.steady_seconds, keep_seconds=length.keep_seconds)
        )
    rows = [*(_row(name, pace, paces["player_mutation"]) for name, pace in paces.items()), steadiness.row()]
    return Report("players", quick, rows, goals(paces, steadiness), facts)


def pace_of(done: Sequence[Done]) -> Pace:
    """Only while all of them worked, because on a busy machine one begins or ends late; if ever they did."""
    begun, ended = max(node.begun for node in done), min(node.ended for node in done)
    if ended - begun < (max(node.ended for node in done) - min(node.begun for node in done)) / 3:
        begun, ended = min(node.begun for node in done), max(node.ended for node in done)
    seconds = [taken for node in done for at, taken in node.calls if begun < at <= ended]
    return Pace(len(seconds) / (ended - begun), quantiles(seconds, n=100)[98] * 1000)


def measure(arena: Arena, length: Length) -> dict[str, Pace]:
    """The median over the rounds, each side once in each."""
    sides: dict[str, Callable[[int], Pace]] = {
        **{script: _side(arena, script) for script in SCRIPTS},
        "pipeline without redis": lambda calls: arena.by_pipeline(calls, with_redis=False),
        "pipeline with redis": lambda calls: arena.by_pipeline(calls, with_redis=True),
        "repeats answered by redis": lambda calls: arena.by_pipeline(calls, with_redis=True, repeats=True),
    }
    for side in sides.values():
        side(WARM_UP_CALLS)
    rounds = [{name: side(length.calls) for name, side in sides.items()} for _ in range(length.rounds)]
    return {name: _middle([measured[name] for measured in rounds]) for name in sides}


def _side(arena: Arena, script: str) -> Callable[[int], Pace]:
    return lambda calls: arena.by_pgbench(script, calls)


def _middle(paces: list[Pace]) -> Pace:
    slow = [pace.p99_ms for pace in paces if pace.p99_ms is not None]
    return Pace(median(pace.rate for pace in paces), median(slow) if slow else None)


def _row(name: str, pace: Pace, yardstick: Pace) -> Row:
    row: dict[str, str | int | float] = {
        "what": name,
        "calls_s": round(pace.rate),
        "share": round(pace.rate / yardstick.rate, 2),
    }
    return row if pace.p99_ms is None else {**row, "p99_ms": round(pace.p99_ms, 1)}


def goals(paces: dict[str, Pace], steadiness: Steadiness) -> list[Goal]:
    bare = paces["player_execute"].rate
    share = paces["pipeline without redis"].rate / paces["player_mutation"].rate
    return [
        Goal("mutations through the pipeline, of pgbench's rate", round(share, 2), SHARE_MIN),
        Goal(
            "what the claim costs", _cost(bare, paces["player_execute_claim"]), CLAIM_COST_MAX, at_most=True
        ),
        Goal(
            "what the claim costs with a stored response",
            _cost(bare, paces["player_execute_response"]),
            RESPONSE_COST_MAX,
            at_most=True,
        ),
        Goal("cleaning, times the insert rate", round(steadiness.times, 1), CLEANING_TIMES_MIN),
        Goal("growth of the markers' table", round(steadiness.growth, 2), GROWTH_MAX, at_most=True),
    ]


def _cost(bare: float, pace: Pace) -> float:
    return round(1 - pace.rate / bare, 2)


def _valkey() -> AbstractContextManager[ValkeyServer]:
    return ValkeyServer(Path(tempfile.mkdtemp(prefix="fencepost-bench-")), ephemeral=True)
