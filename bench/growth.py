"""bench-growth: how cost grows with workers, with history, with the size of payloads and with keys.

One dimension grows while everything else stays the same. Its sizes take turns, so that other load on this
machine affects all of them; a figure is the median. `cost` is the cost of a row relative to the first size.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import count

from bench.bench_server import another_database, migrated_database, server_facts
from bench.jobs_scale import alternately
from bench.kernel import FIRST_ID, Load, seconds_of
from bench.kernel_work import (
    BATCH,
    LEASE_SECONDS,
    OWNER,
    PAYLOAD,
    Connection,
    Step,
    Turn,
    Work,
    claim_many,
    held_lease,
    lives_with,
    outbox_deliver_many,
)
from bench.report import Goal, Report, Row, machine
from fencepost.embedded import Database
from fencepost.kernel import lease, outbox
from fencepost.kernel.drivers import run as run_call

SHARE_KEPT_MIN = 0.7
"""With a thousand times the keys, or the history, a row costs at most half as much again."""
PAYLOAD_KEPT_MIN = 0.2
"""With a hundred times the bytes, in payload and result, a job costs at most five times as much."""
WORKERS_GAIN_MIN = 1.2
"""On two cores, which the server shares with the workers."""
HEAVY_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes to measure."""

    rounds: int
    calls: int
    payload_bytes: Sequence[int]
    workers: Sequence[int]
    keys: Sequence[int]


QUICK = Scale(3, 4, (100, 1000, HEAVY_BYTES), (1, 2, 4), (1000, 100_000))
WHOLE = Scale(5, 8, (100, 1000, HEAVY_BYTES, 50_000), (1, 2, 4, 8), (1000, 100_000, 1_000_000))


@dataclass(frozen=True, slots=True)
class Growth:
    """Rows a second of one dimension, by its size."""

    what: str
    unit: str
    rates: Mapping[int, float]
    kept_min: float
    judged_at: int

    def rows(self) -> list[Row]:
        first = next(iter(self.rates.values()))
        return [
            {
                "what": f"fencepost, {self.what}: {size:,} {self.unit}",
                "rows_s": round(rate),
                "cost": round(first / rate, 2),
            }
            for size, rate in self.rates.items()
        ]

    def goal(self) -> Goal:
        first, judged = next(iter(self.rates.values())), self.rates[self.judged_at]
        name = f"{self.what}, rate at {self.judged_at:,} {self.unit} of that at {next(iter(self.rates)):,}"
        return Goal(name, round(judged / first, 2), self.kept_min)


@dataclass(frozen=True, slots=True)
class Field:
    """Runs the measurements, with ids that were not used before."""

    scale: Scale
    bases: count[int]

    def rate(self, database: Database, step: Step, *, connections: int = 1) -> float:
        load = Load(Work("growth", step, step), BATCH, connections, self.scale.calls)
        return load.rows / seconds_of(database, load, next(self.bases))

    def grow(
        self,
        what: str,
        unit: str,
        sides: Mapping[int, Callable[[], float]],
        *,
        kept_min: float,
        judged_at: int | None = None,
    ) -> Growth:
        for side in sides.values():
            side()
        rates = dict(zip(sides, alternately(list(sides.values()), self.scale.rounds), strict=True))
        return Growth(what, unit, rates, kept_min, judged_at or max(sides))


def run(*, quick: bool) -> Report:
    """Measure each dimension from its smallest size to its largest."""
    field = Field(QUICK if quick else WHOLE, count(FIRST_ID, 10**8))
    with migrated_database() as database:
        facts = machine(**server_facts(database))
        grown = [_payloads(field, database), _workers(field, database), *_keys(field, database)]
    rows = [row for growth in grown for row in growth.rows()]
    return Report("growth", quick, rows, [growth.goal() for growth in grown], facts)


def _payloads(field: Field, database: Database) -> Growth:
    sides = {
        size: partial(field.rate, database, lives_with({"text": _text(size)}))
        for size in field.scale.payload_bytes
    }
    return field.grow(
        "lives of jobs", "bytes of payload", sides, kept_min=PAYLOAD_KEPT_MIN, judged_at=HEAVY_BYTES
    )


def _text(size: int) -> str:
    """Text that does not compress."""
    return random.Random(size).randbytes(size // 2).hex()  # noqa: S311 - Repeatable, no secret.


def _workers(field: Field, database: Database) -> Growth:
    sides = {
        workers: partial(field.rate, database, lives_with(PAYLOAD), connections=workers)
        for workers in field.scale.workers
    }
    return field.grow("lives of jobs", "workers", sides, kept_min=WORKERS_GAIN_MIN, judged_at=4)


def _keys(field: Field, database: Database) -> list[Growth]:
    stocked = {size: _stocked(database, size) for size in field.scale.keys}

    def grow(what: str, unit: str, step_of: Callable[[int], Step]) -> Growth:
        sides = {size: partial(field.rate, found, step_of(size)) for size, found in stocked.items()}
        return field.grow(what, unit, sides, kept_min=SHARE_KEPT_MIN)

    return [
        grow("lives of jobs", "finished before", lambda _: lives_with(PAYLOAD)),
        grow("renewals of leases", "leases", _renewals_among),
        grow("claims of requests", "keys", lambda _: claim_many),
        grow("messages put and delivered", "keys that wait", _messages_among),
    ]


def _stocked(database: Database, size: int) -> Database:
    """A database with so many keys and jobs, and the statistics that autovacuum would have made."""
    stocked = another_database(database, f"keys_{size}")
    text = files("bench").joinpath("fixture_data", "many_keys.sql").read_text()
    with stocked.connect_admin() as connection:
        connection.execute(text.encode(), {"count": size})
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return stocked


def _renewals_among(leases: int) -> Step:
    def renew(connection: Connection, turn: Turn) -> Awaitable[object]:
        chance = random.Random(turn.first)  # noqa: S311 - Repeatable, no secret.
        held = [held_lease(number + 1) for number in chance.sample(range(leases), turn.batch)]
        return run_call(connection, lease.renew_many(held, OWNER, LEASE_SECONDS))

    return renew


def _messages_among(keys: int) -> Step:
    """As many are put as are delivered, so that all keys keep a waiting message."""

    async def pass_on(connection: Connection, turn: Turn) -> None:
        chosen = [f"key-{number % keys + 1}" for number in turn.ids]
        await run_call(connection, outbox.put_many("bench", [PAYLOAD] * turn.batch, keys=chosen))
        await outbox_deliver_many(connection, turn)

    return pass_on
