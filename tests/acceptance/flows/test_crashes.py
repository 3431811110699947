"""Workers killed and frozen in every window of a commit: the effects are those of a run without faults."""

import pytest

from fencepost.testing.flow_sinks import PHASES, WITHIN
from tests.acceptance.flows.stage import Stage

QUICK = [
    ("rows", 3, "flows.commit.after_commit"),
    ("prepared", None, "flows.commit.after_store"),
]
FORWARDING = ("flows.forward.after_begin", "flows.forward.before_send", "flows.forward.after_send")
FULL = [
    (sink, groups, point)
    for sink in ("rows", "prepared", "redis", "files")
    for groups in (None, 3)
    for point in ((WITHIN if sink == "rows" else PHASES) + (FORWARDING if groups else ()))
    if (sink, groups, point) not in QUICK
]
# A forwarder begins once; every other point is passed again and again.
ONCE = {"flows.forward.after_begin"}
CASES = [*QUICK, *(pytest.param(*case, marks=pytest.mark.full) for case in FULL)]


@pytest.mark.parametrize(("sink", "groups", "point"), CASES)
def test_a_killed_worker_leaves_each_effect_once(
    stage: Stage, sink: str, groups: int | None, point: str
) -> None:
    stage.arrive(100)
    first = stage.worker(sink, groups=groups, crash=f"{point}:kill@{1 if point in ONCE else 2}")
    first.be_killed(within=60)
    stage.arrive(50)
    stage.worker(sink, groups=groups)

    stage.settle(sink)


STOPS = [
    ("rows", None, "flows.commit.before_commit"),
]
STOPS_FULL = [case for case in FULL if case not in STOPS]


@pytest.mark.parametrize(
    ("sink", "groups", "point"),
    [*STOPS, *(pytest.param(*case, marks=pytest.mark.full) for case in STOPS_FULL)],
)
def test_a_frozen_worker_comes_back_as_a_zombie_and_changes_nothing(
    stage: Stage, sink: str, groups: int | None, point: str
) -> None:
    stage.arrive(100)
    zombie = stage.worker(sink, groups=groups, crash=f"{point}:stop@{1 if point in ONCE else 2}")
    zombie.wait_until_stopped(within=60)
    stage.arrive(50)
    stage.worker(sink, groups=groups)
    stage.settle(sink)
    zombie.resume()
    stage.arrive(50)

    stage.settle(sink)


@pytest.mark.full
def test_three_workers_of_which_two_are_killed(stage: Stage) -> None:
    crew = [stage.worker("rows", groups=6) for _ in range(3)]
    stage.arrive(200)
    stage.settle("rows")
    crew[0].kill()
    stage.arrive(200)
    crew[1].kill()
    stage.arrive(200)

    stage.settle("rows")
