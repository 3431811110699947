"""bench-jobs: the whole life of a job, in Fencepost and in the libraries that a team would use instead.

Submit, dispatch, claim, an empty handler, the finish, the acknowledgement: on one PostgreSQL with durable
commits and one Valkey, one library after another, each in an environment of its own. What is measured, and
the settings of each, are in docs/explanation/jobs-performance.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.console import Console

from bench import jobs_measurements as contest
from bench import jobs_scale as scale
from bench import jobs_writes as writes
from bench import jobs_zombie as zombie
from bench.bench_server import server_facts
from bench.jobs_env import Entrant, Servers, servers
from bench.jobs_peers import (
    ALONE,
    OURSELVES,
    STRANGERS,
    CannotTakePart,
    Environment,
    Peer,
    ready_ones,
)
from bench.report import Cell, Goal, Report, Row, machine, read, write

TIMES_THE_BEST_MIN = 3
TIMES_REDIS_MIN = 1
P50_MS_MAX = 3
P99_MS_MAX = 10
WORKER_MB_MAX = 45
PGBENCH_CONNECTIONS = 4
EXHIBITS_AT_ONCE = 4
RIVAL = next(peer for peer in STRANGERS if peer.name == "pgqueuer")
"""The fastest peer whose truth is PostgreSQL: the ways to write a row take turns with it."""

JOBS = "jobs/s"
BESIDE = "fencepost beside it, jobs/s"
ALONE_BESIDE = "fencepost without Redis beside it, jobs/s"
ZOMBIES_FINISH = "the zombie's finish"
EFFECTS = "effects"
NOT_INVITED = "not measured in this run"
_console = Console(stderr=True)


OURS, WRITES, LOAD, ZOMBIES = "ours", "writes", "load", "zombies"
PARTS = (OURS, WRITES, LOAD, *(peer.name for peer in STRANGERS), ZOMBIES)
"""What can be measured by itself; each replaces its rows in the run that is kept."""


def run(*, quick: bool, parts: Sequence[str] = ()) -> Report:
    """Measure Fencepost, then every peer, then how Fencepost's own figures hold under load; or some parts."""
    return _run_parts(quick, parts) if parts else _run_whole(quick)


def _run_parts(quick: bool, parts: Sequence[str]) -> Report:
    """The parts, and of the run that is kept what they do not measure."""
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"There is no part {', '.join(sorted(unknown))}. Parts: {', '.join(PARTS)}.")
    rows: list[Row] = []
    met: list[Goal] = []
    before = read("jobs")
    if before is None or before.quick != quick:
        before = Report("jobs", quick, (), (), {})
    with servers() as pair:
        facts = machine(**server_facts(pair.database_for(OURSELVES)))
        if OURS in parts:
            rows += _ours(pair, quick=quick)
        if WRITES in parts:
            written = _writes(pair, quick=quick)
            rows += written
            met += writes.goals(written, RIVAL.title)
        if LOAD in parts:
            held = _held(pair, _guess(pair, quick=quick), quick=quick)
            rows += held.rows()
            met += held.goals()
        rows += [_stranger(pair, peer, quick=quick) for peer in STRANGERS if peer.name in parts]
    rows = merged(before.rows, rows)
    if ZOMBIES in parts:
        peers = [OURSELVES, ALONE, *STRANGERS]
        by_title = {str(row["system"]): row for row in rows}
        known = [(peer, by_title[peer.title]) for peer in peers if peer.title in by_title]
        rows = merged(rows, _with_exhibits([peer for peer, _ in known], [row for _, row in known]))
    return report_of(rows, [*before.goals, *met], facts, quick=quick)


def merged(before: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """The rows of both, each system once, as it was measured last, in the order of the tables.

    What a zombie's finish did is kept beside newer figures: it is no measurement of time.
    """
    by_title = {str(row["system"]): row for row in before}
    for row in rows:
        title = str(row["system"])
        kept = by_title.get(title, {})
        lasting = {name: kept[name] for name in (ZOMBIES_FINISH, EFFECTS) if name in kept and JOBS in row}
        by_title[title] = {**row, **lasting, **{name: row[name] for name in lasting if name in row}}
    return sorted(by_title.values(), key=lambda row: _place(str(row["system"])))


def _place(title: str) -> int:
    order = [
        *(peer.title for peer in (OURSELVES, ALONE, *STRANGERS)),
        *writes.KINDS,
        f"{RIVAL.title} beside these",
        writes.PGBENCH,
        *writes.PAYLOADS,
    ]
    return order.index(title) if title in order else len(order)


def report_of(rows: Sequence[Row], met: Sequence[Goal], facts: Row, *, quick: bool) -> Report:
    """The report of what was measured in parts: the goals beside peers are those of all its rows."""
    titles = {peer.title for peer in STRANGERS}
    ours = next((row for row in rows if row["system"] == OURSELVES.title), None)
    found = () if ours is None else goals(ours, [row for row in rows if row["system"] in titles])
    by_name = {goal.name: goal for goal in [*met, *found]}
    return Report("jobs", quick, rows, list(by_name.values()), {**facts, "measured": "in parts"})


def _guess(pair: Servers, *, quick: bool) -> float:
    """About how many jobs a second, to choose the length of a round."""
    with _in_env(pair, OURSELVES) as entrant:
        length = replace(_length(quick), rounds=1)
        return contest.throughput(entrant, "empty", length).jobs_per_second


def _ours(pair: Servers, *, quick: bool) -> list[Row]:
    """Fencepost with Redis and without, by turns."""
    return [
        _measured(pair, us, bare, quick=quick)
        for us, bare in zip((OURSELVES, ALONE), _bare(pair, [OURSELVES, ALONE], quick=quick), strict=True)
    ]


def _run_whole(quick: bool) -> Report:
    with servers() as pair:
        facts = machine(**server_facts(pair.database_for(OURSELVES)))
        ours, alone = _ours(pair, quick=quick)
        written = _writes(pair, quick=quick)
        held = _held(pair, float(ours[JOBS]), quick=quick)
        invited = _invited(quick=quick)
        strangers: list[Row] = []
        for peer in invited:
            strangers.append(_stranger(pair, peer, quick=quick))
            # It takes long: if it is interrupted, the report has what was measured so far.
            write(_report(ours, alone, strangers, written, held, facts, quick=quick))
    if not quick:
        ours, alone, *strangers = _with_exhibits([OURSELVES, ALONE, *invited], [ours, alone, *strangers])
    return _report(ours, alone, strangers, written, held, facts, quick=quick)


def _report(
    ours: Row,
    alone: Row,
    strangers: Sequence[Row],
    written: Sequence[Row],
    held: scale.HeldRate,
    facts: Row,
    *,
    quick: bool,
) -> Report:
    """With a row for every peer, including those that were not measured."""
    seen = {row["system"] for row in strangers}
    absent = [_absent(peer, NOT_INVITED) for peer in STRANGERS if peer.title not in seen]
    rows = [ours, alone, *strangers, *absent, *written, *held.rows()]
    met = [*goals(ours, strangers), *writes.goals(written, RIVAL.title), *held.goals()]
    return Report("jobs", quick, rows, met, facts)


def _invited(*, quick: bool) -> Sequence[Peer]:
    """All of them; in the quick form the fastest of them, if its environment exists already."""
    if not quick:
        return STRANGERS
    return ready_ones([RIVAL])


def _stranger(pair: Servers, peer: Peer, *, quick: bool) -> Row:
    """Its row, or the reason why there is none: no peer is skipped silently."""
    try:
        Environment(peer).make()
        beside, alone, bare = _bare(pair, [OURSELVES, ALONE, peer], quick=quick)
        row = _measured(pair, peer, bare, quick=quick)
    except (CannotTakePart, TimeoutError) as error:
        return _absent(peer, str(error))
    return {**row, BESIDE: round(beside.jobs_per_second), ALONE_BESIDE: round(alone.jobs_per_second)}


def _bare(pair: Servers, peers: Sequence[Peer], *, quick: bool) -> list[contest.Throughput]:
    """With the empty handler, in turns: the goals compare what was measured in the same minutes."""
    _tell(f"{peers[-1].title}: throughput")
    with ExitStack() as stack:
        entrants = [stack.enter_context(_in_env(pair, peer)) for peer in peers]
        return contest.by_turns([(entrant, "empty") for entrant in entrants], _length(quick))


def _writes(pair: Servers, *, quick: bool) -> list[Row]:
    """Each way to write a row for each job, the rival's and pgbench's, in turns; and long payloads."""
    _tell("fencepost: jobs with a row each")
    length = _length(quick)
    with ExitStack() as stack:
        sides = [(stack.enter_context(_in_env(pair, OURSELVES)), kind) for kind in writes.KINDS.values()]
        titles = list(writes.KINDS)
        if _is_there(RIVAL, quick=quick):
            sides.append((stack.enter_context(_in_env(pair, RIVAL)), "write"))
            titles.append(f"{RIVAL.title} beside these")
        found = contest.by_turns(sides, length)
        limit = median(writes.pgbench_rate(sides[0][0]) for _ in range(length.rounds))
    _tell("fencepost: long payloads")
    with ExitStack() as stack:
        sides = [(stack.enter_context(_in_env(pair, OURSELVES)), kind) for kind in writes.PAYLOADS.values()]
        long = contest.by_turns(sides, length)
    return [
        *(writes.row(title, one) for title, one in zip(titles, found, strict=True)),
        {"system": writes.PGBENCH, "truth": "PostgreSQL", "with a write, jobs/s": round(limit)},
        *(writes.bare_row(title, one) for title, one in zip(writes.PAYLOADS, long, strict=True)),
    ]


def _is_there(peer: Peer, *, quick: bool) -> bool:
    """Whether the peer can be run; the quick form makes no environment."""
    if not quick:
        try:
            Environment(peer).make()
        except CannotTakePart:
            return False
    return Environment(peer).ready


def _length(quick: bool) -> contest.JobsLength:
    return contest.QUICK if quick else contest.WHOLE


def _absent(peer: Peer, why: str) -> Row:
    return {"system": peer.title, "truth": peer.truth, "note": why}


def _measured(pair: Servers, peer: Peer, bare: contest.Throughput, *, quick: bool) -> Row:
    length = _length(quick)
    _tell(f"{peer.title}: {bare.jobs_per_second:,.0f} jobs/s; with a write, waiting time")
    row: dict[str, Cell] = {"system": peer.title, "truth": peer.truth}
    with _in_env(pair, peer) as entrant:
        written = contest.throughput(entrant, "write", length)
        row |= contest.cells(bare, written, contest.waits(entrant, length))
        if length.counted_jobs:
            row["statements/job"] = round(contest.statements_per_job(entrant, length), 2)
    if peer.truth == "Redis":
        row |= _durable(pair, peer, length)
    if length.waiting_jobs:
        _tell(f"{peer.title}: memory")
        with _in_env(pair, peer) as entrant:
            held = contest.memory(entrant, length)
        row |= {"worker MB": round(held.megabytes), "waiting": held.waiting}
    return row


def _durable(pair: Servers, peer: Peer, length: contest.JobsLength) -> Mapping[str, Cell]:
    """A store in Redis with every command on disk before its reply, as PostgreSQL has its commits."""
    pair.keep_redis_durable(True)
    try:
        with _in_env(pair, peer) as entrant:
            return {
                "durable Redis, jobs/s": round(contest.throughput(entrant, "empty", length).jobs_per_second)
            }
    finally:
        pair.keep_redis_durable(False)


def _with_exhibits(peers: Sequence[Peer], rows: Sequence[Row]) -> list[Row]:
    """Each row with what its peer does to a zombie. In parallel: nothing is timed, most is waiting."""
    with ThreadPoolExecutor(EXHIBITS_AT_ONCE) as threads:
        found = threads.map(_exhibit, peers, rows)
        return [{**row, **cells} for row, cells in zip(rows, found, strict=True)]


def _exhibit(peer: Peer, row: Row) -> Mapping[str, Cell]:
    """Whether the zombie's late finish is refused, in both scenarios, and how many effects the job had."""
    if JOBS not in row:
        return {}
    endings: dict[str, zombie.ZombieEnding] = {}
    for harness in ("during", "after"):
        _tell(f"{peer.title}: the zombie, {harness}")
        try:
            # Servers of its own: every peer empties its Redis.
            with servers() as pair, _in_env(pair, peer) as entrant:
                endings[harness] = zombie.play(entrant, harness)
        except zombie.NeverRanElsewhere:
            return {ZOMBIES_FINISH: "never ran elsewhere", EFFECTS: 1}
        except (CannotTakePart, TimeoutError) as error:
            return {ZOMBIES_FINISH: f"not seen: {error}"}
    return {
        ZOMBIES_FINISH: zombie.verdict(endings["during"], endings["after"]),
        EFFECTS: max(ending.effects for ending in endings.values()),
    }


def _held(pair: Servers, guess: float, *, quick: bool) -> scale.HeldRate:
    """Fencepost's own figures again: next to pgbench, with more workers, a long history, a long queue."""
    how_far = scale.QUICK if quick else scale.WHOLE

    def working(entrant: Entrant, workers: int = 1) -> Callable[[], float]:
        return lambda: scale.rate_with(entrant, workers, how_far, guess)

    with (
        _in_env(pair, OURSELVES) as plain,
        _in_env(pair, OURSELVES) as old,
        _in_env(pair, ALONE) as alone,
    ):
        _tell("fencepost: pgbench, workers")
        pgbench, without_redis, *by_workers = scale.alternately(
            [
                lambda: scale.pgbench_rate(plain, how_far, PGBENCH_CONNECTIONS),
                working(alone),
                *(working(plain, workers) for workers in how_far.workers),
            ],
            how_far.rounds,
        )
        _tell(f"fencepost: {how_far.finished:,} finished")
        scale.add_history(old, how_far.finished)
        histories = scale.alternately([working(plain), working(old)], how_far.rounds)
    with _in_env(pair, OURSELVES) as short, _in_env(pair, OURSELVES) as long:
        _tell(f"fencepost: {how_far.waiting:,} waiting")
        queues = scale.alternately(
            [
                lambda: scale.drain_rate(short, how_far, how_far.short_queue),
                lambda: scale.drain_rate(long, how_far, how_far.waiting),
            ],
            how_far.rounds,
        )
    return scale.HeldRate(
        how_far,
        pgbench,
        without_redis,
        dict(zip(how_far.workers, by_workers, strict=True)),
        *histories,
        *queues,
    )


@contextmanager
def _in_env(pair: Servers, peer: Peer) -> Generator[Entrant]:
    """A fresh database, an empty Redis and an empty results store."""
    with tempfile.TemporaryDirectory(prefix="fencepost-results-") as folder:
        database = pair.database_for(peer)
        entrant = Entrant(peer, database, pair.valkey.url, Path(folder))
        try:
            entrant.prepare()
            yield entrant
        finally:
            # At once: otherwise its vacuum and its checkpoint would run during the next measurement.
            database.drop()


def _tell(what: str) -> None:
    _console.print(what, highlight=False)


def goals(ours: Row, strangers: Sequence[Row]) -> list[Goal]:
    """The goals with the measured figures. Without a peer to compare with there is no goal."""
    found = [
        Goal("p50 from submit to start, ms", float(ours["p50 ms"]), P50_MS_MAX, at_most=True),
        Goal("p99 from submit to start, ms", float(ours["p99 ms"]), P99_MS_MAX, at_most=True),
    ]
    if "worker MB" in ours:
        found.append(Goal("a worker's memory, MB", float(ours["worker MB"]), WORKER_MB_MAX, at_most=True))
    rivals = (
        ("PostgreSQL", "times the best whose truth is PostgreSQL", BESIDE, TIMES_THE_BEST_MIN),
        ("PostgreSQL", "the same, ours without Redis too", ALONE_BESIDE, TIMES_THE_BEST_MIN),
        ("Redis", "times the best that has only Redis", BESIDE, TIMES_REDIS_MIN),
    )
    for truth, name, ours_beside, least in rivals:
        times = [
            float(row[ours_beside]) / float(row[JOBS])
            for row in strangers
            if row["truth"] == truth and JOBS in row
        ]
        if times:
            found.append(Goal(name, round(min(times), 2), least))
    return found
