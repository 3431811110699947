"""The goals of bench-flows: a peer that is not there is no goal that was met."""

from bench.flows import TIMES, goals
from bench.report import Row

OURS: list[Row] = [
    {"system": "fencepost, keyed sum", "records/CPU s": 200_000},
    {"system": "fencepost, keyed sum, 4 key groups", "records/CPU s": 160_000},
]


def test_a_peer_that_was_not_measured_is_a_goal_that_is_not_met() -> None:
    rows: list[Row] = [*OURS, {"system": "bytewax 0.21.1", "note": "cannot be installed"}]

    found = {goal.name: goal.met for goal in goals(rows)}

    assert found.pop("keyed sum, records a CPU second")
    assert found.pop("4 key groups, times none")
    assert found == {f"times {peer}, which was not measured": False for peer in TIMES}


def test_a_peer_that_was_measured_is_compared() -> None:
    peers: list[Row] = [{"system": f"{peer} 1.0", "records/CPU s": 20_000} for peer in TIMES]
    rows = [*OURS, *peers]

    assert {goal.name: goal.measured for goal in goals(rows)[2:]} == {f"times {peer}": 10 for peer in TIMES}
    assert all(goal.met for goal in goals(rows))
