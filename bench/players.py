"""bench-players: mutations through the pipeline, beside pgbench with the same statements on plain tables.

The sides take turns, so that noise from outside affects all of them; a figure is the median over the rounds.
Every client has a player of its own, and sends its mutations one after the other; then all clients share one.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path
from statistics import median, quantiles

from bench.bench_server import migrated_database, server_facts
from bench.pgbench import Pgbench
from bench.players_cleaning import Steadiness, steady_state
from bench.players_nodes import NODES, WARM_UP_CALLS, NodeDone, NodeProcesses, NodeTask, work, workers
from bench.processor import parent_of, processor_time
from bench.report import Goal, Report, Row, machine
from fencepost.embedded import Database, ValkeyServer

CLIENTS = 32
HOT_CLIENTS = 200
HOT = "pgbench, one row for all"
SHARE_MIN = 0.7
DRAWS_REFUSED_MAX = 0.01
CLAIM_COST_MAX = 0.15
RESPONSE_COST_MAX = 0.20
CLEANING_TIMES_MIN = 2
# Vacuum runs once a minute: in a short run the table still grows to its steady size.
GROWTH_MAX = 1.2
SCRIPTS = ("player_mutation", "player_execute", "player_execute_claim", "player_execute_response")


@dataclass(frozen=True, slots=True)
class PlayersLength:
    rounds: int
    calls: int
    steady_seconds: float
    keep_seconds: float


QUICK = PlayersLength(rounds=2, calls=40, steady_seconds=8, keep_seconds=2)
WHOLE = PlayersLength(rounds=3, calls=150, steady_seconds=300, keep_seconds=60)


@dataclass(frozen=True, slots=True)
class MeasuredPace:
    """Calls a second over all clients, and the 99th percentile of their latency."""

    rate: float
    p99_ms: float | None = None
    processor_us: float | None = None
    """CPU time of server and clients together, for one call; connecting included."""
    refused: float | None = None
    """The share of requests that were answered with a conflict."""


@dataclass
class PlayersEnv:
    """All sides, on one database. Each measurement gets new players."""

    database: Database
    redis_url: str
    scripts: Path
    nodes: NodeProcesses
    server_pid: int
    bases: count[int] = field(default_factory=lambda: count(0, 1000))

    def by_pgbench(self, script: str, calls: int) -> MeasuredPace:
        variables = {"base": self._stock(), "i": 0}
        path = self.scripts / f"{script}.sql"
        with processor_time(self.server_pid) as spent:
            rate = Pgbench(self.database).rate(path, connections=CLIENTS, calls=calls, variables=variables)
        return MeasuredPace(rate, processor_us=spent.seconds * 1e6 / (CLIENTS * calls))

    def by_pipeline(self, calls: int, *, with_redis: bool, repeats: bool = False) -> MeasuredPace:
        """All nodes at once. The first request of a repeat executes; the others are answered by Redis."""
        base, share = self._stock(), CLIENTS // NODES
        redis_url = self.redis_url if with_redis else None
        tasks = [
            NodeTask(
                self.database.url, redis_url, base + node * share, share, calls, repeats, self.nodes.start
            )
            for node in range(NODES)
        ]
        with processor_time(self.server_pid) as spent:
            done = list(self.nodes.pool.map(work, tasks))
        by_server = spent.seconds / (CLIENTS * (calls + WARM_UP_CALLS))
        by_nodes = sum(node.processor_seconds for node in done) / (CLIENTS * calls)
        return replace(pace_of(done), processor_us=(by_server + by_nodes) * 1e6)

    def on_one_player(self, what: str, calls: int) -> MeasuredPace:
        """All clients at once on one player, without Redis; a refused request is not sent again."""
        base, share = self._stock(), HOT_CLIENTS // NODES
        tasks = [
            NodeTask(self.database.url, None, base, share, calls, False, self.nodes.start, what, node * share)
            for node in range(NODES)
        ]
        done = list(self.nodes.pool.map(work, tasks))
        refused = sum(node.refused for node in done) / (HOT_CLIENTS * calls)
        return replace(pace_of(done), refused=refused)

    def _stock(self) -> int:
        base = next(self.bases)
        folder = files("bench").joinpath("fixture_data")
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
        as_file(files("bench").joinpath("scripts")) as scripts,
        workers() as nodes,
    ):
        facts = machine(**server_facts(database))
        paces = measure(PlayersEnv(database, valkey.url, scripts, nodes, _server_pid(database)), length)
        steadiness = asyncio.run(
            steady_state(database, seconds=length.steady_seconds, keep_seconds=length.keep_seconds)
        )
    rows = [*(_row(name, pace, _yardstick(name, paces)) for name, pace in paces.items()), steadiness.row()]
    return Report("players", quick, rows, goals(paces, steadiness), facts)


def pace_of(done: Sequence[NodeDone]) -> MeasuredPace:
    """Counted while all nodes worked, if they ever did: on a busy machine one begins or ends late."""
    begun, ended = max(node.begun for node in done), min(node.ended for node in done)
    if ended - begun < (max(node.ended for node in done) - min(node.begun for node in done)) / 3:
        begun, ended = min(node.begun for node in done), max(node.ended for node in done)
    seconds = [taken for node in done for at, taken in node.calls if begun < at <= ended]
    return MeasuredPace(len(seconds) / (ended - begun), quantiles(seconds, n=100)[98] * 1000)


def measure(env: PlayersEnv, length: PlayersLength) -> dict[str, MeasuredPace]:
    """The median over the rounds, each side once in each."""
    sides: dict[str, Callable[[int], MeasuredPace]] = {
        **{script: _side(env, script) for script in SCRIPTS},
        "pipeline without redis": lambda calls: env.by_pipeline(calls, with_redis=False),
        "pipeline with redis": lambda calls: env.by_pipeline(calls, with_redis=True),
        "repeats answered by redis": lambda calls: env.by_pipeline(calls, with_redis=True, repeats=True),
    }
    hot: dict[str, Callable[[int], MeasuredPace]] = {
        HOT: _side(env, "player_hot"),
        "one player, 200 at once: grants": lambda calls: env.on_one_player("grants", max(3, calls // 4)),
        "one player, 200 at once: draws": lambda calls: env.on_one_player("draws", max(3, calls // 10)),
    }
    sides |= hot
    for side in sides.values():
        side(WARM_UP_CALLS)
    rounds = [{name: side(length.calls) for name, side in sides.items()} for _ in range(length.rounds)]
    return {name: _middle([measured[name] for measured in rounds]) for name in sides}


def _side(env: PlayersEnv, script: str) -> Callable[[int], MeasuredPace]:
    return lambda calls: env.by_pgbench(script, calls)


def _middle(paces: list[MeasuredPace]) -> MeasuredPace:
    refused = [pace.refused for pace in paces if pace.refused is not None]
    slow = [pace.p99_ms for pace in paces if pace.p99_ms is not None]
    spent = [pace.processor_us for pace in paces if pace.processor_us is not None]
    return MeasuredPace(
        median(pace.rate for pace in paces),
        median(slow) if slow else None,
        median(spent) if spent else None,
        max(refused) if refused else None,
    )


def _yardstick(name: str, paces: dict[str, MeasuredPace]) -> MeasuredPace:
    """Calls on one row are compared with pgbench on one row."""
    return paces[HOT if name.startswith("one player") else "player_mutation"]


def _row(name: str, pace: MeasuredPace, yardstick: MeasuredPace) -> Row:
    row: dict[str, str | int | float] = {
        "what": name,
        "calls_s": round(pace.rate),
        "share": round(pace.rate / yardstick.rate, 2),
    }
    if pace.p99_ms is not None:
        row["p99_ms"] = round(pace.p99_ms, 1)
    if pace.processor_us is not None:
        row["cpu_us"] = round(pace.processor_us)
    if pace.refused is not None:
        row["refused"] = round(pace.refused, 4)
    return row


def goals(paces: dict[str, MeasuredPace], steadiness: Steadiness) -> list[Goal]:
    bare, hot = paces["player_execute"].rate, paces[HOT].rate
    grants, draws = (paces[f"one player, 200 at once: {what}"] for what in ("grants", "draws"))
    share = paces["pipeline without redis"].rate / paces["player_mutation"].rate
    return [
        Goal("mutations through the pipeline, of pgbench's rate", round(share, 2), SHARE_MIN),
        Goal("grants to one player, of pgbench's rate on one row", round(grants.rate / hot, 2), SHARE_MIN),
        Goal("grants to one player that are refused", grants.refused or 0, 0, at_most=True),
        Goal("draws of one player that are refused", draws.refused or 0, DRAWS_REFUSED_MAX, at_most=True),
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
        Goal("growth of the keys' table", round(steadiness.growth, 2), GROWTH_MAX, at_most=True),
    ]


def _cost(bare: float, pace: MeasuredPace) -> float:
    return round(1 - pace.rate / bare, 2)


def _server_pid(database: Database) -> int:
    """The server's main process: the parent of every session."""
    with database.connect_admin() as admin:
        return parent_of(admin.info.backend_pid)


def _valkey() -> AbstractContextManager[ValkeyServer]:
    return ValkeyServer(Path(tempfile.mkdtemp(prefix="fencepost-bench-")), ephemeral=True)
