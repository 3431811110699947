"""Frontiers and windows as values: what is written comes back, and a sender begins where a receiver lacks."""

import pytest

from fencepost.flows.errors import GraphRefused
from fencepost.flows.frontier import BEGINNING, Frontier, Mark, least_mark
from fencepost.flows.merge import TimeMerge
from fencepost.flows.windows import Session, Sliding


def test_a_frontier_comes_back_as_it_was_written() -> None:
    frontier = Frontier(a=Mark("7-1", 3.5, ended=True, count=2), b=Mark(9, float("inf")))

    again = Frontier.from_json(frontier.as_json())

    assert again.of("a") == frontier.of("a")
    assert again.of("b") == Mark(9, None), "JSON knows no infinity"
    assert again.of("somebody else") == BEGINNING
    assert again.reached == {"a": "7-1", "b": 9}
    assert Frontier.from_json(None) == {}


def test_a_sender_begins_where_the_last_of_its_receivers_is() -> None:
    ahead, behind = Mark("10-0", 5.0, ended=True, count=3), Mark("9-11", 4.0, ended=True, count=2)

    assert least_mark([ahead, behind]) == behind
    assert least_mark([ahead, Mark("9-11", 4.0, count=2)]).ended is False, "one does not know that it ended"
    assert least_mark([ahead, BEGINNING]) == BEGINNING
    assert least_mark([]) == BEGINNING


def test_a_window_that_holds_nothing_is_refused() -> None:
    with pytest.raises(GraphRefused, match="gap_seconds is 0; it must be more than 0"):
        Session(0)
    with pytest.raises(GraphRefused, match="leaves records in no window"):
        Sliding(10, 11)


def test_a_merge_says_how_many_wait() -> None:
    assert len(TimeMerge()) == 0
