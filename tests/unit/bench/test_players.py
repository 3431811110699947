"""How the figures of the players' benchmark are made."""

import pytest

from fencepost.bench.players import Pace, goals, pace_of
from fencepost.bench.players_cleaning import Steadiness
from fencepost.bench.players_nodes import Done


def test_only_the_time_in_which_all_nodes_worked_counts() -> None:
    early = Done(0.0, 10.0, [(n / 10, 0.01) for n in range(100)], 1.0)
    late = Done(5.0, 15.0, [(5 + n / 10, 0.01) for n in range(100)], 1.0)
    pace = pace_of([early, late])
    assert pace.rate == pytest.approx(20, rel=0.05)
    assert pace.p99_ms == pytest.approx(10)


def test_nodes_that_hardly_met_are_counted_over_the_whole_time() -> None:
    first = Done(0.0, 1.0, [(0.5, 0.1), (1.0, 0.1)], 1.0)
    second = Done(1.5, 2.0, [(1.6, 0.1), (2.0, 0.1)], 1.0)
    assert pace_of([first, second]).rate == pytest.approx(2)


def test_goals_compare_with_the_plain_statements_and_with_the_bare_function() -> None:
    paces = {
        "player_mutation": Pace(1000),
        "player_execute": Pace(2000),
        "player_execute_claim": Pace(1800),
        "player_execute_response": Pace(1500),
        "pipeline without redis": Pace(800),
        "pgbench, one row for all": Pace(500),
        "one player, 200 at once: grants": Pace(400, refused=0.0),
        "one player, 200 at once: draws": Pace(100, refused=0.02),
    }
    steady = Steadiness(100, 400, [(float(n), 1000 if n < 30 else 1100) for n in range(40)])
    measured = {goal.name: (goal.measured, goal.met) for goal in goals(paces, steady)}
    assert measured == {
        "mutations through the pipeline, of pgbench's rate": (0.8, True),
        "grants to one player, of pgbench's rate on one row": (0.8, True),
        "grants to one player that are refused": (0.0, True),
        "draws of one player that are refused": (0.02, False),
        "what the claim costs": (0.1, True),
        "what the claim costs with a stored response": (0.25, False),
        "cleaning, times the insert rate": (4.0, True),
        "growth of the markers' table": (1.1, True),
    }
