"""Sharing places among priorities."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fencepost.jobs._fetcher import WeightedShare
from fencepost.jobs.retry_policy import PRIORITY_SHARES


def test_a_worker_that_asks_for_one_place_at_a_time_starves_no_priority() -> None:
    turns = WeightedShare(PRIORITY_SHARES)
    given_to = Counter(turns.share(1).index(1) for _ in range(15))
    assert given_to == {0: 8, 1: 4, 2: 2, 3: 1}


def test_a_priority_is_not_served_in_one_lump() -> None:
    turns = WeightedShare([5, 1])
    order = [turns.share(1).index(1) for _ in range(12)]
    assert order.index(1) < 6
    assert order[6:].index(1) < 6


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.lists(st.integers(0, 500), max_size=20))
def test_all_places_are_given_and_every_caller_gets_its_share(weights: list[int], asked: list[int]) -> None:
    turns = WeightedShare(weights)
    given_to = [0] * len(weights)
    for places in asked:
        share = turns.share(places)
        assert sum(share) == places
        given_to = [a + b for a, b in zip(given_to, share, strict=True)]
    for weight, got in zip(weights, given_to, strict=True):
        assert abs(got - sum(asked) * weight / sum(weights)) < len(weights)


def test_without_any_caller_nothing_is_given() -> None:
    assert WeightedShare([]).share(10) == []
