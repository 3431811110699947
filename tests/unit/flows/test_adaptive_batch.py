"""How many records a step gets in one turn."""

import pytest

from fencepost.flows._steps import SIZE_MAX, TURN_SECONDS, next_size


@pytest.mark.parametrize(
    ("size", "count", "turns", "next_one"),
    [
        (1, 1, 0.1, 2),
        (64, 64, 0.4, 128),
        (64, 64, 0.9, 64),
        (64, 64, 2.0, 32),
        (64, 64, 1000.0, 1),
        (1, 1, 1000.0, 1),
        # A few quick ones say nothing of many, and a few slow ones do.
        (64, 3, 0.1, 64),
        (64, 4, 2.0, 2),
        (SIZE_MAX, SIZE_MAX, 0.1, SIZE_MAX),
    ],
)
def test_the_next_turn_is_as_long_as_it_may_be(size: int, count: int, turns: float, next_one: int) -> None:
    assert next_size(size, count, turns * TURN_SECONDS) == next_one
