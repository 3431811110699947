"""The measurements of one library: throughput, waiting time, the load on PostgreSQL, memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from bench.jobs_env import Entrant, ProcessPart
from bench.report import Cell

WARM_UP = 200


@dataclass(frozen=True, slots=True)
class JobsLength:
    """How long to measure; 0 skips a measurement."""

    round_seconds: float
    rounds: int
    pace_seconds: float
    counted_jobs: int
    waiting_jobs: int
    fill_seconds: float
    watch_seconds: float


QUICK = JobsLength(1.0, 1, 1.0, 0, 0, 0, 0)
WHOLE = JobsLength(2.0, 3, 5.0, 1_000, 100_000, 30, 2.0)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Whole job lives a second, from the first submission to the last finish; for each, the commits and the
    microseconds of CPU time: on a busy machine those tell more than the rate."""

    jobs_per_second: float
    commits_per_job: float
    worker_us: float = 0
    server_us: float = 0

    @property
    def processor_us(self) -> float:
        """Of worker and PostgreSQL together."""
        return self.worker_us + self.server_us


def throughput(entrant: Entrant, kind: str, length: JobsLength) -> Throughput:
    """The median over some rounds, with one worker; a short first round determines the jobs in a round."""
    with entrant.worker(kind=kind) as worker:
        warm(entrant, kind)
        guess = rate(entrant, kind, WARM_UP)
        # A short round underrates a library that works in batches: measure again with more jobs.
        guess = max(guess, rate(entrant, kind, round(guess * length.round_seconds / 4) + 1))
        count = max(WARM_UP, round(guess * length.round_seconds))
        before, worked, served = entrant.commits(), worker.cpu_seconds(), entrant.server_seconds()
        rates = [rate(entrant, kind, count) for _ in range(length.rounds)]
        worked, served = worker.cpu_seconds() - worked, entrant.server_seconds() - served
        commits = entrant.commits() - before
    done = count * length.rounds
    return Throughput(median(rates), commits / done, worked / done * 1e6, served / done * 1e6)


def by_turns(sides: Sequence[tuple[Entrant, str]], length: JobsLength) -> list[Throughput]:
    """The same for several libraries and kinds of jobs, in alternating rounds, each with a worker of its own.

    The load of a shared machine changes from minute to minute: so every library gets a part of each. No
    library always follows the same other one, and none works while the server vacuums after another: each
    finds its own database vacuumed, however many jobs it has done there.
    """
    single = replace(length, rounds=1)
    turns: list[list[Throughput]] = [[] for _ in sides]
    for first in range(length.rounds):
        for place in range(len(sides)):
            which = (first + place) % len(sides)
            entrant, kind = sides[which]
            entrant.clear_up()
            turns[which].append(throughput(entrant, kind, single))
    return [
        Throughput(
            median(turn.jobs_per_second for turn in own),
            median(turn.commits_per_job for turn in own),
            median(turn.worker_us for turn in own),
            median(turn.server_us for turn in own),
        )
        for own in turns
    ]


def warm(entrant: Entrant, kind: str) -> None:
    """Wait until the worker is up and has done some jobs."""
    entrant.call("load", kind=kind, count=WARM_UP)


def rate(entrant: Entrant, kind: str, count: int) -> float:
    answer = entrant.call("load", kind=kind, count=count)
    return count / float(answer["seconds"])


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds from the submission to the start, at a steady rate."""

    p50: float
    p99: float


def waits(entrant: Entrant, length: JobsLength) -> Waits:
    with entrant.worker():
        warm(entrant, "empty")
        answer = entrant.call("pace", seconds=length.pace_seconds)
    return read_waits(answer["waits"])


def read_waits(seconds: Sequence[float]) -> Waits:
    hundredths = quantiles(seconds, n=100, method="inclusive")
    return Waits(hundredths[49] * 1000, hundredths[98] * 1000)


def statements_per_job(entrant: Entrant, length: JobsLength) -> float:
    """From the server's log, in a run of its own: writing it costs more than most statements."""
    with entrant.statements_logged() as log, entrant.worker():
        warm(entrant, "empty")
        log.skip()
        entrant.call("load", kind="empty", count=length.counted_jobs)
        return log.count() / length.counted_jobs


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The peak memory of a worker while it works on a backlog."""

    megabytes: float
    waiting: int


def memory(entrant: Entrant, length: JobsLength) -> MemoryUse:
    answer = entrant.call("fill", count=length.waiting_jobs, deadline_seconds=length.fill_seconds)
    before = entrant.results.total()
    with entrant.worker() as worker:
        deadline = time.monotonic() + 60
        while entrant.results.total() == before:
            worker.require_alive()
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return MemoryUse(_most_bytes(worker, length.watch_seconds) / 2**20, int(answer["waiting"]))


def _most_bytes(worker: ProcessPart, seconds: float) -> int:
    until = time.monotonic() + seconds
    most = 0
    while time.monotonic() < until:
        worker.require_alive()
        most = max(most, worker.resident_bytes())
        time.sleep(0.1)
    return most


def cells(bare: Throughput, written: Throughput, waited: Waits) -> Mapping[str, Cell]:
    return {
        "jobs/s": round(bare.jobs_per_second),
        "with a write, jobs/s": round(written.jobs_per_second),
        "p50 ms": round(waited.p50, 1),
        "p99 ms": round(waited.p99, 1),
        "worker CPU, µs/job": round(bare.worker_us),
        "PostgreSQL CPU, µs/job": round(bare.server_us),
        "commits/job": round(bare.commits_per_job, 2),
        "with a write, worker CPU, µs/job": round(written.worker_us),
        "with a write, PostgreSQL CPU, µs/job": round(written.server_us),
        "with a write, commits/job": round(written.commits_per_job, 2),
    }
