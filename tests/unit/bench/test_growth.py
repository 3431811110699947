"""What growth says of rates that were measured."""

from bench.growth import Growth


def test_cost_is_told_in_times_of_the_first_and_the_goal_where_it_is_judged() -> None:
    growth = Growth("lives", "bytes", {100: 1000.0, 1000: 800.0, 10_000: 250.0}, 0.5, 1000)

    assert list(growth.rows()) == [
        {"what": "fencepost, lives: 100 bytes", "rows_s": 1000, "cost": 1.0},
        {"what": "fencepost, lives: 1,000 bytes", "rows_s": 800, "cost": 1.25},
        {"what": "fencepost, lives: 10,000 bytes", "rows_s": 250, "cost": 4.0},
    ]
    goal = growth.goal()
    assert (goal.name, goal.measured, goal.met) == ("lives, rate at 1,000 bytes of that at 100", 0.8, True)
