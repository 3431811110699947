"""Each call of each pair stopped at every place inside it, while the other call runs."""

from collections.abc import Callable

import pytest

from tests.isolation.env import IsolationEnv
from tests.isolation.inside import explore_inside
from tests.isolation.scenarios import pairs

PAIRS = pairs()


# A call of an order is many statements, so it has many places: the pairs of orders take minutes.
NAMES = [pytest.param(name, marks=pytest.mark.full) if name.startswith("orders:") else name for name in PAIRS]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_stopped_in_its_middle_changes_no_promise(
    name: str, pausing_env: IsolationEnv, record_property: Callable[[str, object], None]
) -> None:
    runs = explore_inside(pausing_env, PAIRS[name])
    record_property("interleavings", len(runs))
    assert runs, "neither call has a place to stop at"
