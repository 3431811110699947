"""Connections that overtake each other: by turns that never come in order, and only while it is asked for."""

from itertools import pairwise

from fencepost.testing._fault_state import FaultState


def test_what_follows_is_never_held_up_as_long_and_often_less() -> None:
    fault_state = FaultState(reorder_seconds=0.5)
    held = [fault_state.held_up_seconds(turn) for turn in range(1, 101)]

    assert all(0 <= seconds < 0.5 for seconds in held)
    assert min(abs(one - other) for one, other in pairwise(held)) > 0.1
    assert sum(later < earlier for earlier, later in pairwise(held)) > 30


def test_without_faults_nothing_is_delayed() -> None:
    fault_state = FaultState(reorder_seconds=0.5)
    fault_state.clear()

    assert fault_state.held_up_seconds(7) == 0
