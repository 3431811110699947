"""How Fencepost's throughput holds with more workers, a long history, a long queue; and the pgbench limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import as_file, files
from statistics import median

from bench.jobs_env import Entrant
from bench.jobs_measurements import WARM_UP, rate, warm
from bench.pgbench import Pgbench
from bench.report import Goal, Row

SHARE_OF_PGBENCH_MIN = 0.5
SHARE_KEPT_MIN = 0.8
SHARE_BESIDE_OTHERS_MIN = 0.9
MANY_WORKERS = 2
BATCH = 500
"""The batch of a worker's claim and finish when enough jobs wait, and of one submission."""
PIECE = 1_000_000

# As a submission, a claim and a finish leave them, in the past and one after another.
FINISHED = """
with made as (
  insert into fencepost.job (job_id, queue, kind, priority, payload, tries_max, lease, submitted_at)
  select i, 'bench', 'empty', 1, '{}', 5, interval '60 s', clock_timestamp() - interval '1 hour'
  from generate_series(%(first)s::bigint, %(last)s::bigint) i
  returning job_id, queue, submitted_at
)
insert into fencepost.job_finished (job_id, state, final_status, queue, attempt, tries, owner, claimed_at,
                                    finished_at)
select m.job_id, 'finished', 'ok', m.queue, 1, 1, 'somebody', m.submitted_at, m.submitted_at from made m
"""
# Below every id that the sequence assigns.
FIRST_OLD_ID = -(10**12)


@dataclass(frozen=True, slots=True)
class JobsScale:
    """The sizes to measure."""

    round_seconds: float
    rounds: int
    finished: int
    short_queue: int
    waiting: int
    pgbench_calls: int
    workers: Sequence[int]


QUICK = JobsScale(0.5, 1, 50_000, 30_000, 60_000, 10, (1,))
WHOLE = JobsScale(2.0, 3, 10_000_000, 150_000, 1_000_000, 20, (1, 2, 4, 8))


@dataclass(frozen=True, slots=True)
class HeldRate:
    """Jobs a second, under each kind of load."""

    scale: JobsScale
    pgbench: float
    without_redis: float
    by_workers: Mapping[int, float]
    without_history: float
    after_history: float
    short_queue: float
    long_queue: float

    def rows(self) -> list[Row]:
        by_title = {
            f"pgbench, the same functions by {BATCH}": self.pgbench,
            "fencepost without Redis, workers: 1": self.without_redis,
            **{f"fencepost, workers: {workers}": rate for workers, rate in self.by_workers.items()},
            "fencepost without a history": self.without_history,
            f"fencepost after {self.scale.finished:,} finished": self.after_history,
            f"fencepost out of a short queue ({self.scale.short_queue:,})": self.short_queue,
            f"fencepost out of {self.scale.waiting:,} waiting": self.long_queue,
        }
        return [
            {"system": title, "truth": "PostgreSQL", "jobs/s": round(rate)}
            for title, rate in by_title.items()
        ]

    def goals(self) -> list[Goal]:
        return [
            Goal("share of pgbench", round(self.by_workers[1] / self.pgbench, 2), SHARE_OF_PGBENCH_MIN),
            Goal(
                # pgbench uses PostgreSQL alone, too.
                "share of pgbench, ours without Redis too",
                round(self.without_redis / self.pgbench, 2),
                SHARE_OF_PGBENCH_MIN,
            ),
            Goal(
                "share kept with the history",
                round(self.after_history / self.without_history, 2),
                SHARE_KEPT_MIN,
            ),
            Goal(
                "share kept with the long queue", round(self.long_queue / self.short_queue, 2), SHARE_KEPT_MIN
            ),
            *(
                Goal(
                    f"{workers} workers against one",
                    round(rate / self.by_workers[1], 2),
                    SHARE_BESIDE_OTHERS_MIN,
                )
                for workers, rate in self.by_workers.items()
                if workers > MANY_WORKERS
            ),
        ]


def rate_with(entrant: Entrant, workers: int, scale: JobsScale, guess: float) -> float:
    """Whole job lives a second with so many worker processes."""
    count = max(WARM_UP, round(guess * scale.round_seconds))
    with ExitStack() as stack:
        for number in range(workers):
            stack.enter_context(entrant.worker(f"W{number}"))
        warm(entrant, "empty")
        return rate(entrant, "empty", count)


def alternately(sides: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """The median of each side. They take turns, so that other load on this machine affects all of them."""
    turns = [[side() for side in sides] for _ in range(rounds)]
    return [median(rates) for rates in zip(*turns, strict=True)]


def drain_rate(entrant: Entrant, scale: JobsScale, waiting: int) -> float:
    """Jobs a second that one worker takes from a queue filled before; the first jobs do not count."""
    with entrant.database.connect_admin() as connection:
        [[left]] = connection.execute("select count(*) from fencepost.job_waiting").fetchall()
    entrant.call("fill", count=waiting - left, deadline_seconds=600)
    before = entrant.results.total()
    with entrant.worker("D") as worker:
        while entrant.results.total() - before < WARM_UP:
            worker.require_alive()
            time.sleep(0.01)
        began, counted = time.monotonic(), entrant.results.total()
        while time.monotonic() - began < scale.round_seconds:
            time.sleep(0.02)
        return (entrant.results.total() - counted) / (time.monotonic() - began)


def add_history(entrant: Entrant, count: int) -> None:
    """Insert so many finished jobs straight into the tables, with the statistics of an analyze."""
    with entrant.database.connect_admin() as connection:
        for done in range(0, count, PIECE):
            first = FIRST_OLD_ID + done
            last = FIRST_OLD_ID + min(count, done + PIECE) - 1
            connection.execute(FINISHED, {"first": first, "last": last})
        connection.execute("vacuum analyze fencepost.job, fencepost.job_finished")
        connection.execute("checkpoint")


def pgbench_rate(entrant: Entrant, scale: JobsScale, connections: int) -> float:
    """Whole job lives a second when pgbench calls the same functions with the same batches."""
    with as_file(files("bench").joinpath("scripts", "job_life_many.sql")) as script:
        rate = Pgbench(entrant.database).rate(
            script, connections=connections, calls=scale.pgbench_calls, variables={"batch": BATCH}
        )
    return rate * BATCH
