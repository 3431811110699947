"""Every pair of transitions on the same row, and longer stories, in every interleaving there is."""

from collections.abc import Callable

import pytest

from tests.isolation.env import IsolationEnv
from tests.isolation.interleaving_counts import COUNTS
from tests.isolation.scenarios import scenarios

SCENARIOS = scenarios()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_interleaving_gives_the_promised_answers(
    name: str, env: IsolationEnv, record_property: Callable[[str, object], None]
) -> None:
    # Counted by what was chosen: a search that plays one of them again in place of another has played fewer.
    played = {
        (place, tuple(choice.chosen for choice in run.choices))
        for place, scenario in enumerate(SCENARIOS[name])
        for run in env.explore(scenario)
    }
    record_property("interleavings", len(played))
    assert len(played) == COUNTS[name]


def test_the_counts_have_every_scenario() -> None:
    assert set(COUNTS) == set(SCENARIOS)


def test_more_than_three_thousand_interleavings_are_promised() -> None:
    """That they are played, each once, is the test of each scenario above."""
    assert sum(COUNTS.values()) > 3000
