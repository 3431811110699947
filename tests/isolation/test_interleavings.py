"""Every pair of transitions on the same row, and longer stories, in every interleaving there is."""

from collections.abc import Callable

import pytest

from tests.isolation.env import IsolationEnv
from tests.isolation.interleaving_counts import CENSUS
from tests.isolation.scenarios import repertoire

REPERTOIRE = repertoire()


@pytest.mark.parametrize("name", REPERTOIRE)
def test_every_interleaving_gives_the_promised_answers(
    name: str, stage: IsolationEnv, record_property: Callable[[str, object], None]
) -> None:
    # Counted by what was chosen: a search that plays one of them again in place of another has played fewer.
    played = {
        (place, tuple(choice.chosen for choice in run.choices))
        for place, scenario in enumerate(REPERTOIRE[name])
        for run in stage.explore(scenario)
    }
    record_property("interleavings", len(played))
    assert len(played) == CENSUS[name]


def test_the_census_counts_every_scenario() -> None:
    assert set(CENSUS) == set(REPERTOIRE)


def test_the_census_promises_more_than_three_thousand_interleavings() -> None:
    """That they are played, each once, is the test of each scenario above."""
    assert sum(CENSUS.values()) > 3000
