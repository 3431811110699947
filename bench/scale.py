"""bench-scale: what one effect of each system costs the servers, and which limit comes first at 10 and 100
times the load.

Each system runs as in the torture, without a fault: real processes, the services' own calls, PostgreSQL with
fsync on this machine's disk. Counted between two moments of a run: effects, commits, WAL, bytes of tables,
commands to Redis, CPU time of PostgreSQL. The model multiplies: it knows no contention, so it names
a limit rather too late than too early.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

from bench.bench_server import migrated_database
from bench.pgbench import Pgbench
from bench.processor import family_seconds
from bench.report import Report, Row, machine
from fencepost.embedded import Database, ValkeyServer
from fencepost.redis_streams.connection import connect_sync
from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunMoment, TortureRun
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._tally import Tally

SYSTEMS = ("leases", "jobs", "workflows", "flows", "players", "orders", "nonces")
OPEN_MAX = 400
WARM_UP_SECONDS = 2.0
LONGEST_SECONDS = 120.0
COUNTERS: LiteralString = """
    select (select sum(xact_commit) from pg_stat_database), pg_current_wal_lsn() - '0/0'::pg_lsn,
           (select sum(pg_total_relation_size(c.oid)) from pg_class c
            where c.relnamespace = 'fencepost'::regnamespace and c.relkind = 'r')
"""
COMMIT = "insert into scale_commit values (:client_id);\n"
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Counters:
    """The servers' own figures at one moment."""

    at: float
    effects: int
    commits: float
    wal_bytes: float
    table_bytes: float
    commands: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one effect of a system costs, and how many there were in a second."""

    system: str
    per_second: float
    commits: float
    wal_kb: float
    table_kb: float
    commands: float
    cpu_ms: float

    @classmethod
    def between(cls, system: str, first: Counters, last: Counters) -> Cost:
        effects = max(1, last.effects - first.effects)
        return cls(
            system,
            effects / (last.at - first.at),
            (last.commits - first.commits) / effects,
            (last.wal_bytes - first.wal_bytes) / effects / 1024,
            max(0.0, last.table_bytes - first.table_bytes) / effects / 1024,
            (last.commands - first.commands) / effects,
            (last.cpu_seconds - first.cpu_seconds) / effects * 1000,
        )

    def row(self) -> Row:
        return {
            "system": self.system,
            "effects/s": round(self.per_second, 1),
            "commits": round(self.commits, 2),
            "WAL KiB": round(self.wal_kb, 2),
            "tables KiB": round(self.table_kb, 2),
            "Redis commands": round(self.commands, 2),
            "CPU of PostgreSQL ms": round(self.cpu_ms, 2),
        }


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one server can do in a second."""

    name: str
    cores: float
    commits: float
    wal_mb: float
    commands: float


# A server that can be rented: 64 cores, an NVMe disk that syncs in 0.1 ms, Redis on one core.
LARGE = Capacity("a large server", cores=64, commits=100_000, wal_mb=1_000, commands=150_000)
REMEDIES: Mapping[str, str] = {
    "processor": "more cores; then several clusters by key",
    "commits": "finish in batches; a disk that syncs faster",
    "WAL": "a faster disk; then several clusters by key",
    "Redis": "work without Redis where it can, or a Redis Cluster",
}


def uses(cost: Cost, times: float, capacity: Capacity) -> dict[str, float]:
    """The share of each resource of a server that so many times the measured load takes."""
    rate = cost.per_second * times
    return {
        "processor": rate * cost.cpu_ms / 1000 / capacity.cores,
        "commits": rate * cost.commits / capacity.commits,
        "WAL": rate * cost.wal_kb / 1024 / capacity.wal_mb,
        "Redis": rate * cost.commands / capacity.commands,
    }


def first_limit(cost: Cost, times: float, capacity: Capacity) -> tuple[str, float]:
    """The resource that is used most, and its share: above 1 the server cannot do it."""
    shares = uses(cost, times, capacity)
    name = max(shares, key=lambda one: shares[one])
    return name, shares[name]


def model(costs: Sequence[Cost]) -> list[Row]:
    """For each system at 10 and 100 times: what is needed, the first limit on a large server, the remedy."""
    rows: list[Row] = []
    for cost in costs:
        for times in (10, 100):
            rate = cost.per_second * times
            name, share = first_limit(cost, times, LARGE)
            rows.append(
                {
                    "load": f"{cost.system}, {times} times",
                    "effects a second": round(rate),
                    "cores": round(rate * cost.cpu_ms / 1000, 1),
                    "WAL MB/s": round(rate * cost.wal_kb / 1024, 1),
                    "tables GB a day": round(rate * cost.table_kb * DAY / 1024 / 1024, 1),
                    "first limit of a large server": f"{name}, {share:.0%}",
                    "remedy": REMEDIES[name] if share > 1 else "none needed",
                }
            )
    return rows


class _Measured(Exception):
    """Ends a run: what it would check afterwards is the torture's."""


@dataclass
class _Window:
    """Reads the counters twice in a run: after the warm-up, and at its end."""

    system: str
    seconds: float
    env: SystemEnvironment | None = None
    first: Counters | None = None
    last: Counters | None = None
    redis: Any = None

    def hold(self, env: SystemEnvironment) -> None:
        self.env = env
        self.redis = connect_sync(env.redis_url, reply_seconds=5)

    def watch(self, moment: RunMoment, _tally: Tally) -> None:
        if moment.phase != "faults" or moment.at < WARM_UP_SECONDS or self.env is None:
            return
        self.last = self._read(moment.effects.get(self.system, 0))
        self.first = self.first or self.last
        if self.last.at - self.first.at >= self.seconds:
            raise _Measured

    def _read(self, effects: int) -> Counters:
        assert self.env is not None
        [(commits, wal, tables)] = self.env.rows(COUNTERS)
        commands = self.redis.info("stats")["total_commands_processed"]
        return Counters(
            time.monotonic(),
            effects,
            float(commits),
            float(wal),
            float(tables),
            float(commands),
            self._cpu_seconds(),
        )

    def _cpu_seconds(self) -> float:
        assert self.env is not None
        return family_seconds(self.env.database.server.pids[0])


def measure(system: str, seconds: float, seed: int = 1) -> Cost:
    """Run one system alone, without a fault."""
    window = _Window(system, seconds)
    plan = RunPlan(
        seed,
        LONGEST_SECONDS,
        [system],
        kinds=(),
        pace=RunPace(open_max=OPEN_MAX),
        before=window.hold,
    )
    with suppress(_Measured):
        TortureRun(plan, watch=window.watch).run()
    if window.redis is not None:
        window.redis.close()
    if window.first is None or window.last is None:
        raise RuntimeError(f"The run of {system} was shorter than its warm-up.")
    return Cost.between(system, window.first, window.last)


def capacity_here(database: Database, redis_url: str) -> Capacity:
    """This machine: commits of one row by 32 connections, WAL of one writer, commands in pipelines."""
    with database.connect_admin() as admin:
        admin.execute("create table scale_commit (client int); grant insert on scale_commit to fencepost_app")
        script = database.server.directory / "commit.sql"
        script.write_text(COMMIT)
        commits = Pgbench(database).rate(script, connections=32, calls=200, variables={})
        began, place = time.monotonic(), admin.execute("select pg_current_wal_lsn()").fetchone()
        for _ in range(16):
            admin.execute("select pg_logical_emit_message(true, 'scale', repeat('x', 4194304))")
        [(written,)] = admin.execute("select pg_current_wal_lsn() - %s", place).fetchall()
        wal = float(written) / 1024 / 1024 / (time.monotonic() - began)
    return Capacity("here", float(os.cpu_count() or 1), commits, wal, _commands_per_second(redis_url))


def _commands_per_second(redis_url: str) -> float:
    client: Any = connect_sync(redis_url, reply_seconds=30)
    with closing(client):
        began, count = time.monotonic(), 0
        while time.monotonic() < began + 1:
            pipe = client.pipeline(transaction=False)
            for number in range(100):
                pipe.xadd("scale", {"job_id": number}, maxlen=1000)
            count += len(pipe.execute())
        return count / (time.monotonic() - began)


def run(*, quick: bool) -> Report:
    costs = [measure(system, 3.0 if quick else 6.0) for system in SYSTEMS]
    directory = Path(tempfile.mkdtemp(prefix="fencepost-bench-"))
    with migrated_database() as database, ValkeyServer(directory, ephemeral=True) as valkey:
        here = capacity_here(database, valkey.url)
    facts = machine(
        commits_per_second=round(here.commits), wal_mb=round(here.wal_mb), redis_commands=round(here.commands)
    )
    rows = [*(cost.row() for cost in costs), *model(costs)]
    # Costs and a model: there is no goal to meet.
    return Report("scale", quick, rows, [], facts)
