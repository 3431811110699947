"""Frontiers and windows as values: what is written comes back, and a sender begins where a receiver lacks."""

import pytest

from fencepost.flows._errors import GraphRefused, GuaranteeNotMet
from fencepost.flows._frontier import BEGINNING, Frontier, Mark, least_mark
from fencepost.flows._guarantee import Guarantee, Promise, require
from fencepost.flows._merge import TimeMerge
from fencepost.flows._windows import Session, Sliding


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


def test_what_is_infinite_or_unknown_is_written_as_unknown() -> None:
    marks = Frontier(a=Mark(1, float("-inf")), b=Mark(2, 0.0), c=Mark(3, None, count=4))
    assert marks.as_json() == {
        "a": {"at": 1, "watermark": None, "ended": False, "count": 0},
        "b": {"at": 2, "watermark": 0.0, "ended": False, "count": 0},
        "c": {"at": 3, "watermark": None, "ended": False, "count": 4},
    }


def test_a_process_that_ended_and_did_nothing_has_still_ended() -> None:
    assert least_mark([Mark(ended=True), Mark(ended=True)]) == Mark(ended=True)
    assert least_mark([Mark(ended=True), Mark()]) == BEGINNING
    assert least_mark([Mark(0, 1.0), Mark(5, 0.5)]) == Mark(0, 1.0)
    assert least_mark([Mark(5, 0.5), Mark(None, 4.0, count=2)]) == BEGINNING, "who is nowhere begins anew"


def test_a_guarantee_is_requested_by_name_and_kept_by_a_sink_that_promises_as_much() -> None:
    assert Guarantee.named("exactly_once") is Guarantee.EXACTLY_ONCE
    with pytest.raises(
        GuaranteeNotMet, match="'twice' is no guarantee; there are at_most_once, at_least_once"
    ):
        Guarantee.named("twice")
    keeps, breaks = (
        Promise(Guarantee.AT_LEAST_ONCE, "so"),
        Promise(Guarantee.AT_MOST_ONCE, "it forgets", ["x"]),
    )
    require(Guarantee.AT_LEAST_ONCE, [("good", keeps)])
    with pytest.raises(GuaranteeNotMet) as caught:
        require(Guarantee.AT_LEAST_ONCE, [("good", keeps), ("bad", breaks)])
    assert str(caught.value) == (
        "at-least-once was asked, and bad is at-most-once: it forgets. Instead: x; or ask for at_most_once."
    )
