"""Workers killed and frozen in every window of a commit, alone and among three: the effects are those of a
run without faults."""

import pytest

from fencepost.testing.flow_sinks import PHASES, WITHIN
from tests.acceptance.flows.crew import SINKS
from tests.acceptance.flows.stage import HANG_SECONDS, Stage

pytestmark = pytest.mark.timeout(900)
FORWARDING = ("flows.forward.after_begin", "flows.forward.before_send", "flows.forward.after_send")
TRANSACTIONAL = ("rows", "upsert", "outbox")
# One of each way to commit; the others go the same ways.
AMONG_THREE = ("rows", "prepared", "redis", "files")
Case = tuple[str, int, str]


def points_of(sink: str) -> tuple[str, ...]:
    return WITHIN if sink in TRANSACTIONAL else PHASES


MATRIX: list[Case] = [
    *((sink, 1, point) for sink in SINKS for point in points_of(sink)),
    *((sink, 3, point) for sink in AMONG_THREE for point in (*points_of(sink), *FORWARDING)),
]
# A forwarder begins once; every other point is passed again and again.
ONCE = {"flows.forward.after_begin"}


def cases(*quick: Case) -> list[object]:
    return [
        case if case in quick else pytest.param(*case, marks=pytest.mark.full)
        for case in (*quick, *(case for case in MATRIX if case not in quick))
    ]


def groups_for(workers: int) -> int | None:
    return None if workers == 1 else 3


def order(point: str, how: str) -> str:
    return f"{point}:{how}@{1 if point in ONCE else 2}"


@pytest.mark.parametrize(
    ("sink", "workers", "point"),
    cases(("rows", 3, "flows.commit.after_commit"), ("prepared", 1, "flows.commit.after_store")),
)
def test_a_killed_worker_leaves_each_effect_once(stage: Stage, sink: str, workers: int, point: str) -> None:
    groups = groups_for(workers)
    stage.arrive(100)
    first = stage.worker(sink, groups=groups, crash=order(point, "kill"))
    others = stage.companions(sink, groups, workers - 1)
    stage.feed_until(first.be_killed)
    stage.arrive(50)
    if not others:
        stage.worker(sink, groups=groups)

    stage.settle(sink)


@pytest.mark.parametrize(("sink", "workers", "point"), cases(("rows", 1, "flows.commit.before_commit")))
def test_a_frozen_worker_comes_back_as_a_zombie_and_changes_nothing(
    stage: Stage, sink: str, workers: int, point: str
) -> None:
    groups = groups_for(workers)
    stage.arrive(100)
    zombie = stage.worker(sink, groups=groups, crash=order(point, "stop"))
    others = stage.companions(sink, groups, workers - 1)
    stage.feed_until(zombie.wait_until_stopped)
    stage.arrive(50)
    if not others:
        stage.worker(sink, groups=groups)
    stage.settle(sink)
    zombie.resume()
    stage.arrive(50)

    stage.settle(sink)


RECOVERY = (
    ("flows.commit.after_pre_commit", "flows.recover.before_abort"),
    ("flows.commit.after_store", "flows.recover.before_finish"),
    ("flows.commit.before_flag", "flows.recover.after_finish"),
)


@pytest.mark.full
@pytest.mark.parametrize("sink", [sink for sink in SINKS if sink not in TRANSACTIONAL])
@pytest.mark.parametrize(("point", "again"), RECOVERY)
def test_a_recovery_that_is_killed_is_repeated(stage: Stage, sink: str, point: str, again: str) -> None:
    stage.arrive(100)
    stage.worker(sink, crash=order(point, "kill")).be_killed(within=HANG_SECONDS)
    stage.worker(sink, crash=f"{again}:kill").be_killed(within=HANG_SECONDS)
    stage.worker(sink, crash=f"{again}:kill").be_killed(within=HANG_SECONDS)
    stage.arrive(50)
    stage.worker(sink)

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
