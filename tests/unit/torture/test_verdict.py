"""A run counts only if it was hard enough, and a violation always counts."""

from fencepost.testing import Breach
from fencepost_torture._effects import UNDECIDED, exactly_once, in_order
from fencepost_torture._plan import RunPlan, allowed_seconds
from fencepost_torture._system_environment import Account
from fencepost_torture._verdict import Floors, Hardness, judge

HARD = Hardness(10.0, {"jobs": 100, "leases": 50}, hits=10, ambiguous=5)
FLOORS = Floors()


def test_a_hard_run_without_a_breach_has_passed() -> None:
    assert judge([], HARD, FLOORS).verdict == "passed"


def test_an_easy_run_is_void_and_says_why() -> None:
    easy = Hardness(10.0, {"jobs": 100, "leases": 0}, hits=1, ambiguous=0)

    judgement = judge([], easy, FLOORS)

    assert judgement.verdict == "void"
    assert judgement.too_easy == [
        "leases made no effect",
        "1 faults that hit, at least 3 were needed",
        "0 ambiguous outcomes, at least 1 were needed",
    ]


def test_a_slow_run_is_void() -> None:
    slow = Hardness(10.0, {"jobs": 49}, hits=10, ambiguous=5)

    assert judge([], slow, FLOORS).too_easy == ["49 effects, at least 50 were needed"]


def test_a_breach_counts_however_easy_the_run_was() -> None:
    breaches = [("jobs", breach) for breach in exactly_once(["a", "b"], ["b", "b", "c"])]

    judgement = judge(breaches, Hardness(10.0, {"jobs": 0}, 0, 0), FLOORS)

    assert judgement.verdict == "violated"
    assert (judgement.lost, judgement.doubled, len(judgement.breaches)) == (1, 1, 3)


def test_a_search_that_gave_up_makes_a_run_void_and_hides_no_breach() -> None:
    undecided = ("leases", Breach(UNDECIDED, "printer-0", "gave up after 4 configurations"))
    broken = ("jobs", Breach("lost", "a", "was requested and never took effect"))

    assert judge([undecided], HARD, FLOORS).verdict == "void"
    assert judge([undecided], HARD, FLOORS).too_easy == [
        "leases: undecided: printer-0 gave up after 4 configurations"
    ]
    assert judge([undecided, broken], HARD, FLOORS).breaches == [broken]


def test_a_caller_that_did_nothing_has_not_all_the_time_in_the_world() -> None:
    plan = RunPlan(7, 30, ["jobs"], ["kill"], lease_seconds=2.0)

    assert allowed_seconds(plan, 30, [Account(1060, 1000), Account(60, 60)]) == 10 + 60 * 30 / 1000
    assert allowed_seconds(plan, 30, [Account(60, 1)]) == 10 + 30


def test_order_is_kept_for_each_key_alone() -> None:
    assert in_order("order", [("a", 1), ("b", 5), ("a", 2), ("b", 6), ("a", 2)]) == []
    assert in_order("order", [("a", 1), ("b", 5), ("a", 3), ("a", 2)]) == [
        Breach("order", "a", "2 came after 3")
    ]


def test_a_run_that_reaches_its_floors_to_the_last_is_hard_enough() -> None:
    floors = Floors(effects_per_second=5, hits_per_second=0.3, ambiguous_per_second=0.25)

    assert (
        judge([], Hardness(10.0, {"jobs": 49, "leases": 1}, hits=3, ambiguous=3), floors).verdict == "passed"
    )
    assert judge([], Hardness(10.0, {"jobs": 49, "leases": 0}, hits=2, ambiguous=2), floors).too_easy == [
        "leases made no effect",
        "49 effects, at least 50 were needed",
        "2 faults that hit, at least 3 were needed",
        "2 ambiguous outcomes, at least 3 were needed",
    ]


def test_what_was_lost_doubled_or_came_out_of_nowhere_is_named() -> None:
    assert exactly_once(["a", "b", "c"], ["c", "d", "d", "b", "b", "b"]) == [
        Breach("lost", "a", "was requested and never took effect"),
        Breach("doubled", "b", "took effect 3 times"),
        Breach("doubled", "d", "took effect 2 times"),
        Breach("unrequested", "d", "took effect, and was never requested"),
    ]
    assert exactly_once(["a"], ["a"]) == []


def test_a_number_that_goes_back_is_compared_with_the_highest_before_it() -> None:
    assert in_order("order", [("a", 5), ("a", 3), ("a", 4), ("a", 5)]) == [
        Breach("order", "a", "3 came after 5"),
        Breach("order", "a", "4 came after 5"),
    ]
