"""What bench-jobs concludes from what it measured."""

import pytest

from bench.jobs import ALONE_BESIDE, BESIDE, JOBS, ZOMBIES_FINISH, goals, merged, report_of
from bench.jobs_measurements import read_waits
from bench.jobs_scale import QUICK, HeldRate
from bench.jobs_writes import BLOCK, CPU, IN_CHUNKS, LONG, PGBENCH, SHORT, WITH
from bench.jobs_writes import goals as goals_of_writes
from bench.jobs_zombie import ZombieEnding, verdict
from bench.report import Cell, Goal, Row

REFUSED = ZombieEnding(accepted=False, effects=1, note="")
ACCEPTED = ZombieEnding(accepted=True, effects=2, note="")


def row(truth: str, rate: float | None, *, beside: float = 6000, **more: Cell) -> Row:
    rates = {} if rate is None else {JOBS: rate, BESIDE: beside, ALONE_BESIDE: beside * 2}
    return {"system": "x", "truth": truth, **rates, **more}


def test_we_are_held_against_the_best_of_each_kind() -> None:
    ours = row("PostgreSQL", 6000, **{"p50 ms": 2.5, "p99 ms": 10.5, "worker MB": 44})

    found = goals(ours, [row("PostgreSQL", 1000), row("PostgreSQL", 2500), row("Redis", 8000)])

    assert [(goal.name, goal.measured, goal.met) for goal in found] == [
        ("p50 from submit to start, ms", 2.5, True),
        ("p99 from submit to start, ms", 10.5, False),
        ("a worker's memory, MB", 44, True),
        ("times the best whose truth is PostgreSQL", 2.4, False),
        ("the same, ours without Redis too", 4.8, True),
        ("times the best that has only Redis", 0.75, False),
    ]


def test_a_rival_is_held_against_what_we_did_beside_it_and_not_an_hour_before() -> None:
    ours = row("PostgreSQL", 6000, **{"p50 ms": 1.0, "p99 ms": 2.0})

    found = goals(ours, [row("PostgreSQL", 100, beside=200), row("PostgreSQL", 3000, beside=9000)])

    assert [goal.measured for goal in found[2:]] == [2, 4]


def test_a_redis_is_compared_as_it_is_run_also_when_it_is_faster_than_a_durable_one() -> None:
    ours = row("PostgreSQL", 6000, **{"p50 ms": 1.0, "p99 ms": 2.0})

    found = goals(ours, [row("Redis", 7000, **{"durable Redis, jobs/s": 100})])

    assert not found[-1].met


def test_a_peer_that_did_not_run_is_no_rival() -> None:
    ours = row("PostgreSQL", 6000, **{"p50 ms": 1.0, "p99 ms": 2.0})

    found = goals(ours, [row("PostgreSQL", None, note="cannot be installed"), row("PostgreSQL", 3000)])

    assert [goal.measured for goal in found] == [1.0, 2.0, 2.0, 4.0]


def test_no_caller_to_compare_with_is_no_victory() -> None:
    assert len(goals(row("PostgreSQL", 6000, **{"p50 ms": 1.0, "p99 ms": 2.0}), [])) == 2


@pytest.mark.parametrize(
    ("during", "after", "said"),
    [
        (REFUSED, REFUSED, "refused"),
        (ACCEPTED, REFUSED, "accepted while another runs it"),
        (REFUSED, ACCEPTED, "accepted after another finished"),
        (ACCEPTED, ACCEPTED, "accepted"),
    ],
)
def test_a_zombie_is_refused_only_if_no_scene_accepts_it(
    during: ZombieEnding, after: ZombieEnding, said: str
) -> None:
    assert verdict(during, after) == said


def test_waiting_times_are_told_in_milliseconds_by_their_hundredths() -> None:
    waits = read_waits([n / 1000 for n in range(101)])

    assert waits.p50 == pytest.approx(50)
    assert waits.p99 == pytest.approx(99)


def test_what_is_kept_is_held_against_the_same_without_the_strain() -> None:
    held = HeldRate(QUICK, 1000, 450, {1: 500, 2: 800, 4: 900}, 520, 390, short_queue=600, long_queue=540)

    assert [(goal.name, goal.measured, goal.met) for goal in held.goals()] == [
        ("share of pgbench", 0.5, True),
        ("share of pgbench, ours without Redis too", 0.45, False),
        ("share kept with the history", 0.75, False),
        ("share kept with the long queue", 0.9, True),
        ("4 workers against one", 1.8, True),
    ]
    assert [r[JOBS] for r in held.rows()] == [1000, 450, 500, 800, 900, 520, 390, 600, 540]


def test_the_ways_to_write_a_row_are_held_against_what_was_measured_beside_them() -> None:
    single = {BLOCK: 600, WITH: 2500, IN_CHUNKS: 14_000, PGBENCH: 2000}
    rows: list[Row] = [{"system": SHORT, JOBS: 9000}, {"system": LONG, JOBS: 1500}]
    rows += [{"system": title, "with a write, jobs/s": rate} for title, rate in single.items()]
    beside: Row = {"system": "x 1 beside these", "with a write, jobs/s": 1000}

    assert [(goal.measured, goal.met) for goal in goals_of_writes(rows, "x 1")] == [
        (1.25, True),
        (0.3, False),
        (6.0, False),
    ]
    assert [(goal.measured, goal.met) for goal in goals_of_writes([*rows, beside], "x 1")][:2] == [
        (2.5, True),
        (14.0, False),
    ]


def test_the_ways_to_write_a_row_are_compared_by_their_processor_time_too() -> None:
    worker, server = CPU
    single = {BLOCK: (250, 350), WITH: (80, 140), IN_CHUNKS: (10, 10), "x 1 beside these": (250, 90)}
    rows: list[Row] = [
        {"system": title, "with a write, jobs/s": 1000, worker: ours, server: its}
        for title, (ours, its) in single.items()
    ]
    rows += [{"system": PGBENCH, "with a write, jobs/s": 2000}]
    rows += [{"system": SHORT, JOBS: 9000}, {"system": LONG, JOBS: 1500}]

    found = {goal.name: goal.measured for goal in goals_of_writes(rows, "x 1")}

    assert found["a row in the block of finish(): CPU time of x 1, times ours"] == 0.57
    assert found["a row by finish_with(): CPU time of x 1, times ours"] == 1.55
    assert found["chunks of 100: CPU time of x 1, times ours"] == 17


def test_a_part_replaces_its_rows_and_keeps_the_others_in_the_order_of_the_tables() -> None:
    before: list[Row] = [
        {"system": "fencepost", JOBS: 10, ZOMBIES_FINISH: "refused"},
        {"system": "pgqueuer 1.6.0", JOBS: 3},
        {"system": "fencepost, workers: 1", JOBS: 9},
    ]

    rows = merged(before, [{"system": "fencepost", JOBS: 12}, {"system": "procrastinate 3.10.0", JOBS: 1}])

    assert rows == [
        {"system": "fencepost", JOBS: 12, ZOMBIES_FINISH: "refused"},
        {"system": "procrastinate 3.10.0", JOBS: 1},
        {"system": "pgqueuer 1.6.0", JOBS: 3},
        {"system": "fencepost, workers: 1", JOBS: 9},
    ]


def test_a_newer_zombie_replaces_an_older_one() -> None:
    before: list[Row] = [{"system": "fencepost", JOBS: 10, ZOMBIES_FINISH: "accepted"}]

    [row] = merged(before, [{"system": "fencepost", JOBS: 10, ZOMBIES_FINISH: "refused"}])

    assert row[ZOMBIES_FINISH] == "refused"


def test_the_goals_beside_peers_are_those_of_all_parts() -> None:
    ours: Row = {"system": "fencepost", "truth": "PostgreSQL", JOBS: 10, "p50 ms": 2.0, "p99 ms": 9.0}
    peer: Row = {"system": "pgqueuer 1.6.0", "truth": "PostgreSQL", JOBS: 3, BESIDE: 12, ALONE_BESIDE: 9}
    stale = Goal("times the best whose truth is PostgreSQL", 1, 3)
    kept = Goal("share of pgbench", 0.7, 0.5)

    report = report_of([ours, peer], [stale, kept], {}, quick=False)

    assert {goal.name: goal.measured for goal in report.goals} == {
        "share of pgbench": 0.7,
        "p50 from submit to start, ms": 2.0,
        "p99 from submit to start, ms": 9.0,
        "times the best whose truth is PostgreSQL": 4,
        "the same, ours without Redis too": 3,
    }
