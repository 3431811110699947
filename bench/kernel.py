"""bench-kernel: the hot functions through Python, compared with pgbench calling them on the same server.

The sides take turns, so that noise from outside affects both; a figure is the median over the rounds. A rate
counts rows: a batch of 100 that takes 5 ms is 20,000/s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path
from statistics import median

from bench.bench_server import migrated_database, server_facts
from bench.kernel_work import BATCH, FUNCTIONS, LIFE, Connection, Step, Turn, Work
from bench.pgbench import Pgbench
from bench.report import Goal, Report, Row, machine
from fencepost.embedded import Database
from fencepost.pool import AsyncPooledConnection

PYTHON_SHARE_MIN = 0.6
BATCH_GAIN_MIN = 10
LIVES_PER_SECOND_MIN = 18_000
CONNECTIONS = 4

# Ids made here are above those that the sequences assign.
FIRST_ID = 10**12


@dataclass(frozen=True, slots=True)
class KernelLength:
    """How long to measure: rounds for each side, and calls for each connection in a round."""

    rounds: int
    single_calls: int
    batch_calls: int


QUICK = KernelLength(rounds=3, single_calls=20, batch_calls=8)
WHOLE = KernelLength(rounds=5, single_calls=100, batch_calls=40)
WARM_UP_CALLS = 5


@dataclass(frozen=True, slots=True)
class Load:
    """One function in one of its forms, on a number of connections."""

    work: Work
    batch: int
    connections: int
    calls: int

    @property
    def step(self) -> Step:
        step = self.work.single if self.batch == 1 else self.work.many
        assert step is not None, f"{self.work.name} has no plural"
        return step

    @property
    def script(self) -> str:
        return f"{self.work.name}.sql" if self.batch == 1 else f"{self.work.name}_many.sql"

    @property
    def span(self) -> int:
        """Rows of one connection in one round."""
        return self.calls * self.batch

    @property
    def rows(self) -> int:
        return self.span * self.connections


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows a second on both sides."""

    load: Load
    python: float
    pgbench: float

    @property
    def share(self) -> float:
        return self.python / self.pgbench

    def row(self) -> Row:
        return {
            "function": self.load.work.name,
            "batch": self.load.batch,
            "connections": self.load.connections,
            "python_rows_s": round(self.python),
            "pgbench_rows_s": round(self.pgbench),
            "share": round(self.share, 2),
        }


@dataclass(frozen=True, slots=True)
class KernelEnv:
    """Both sides, on one database."""

    database: Database
    scripts: Path
    bases: count[int] = field(default_factory=lambda: count(FIRST_ID, 10**8))

    def measure(self, load: Load, rounds: int) -> Rates:
        """The median rates, after a few calls that are not counted."""
        for side in (self._by_python, self._by_pgbench):
            side(replace(load, calls=WARM_UP_CALLS))
        pairs = [(self._by_python(load), self._by_pgbench(load)) for _ in range(rounds)]
        return Rates(load, median(python for python, _ in pairs), median(pgbench for _, pgbench in pairs))

    def _by_python(self, load: Load) -> float:
        base = self._stock(load)
        return load.rows / seconds_of(self.database, load, base)

    def _by_pgbench(self, load: Load) -> float:
        variables = {"base": self._stock(load), "span": load.span, "batch": load.batch, "i": 0}
        rate = Pgbench(self.database).rate(
            self.scripts / load.script, connections=load.connections, calls=load.calls, variables=variables
        )
        return rate * load.batch

    def _stock(self, load: Load) -> int:
        """Insert the rows for one round; returns the first of their ids."""
        base = next(self.bases)
        if load.work.stock is not None:
            text = files("bench").joinpath("fixture_data", f"{load.work.stock}.sql").read_text()
            with self.database.connect_admin() as connection:
                connection.execute(text.encode(), {"first": base, "count": load.rows})
        return base


def seconds_of(database: Database, load: Load, base: int) -> float:
    """The seconds that all workers took together."""
    return asyncio.run(_run_python(database.url, load, base))


async def _run_python(url: str, load: Load, base: int) -> float:
    connections = [await _connect(url) for _ in range(load.connections)]
    try:
        begun = time.perf_counter()
        await asyncio.gather(
            *(_work(connection, load, base, worker) for worker, connection in enumerate(connections))
        )
        return time.perf_counter() - begun
    finally:
        for connection in connections:
            await connection.close()


async def _connect(url: str) -> Connection:
    # Prepared from the first call on, as in pgbench.
    return await AsyncPooledConnection.connect(url, autocommit=True, prepare_threshold=0)


async def _work(connection: Connection, load: Load, base: int, worker: int) -> None:
    first = base + worker * load.span
    for offset in range(0, load.span, load.batch):
        await load.step(connection, Turn(worker, first + offset, load.batch))


def run(*, quick: bool) -> Report:
    """Measure every hot function, single and in batches, and the whole life of a job."""
    length = QUICK if quick else WHOLE
    with (
        migrated_database() as database,
        as_file(files("bench").joinpath("scripts")) as scripts,
    ):
        facts = machine(**server_facts(database))
        env = KernelEnv(database, scripts)
        rates = [env.measure(load, length.rounds) for load in _loads(length)]
    return Report("kernel", quick, [measured.row() for measured in rates], goals(rates), facts)


def _loads(length: KernelLength) -> list[Load]:
    functions = [
        load
        for work in FUNCTIONS
        for load in (
            Load(work, 1, CONNECTIONS, length.single_calls),
            Load(work, BATCH, CONNECTIONS, length.batch_calls),
        )
        if load.batch == 1 or work.many is not None
    ]
    return [
        *functions,
        Load(LIFE, 1, CONNECTIONS, length.single_calls),
        Load(LIFE, BATCH, 1, length.batch_calls),
        Load(LIFE, BATCH, CONNECTIONS, length.batch_calls),
    ]


def goals(rates: Sequence[Rates]) -> list[Goal]:
    """Python's share of pgbench's rate for each batch, the gain of a batch, and the rate of job lives."""
    batches = [measured for measured in rates if measured.load.batch == BATCH]
    singles = {measured.load.work.name: measured for measured in rates if measured.load.batch == 1}
    shares = [
        Goal(f"{_title(measured)}, Python against pgbench", round(measured.share, 2), PYTHON_SHARE_MIN)
        for measured in batches
    ]
    gains = [
        Goal(
            f"{_title(measured)}, times the single rate",
            round(measured.python / singles[measured.load.work.name].python, 1),
            BATCH_GAIN_MIN,
        )
        for measured in batches
        if measured.load.connections == CONNECTIONS
    ]
    lives = max((rate for rate in batches if rate.load.work == LIFE), key=lambda rate: rate.load.connections)
    return [*shares, *gains, Goal("whole lives of jobs a second", round(lives.python), LIVES_PER_SECOND_MIN)]


def _title(measured: Rates) -> str:
    plural = "s" if measured.load.connections > 1 else ""
    return f"{measured.load.work.name} by {BATCH} on {measured.load.connections} connection{plural}"
