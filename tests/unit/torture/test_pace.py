"""How often each process gets a fault."""

from fencepost_torture._pace import RunPace

POINTS = {"jobs": ["a", "b", "c"], "flows": ["d"]}


def test_evenly_a_system_is_struck_as_often_as_it_has_crash_points() -> None:
    assert RunPace(evenly=True).shares_of(POINTS) == {"jobs": 3, "flows": 1}


def test_what_a_goal_says_of_a_system_holds() -> None:
    assert RunPace(evenly=True, shares={"flows": 9, "leases": 7}).shares_of(POINTS) == {
        "jobs": 3,
        "flows": 9,
        "leases": 7,
    }


def test_otherwise_no_caller_is_struck_more_often_for_its_points() -> None:
    assert RunPace(shares={"leases": 7}).shares_of(POINTS) == {"leases": 7}
