"""How the figures of the players' benchmark are made."""

import pytest

from bench.players import MeasuredPace, goals, pace_of
from bench.players_cleaning import Steadiness
from bench.players_nodes import NodeDone


def test_only_the_time_in_which_all_nodes_worked_counts() -> None:
    early = NodeDone(0.0, 10.0, [(n / 10, 0.01) for n in range(100)], 1.0)
    late = NodeDone(5.0, 15.0, [(5 + n / 10, 0.01) for n in range(100)], 1.0)
    pace = pace_of([early, late])
    assert pace.rate == pytest.approx(20, rel=0.05)
    assert pace.p99_ms == pytest.approx(10)


def test_nodes_that_hardly_met_are_counted_over_the_whole_time() -> None:
    first = NodeDone(0.0, 1.0, [(0.5, 0.1), (1.0, 0.1)], 1.0)
    second = NodeDone(1.5, 2.0, [(1.6, 0.1), (2.0, 0.1)], 1.0)
    assert pace_of([first, second]).rate == pytest.approx(2)


def test_goals_compare_with_the_plain_statements_and_with_the_bare_function() -> None:
    paces = {
        "player_mutation": MeasuredPace(1000),
        "player_execute": MeasuredPace(2000),
        "player_execute_claim": MeasuredPace(1800),
        "player_execute_response": MeasuredPace(1500),
        "pipeline without redis": MeasuredPace(800),
        "pgbench, one row for all": MeasuredPace(500),
        "one player, 200 at once: grants": MeasuredPace(400, refused=0.0),
        "one player, 200 at once: draws": MeasuredPace(100, refused=0.02),
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
        "growth of the keys' table": (1.1, True),
    }
