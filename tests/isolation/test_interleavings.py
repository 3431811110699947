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
    runs = stage.explore_all(REPERTOIRE[name])
    record_property("interleavings", len(runs))
    assert len(runs) == CENSUS[name]


def test_the_census_counts_every_scenario() -> None:
    assert set(CENSUS) == set(REPERTOIRE)


def test_more_than_three_thousand_interleavings_are_played() -> None:
    assert sum(CENSUS.values()) > 3000
