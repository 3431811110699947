"""Each call of each pair stopped at every place inside it, while the other call runs.

Each run stops every call, beside one or a few others; --full stops it beside all.
"""

from collections.abc import Callable

import pytest

from tests.isolation.env import IsolationEnv
from tests.isolation.inside import explore_inside
from tests.isolation.scenarios import pairs

PAIRS = pairs()


def stopping_every_call() -> set[str]:
    """Pairs in which every call is stopped. The pairs of orders take minutes, because a call of an order is
    many statements, with as many places."""
    stopped: set[str] = set()
    chosen: set[str] = set()
    for name, pair in PAIRS.items():
        calls = {pair.a.sql, pair.b.sql}
        if not name.startswith("orders:") and not calls <= stopped:
            stopped |= calls
            chosen.add(name)
    return chosen


ALWAYS = stopping_every_call()
NAMES = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.full) for name in PAIRS]


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_stopped_in_its_middle_changes_no_promise(
    name: str, pausing_env: IsolationEnv, record_property: Callable[[str, object], None]
) -> None:
    runs = explore_inside(pausing_env, PAIRS[name])
    record_property("interleavings", len(runs))
    assert runs, "neither call has a place to stop at"
