"""Crash points: free without a watcher, exact with one."""

import timeit
from contextlib import suppress

import pytest

from fencepost.crashpoints import PlannedCrash, crash_point, ordered, watching
from fencepost.testing import PointMissed, at_crash_point, crash_at

NANOSECONDS_MAX = 2_000


def test_an_unwatched_point_does_nothing() -> None:
    crash_point("jobs.after_claim")


def test_an_unwatched_point_costs_nearly_nothing() -> None:
    rounds = 20_000
    best = min(timeit.repeat(lambda: crash_point("jobs.after_claim"), number=rounds, repeat=5))
    assert best / rounds * 1e9 < NANOSECONDS_MAX


def test_the_crash_comes_at_the_hit_that_was_asked_for() -> None:
    turns: list[int] = []

    def loop() -> None:
        for turn in range(10):
            turns.append(turn)
            crash_point("loop.turn")

    with pytest.raises(PlannedCrash), crash_at("loop.turn", nth=3):
        loop()
    assert turns == [0, 1, 2]


def test_no_broad_except_survives_a_crash() -> None:
    def careless() -> None:
        with suppress(Exception):
            crash_point("loop.turn")

    with pytest.raises(PlannedCrash), crash_at("loop.turn"):
        careless()


def test_another_name_does_not_crash() -> None:
    with pytest.raises(PointMissed), crash_at("loop.turn"):
        crash_point("loop.end")


def test_a_point_that_was_never_reached_is_no_success() -> None:
    with (
        pytest.raises(PointMissed, match=r"loop\.turn was not reached 2 times"),
        crash_at("loop.turn", nth=2),
    ):
        crash_point("loop.turn")


def test_the_test_may_do_anything_at_the_point() -> None:
    seen: list[str] = []
    with at_crash_point("jobs.after_claim", lambda: seen.append("taken over")):
        seen.append("claimed")
        crash_point("jobs.after_claim")
        seen.append("finished")
    assert seen == ["claimed", "taken over", "finished"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_watcher_is_removed_after_its_block(fails: bool) -> None:
    reached: list[str] = []
    with suppress(PlannedCrash), watching(reached.append):
        crash_point("in.block")
        if fails:
            raise PlannedCrash
    crash_point("after.block")
    assert reached == ["in.block"]


def test_an_action_that_was_not_reached_in_its_block_does_not_happen_after_it() -> None:
    seen: list[str] = []
    with pytest.raises(PointMissed), at_crash_point("loop.turn", lambda: seen.append("acted"), nth=2):
        crash_point("loop.turn")
    crash_point("loop.turn")
    assert seen == []


@pytest.mark.parametrize(
    "order", ["jobs.after_claim", "jobs.after_claim:explode", "a.b:kill@0", ":kill", "a.b:kill@x"]
)
def test_an_order_that_cannot_be_read_is_refused_by_the_variable_s_name(order: str) -> None:
    with pytest.raises(ValueError, match="FENCEPOST_CRASH"):
        ordered({"FENCEPOST_CRASH": order})


def test_several_orders_stand_beside_each_other() -> None:
    first, second = ordered({"FENCEPOST_CRASH": "a.b:raise@2, c.d:raise"})
    first("a.b")
    with pytest.raises(PlannedCrash):
        first("a.b")
    with pytest.raises(PlannedCrash):
        second("c.d")


def test_without_an_order_no_caller_watches() -> None:
    assert ordered({}) == []
    assert ordered({"FENCEPOST_CRASH": ""}) == []
