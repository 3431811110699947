"""Whom an order to crash is given to, where every crash point is to be hit often."""

from types import SimpleNamespace
from typing import Any, cast

from fencepost_torture._environment import Environment
from fencepost_torture._faults import AHEAD_MAX, FaultInjector
from fencepost_torture._process_pool import ProcessPool, SystemProcess
from fencepost_torture._schedule import Fault
from fencepost_torture._system_environment import ProcessTask
from fencepost_torture._tally import Tally

POINTS = {"jobs": ["a", "b", "c"], "flows": ["d"]}


class Listening:
    """A pool of one process for each system, that notes its orders."""

    def __init__(self) -> None:
        victim = SystemProcess(1, cast("ProcessTask", None))
        self.places = dict.fromkeys([("jobs", 0), ("flows", 0)], victim)
        self.ordered: list[str] = []

    def order(self, _victim: object, point: str, *_how: object) -> None:
        self.ordered.append(point)


def ordered(tally: Tally, system: str, *, evenly: bool = True) -> list[str]:
    process_pool = Listening()
    env = SimpleNamespace(lease_seconds=1.0)
    ground = cast("Environment", SimpleNamespace(envs={"jobs": env, "flows": env}))
    faults = FaultInjector(
        ground, cast("ProcessPool", cast("Any", process_pool)), tally, POINTS if evenly else None
    )
    faults.strike(Fault(1, 0.1, "crash", system, 0, POINTS[system][0], 1, 1.5, at_redis=False))
    faults.give_orders()
    return process_pool.ordered


def test_a_system_whose_points_were_hit_more_than_all_leaves_the_machine_to_the_slow_ones() -> None:
    tally = Tally()
    for _ in range(round(AHEAD_MAX) * 4):
        tally.count("crash", "d")
    assert ordered(tally, "flows") == []
    assert ordered(tally, "jobs") == ["a"]


def test_where_no_caller_counts_the_points_every_caller_gets_its_order() -> None:
    tally = Tally()
    for _ in range(round(AHEAD_MAX) * 4):
        tally.count("crash", "d")
    assert ordered(tally, "flows", evenly=False) == ["d"]
