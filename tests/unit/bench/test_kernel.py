"""The goals of the kernel benchmark follow from the rates."""

from importlib.resources import files

from bench.kernel import CONNECTIONS, Load, Rates, goals
from bench.kernel_work import BATCH, FUNCTIONS, LIFE, Work


def rates(work: Work, batch: int, *, python: float, pgbench: float, connections: int = CONNECTIONS) -> Rates:
    return Rates(Load(work, batch, connections, calls=1), python, pgbench)


def test_a_batch_is_held_against_pgbench_and_against_the_single_call() -> None:
    claim = FUNCTIONS[0]

    found = goals(
        [
            rates(claim, 1, python=100, pgbench=200),
            rates(claim, BATCH, python=900, pgbench=1000),
            rates(LIFE, 1, python=100, pgbench=100),
            rates(LIFE, BATCH, python=5_000, pgbench=10_000, connections=1),
            rates(LIFE, BATCH, python=20_000, pgbench=20_000),
        ]
    )

    assert [(goal.name, goal.measured, goal.met) for goal in found] == [
        ("claim by 100 on 4 connections, Python against pgbench", 0.9, True),
        ("job_life by 100 on 1 connection, Python against pgbench", 0.5, False),
        ("job_life by 100 on 4 connections, Python against pgbench", 1.0, True),
        ("claim by 100 on 4 connections, times the single rate", 9.0, False),
        ("job_life by 100 on 4 connections, times the single rate", 200.0, True),
        ("whole lives of jobs a second", 20_000, True),
    ]


def test_every_form_of_every_work_has_its_script() -> None:
    for work in (*FUNCTIONS, LIFE):
        for batch in (1, BATCH) if work.many is not None else (1,):
            script = Load(work, batch, CONNECTIONS, calls=1).script
            assert files("bench").joinpath("scripts", script).is_file()
