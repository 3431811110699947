"""What is measured of one library: throughput, waiting time, the load on PostgreSQL, memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles

from fencepost.bench.jobs_arena import Contestant, Part
from fencepost.bench.report import Cell

WARM_UP = 200


@dataclass(frozen=True, slots=True)
class Length:
    """How long to measure; none of what is 0."""

    round_seconds: float
    rounds: int
    pace_seconds: float
    counted_jobs: int
    waiting_jobs: int
    fill_seconds: float
    watch_seconds: float


QUICK = Length(1.0, 1, 1.0, 0, 0, 0, 0)
WHOLE = Length(2.0, 3, 5.0, 1_000, 100_000, 30, 2.0)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Whole lives a second, from the first submission to the last finish, and commits for each."""

    jobs_per_second: float
    commits_per_job: float


def throughput(contestant: Contestant, kind: str, length: Length) -> Throughput:
    """The median over some rounds, with one worker; how many jobs make a round, a first short one tells."""
    with contestant.worker(kind=kind):
        warm(contestant, kind)
        guess = rate(contestant, kind, WARM_UP)
        # A short round underrates who works in batches: ask again with more.
        guess = max(guess, rate(contestant, kind, round(guess * length.round_seconds / 4) + 1))
        count = max(WARM_UP, round(guess * length.round_seconds))
        before = contestant.commits()
        rates = [rate(contestant, kind, count) for _ in range(length.rounds)]
        commits = contestant.commits() - before
    return Throughput(median(rates), commits / (count * length.rounds))


def by_turns(contestants: Sequence[Contestant], kind: str, length: Length) -> list[Throughput]:
    """The same of several, a round of one after a round of another, each with a worker of its own.

    A machine that others use is another machine a minute later: so everybody has a bit of each. Nobody always
    follows the same neighbour, and nobody works while the server clears up behind one: each finds its own
    database cleared up, however many jobs it has done there.
    """
    single = replace(length, rounds=1)
    turns: list[list[Throughput]] = [[] for _ in contestants]
    for first in range(length.rounds):
        for place in range(len(contestants)):
            which = (first + place) % len(contestants)
            contestants[which].clear_up()
            turns[which].append(throughput(contestants[which], kind, single))
    return [
        Throughput(median(turn.jobs_per_second for turn in own), median(turn.commits_per_job for turn in own))
        for own in turns
    ]


def warm(contestant: Contestant, kind: str) -> None:
    """Until the worker is up and has done some jobs."""
    contestant.call("load", kind=kind, count=WARM_UP)


def rate(contestant: Contestant, kind: str, count: int) -> float:
    answer = contestant.call("load", kind=kind, count=count)
    return count / float(answer["seconds"])


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds from the submission to the start, at a steady rate."""

    p50: float
    p99: float


def waits(contestant: Contestant, length: Length) -> Waits:
    with contestant.worker():
        warm(contestant, "empty")
        answer = contestant.call("pace", seconds=length.pace_seconds)
    return read_waits(answer["waits"])


def read_waits(seconds: Sequence[float]) -> Waits:
    hundredths = quantiles(seconds, n=100, method="inclusive")
    return Waits(hundredths[49] * 1000, hundredths[98] * 1000)


def statements_per_job(contestant: Contestant, length: Length) -> float:
    """By the server's log, in a run of its own: writing it costs more than most statements."""
    with contestant.statements_logged() as log, contestant.worker():
        warm(contestant, "empty")
        log.skip()
        contestant.call("load", kind="empty", count=length.counted_jobs)
        return log.count() / length.counted_jobs


@dataclass(frozen=True, slots=True)
class Memory:
    """Most that a worker held while it worked on a backlog."""

    megabytes: float
    waiting: int


def memory(contestant: Contestant, length: Length) -> Memory:
    answer = contestant.call("fill", count=length.waiting_jobs, deadline_seconds=length.fill_seconds)
    before = contestant.ledger.total()
    with contestant.worker() as worker:
        deadline = time.monotonic() + 60
        while contestant.ledger.total() == before:
            worker.require_alive()
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return Memory(_most_bytes(worker, length.watch_seconds) / 2**20, int(answer["waiting"]))


def _most_bytes(worker: Part, seconds: float) -> int:
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
        "commits/job": round(bare.commits_per_job, 2),
        "with a write, commits/job": round(written.commits_per_job, 2),
    }
