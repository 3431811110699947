"""Workers killed and frozen in every window of a commit, alone and among three: the effects are those of a
run without faults, in the order of each key where the sink keeps one."""

from collections.abc import Mapping

import pytest

from fencepost.testing._flow_windows import windows_of
from tests.acceptance.flows.env import HANG_SECONDS, FlowsEnv
from tests.acceptance.flows.worker_processes import SINKS, Place

pytestmark = pytest.mark.timeout(900)
FORWARDING = ("flows.forward.after_begin", "flows.forward.before_send", "flows.forward.after_send")
NOWHERE = Place("", "", "http://localhost")
WINDOWS: Mapping[str, tuple[str, ...]] = {
    **{sink: windows_of(kind.make(NOWHERE)) for sink, kind in SINKS.items()},
    # One after the other of two sinks is committed, whatever the two are.
    "files+redis": ("flows.commit.between_finishes",),
    "redis-stream+prepared+hooks": ("flows.commit.between_finishes",),
}
IN_PHASES = [sink for sink in SINKS if "flows.commit.after_store" in WINDOWS[sink]]
Case = tuple[str, int, str]
MATRIX: list[Case] = [
    *((sink, 1, point) for sink, points in WINDOWS.items() for point in points),
    *((sink, 3, point) for sink, points in WINDOWS.items() for point in (*points, *FORWARDING)),
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
def test_a_killed_worker_leaves_each_effect_once(env: FlowsEnv, sink: str, workers: int, point: str) -> None:
    env.play(sink, groups=groups_for(workers))
    env.arrive(100)
    first = env.worker(crash=order(point, "kill"))
    others = env.companions(workers - 1)
    env.feed_until(first.be_killed)
    env.arrive(50)
    if not others:
        env.worker()

    env.settle()


@pytest.mark.parametrize(("sink", "workers", "point"), cases(("rows", 1, "flows.commit.before_commit")))
def test_a_frozen_worker_comes_back_as_a_zombie_and_changes_nothing(
    env: FlowsEnv, sink: str, workers: int, point: str
) -> None:
    env.play(sink, groups=groups_for(workers))
    env.arrive(100)
    zombie = env.worker(crash=order(point, "stop"))
    others = env.companions(workers - 1)
    env.feed_until(zombie.wait_until_stopped)
    env.arrive(50)
    if not others:
        env.worker()
    env.settle()
    zombie.resume()
    env.arrive(50)

    env.settle()


@pytest.mark.parametrize(
    ("workers", "point"),
    [
        (1, "flows.commit.before_commit"),
        *(
            pytest.param(workers, point, marks=pytest.mark.full)
            for workers in (1, 3)
            for point in (*WINDOWS["rows"], *(FORWARDING if workers == 3 else ()))
        ),
    ],
)
@pytest.mark.parametrize("how", ["kill", pytest.param("stop", marks=pytest.mark.full)])
def test_files_of_a_folder_are_read_once(env: FlowsEnv, workers: int, point: str, how: str) -> None:
    env.play("rows", source="folder", groups=groups_for(workers))
    env.arrive(100)
    first = env.worker(crash=order(point, how))
    others = env.companions(workers - 1)
    env.feed_until(first.be_killed if how == "kill" else first.wait_until_stopped)
    env.arrive(50)
    if not others:
        env.worker()
    env.settle()
    if how == "stop":
        first.resume()
        env.arrive(50)
        env.settle()


# The commits of both stages go through the windows of a commit; rows are appended and trimmed for the first.
STAGED = ("flows.stage.before_append", "flows.stage.before_trim", "flows.stage.after_trim")
SHUFFLED = [
    (sink, workers, point)
    for sink in ("rows", "prepared", "redis", "files")
    for workers in (1, 3)
    for point in (*WINDOWS[sink], *FORWARDING, *STAGED)
]
SHUFFLED_QUICK = [("rows", 3, "flows.stage.before_append"), ("redis", 1, "flows.stage.after_trim")]


@pytest.mark.parametrize("how", ["kill", pytest.param("stop", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("sink", "workers", "point"),
    [
        *SHUFFLED_QUICK,
        *(pytest.param(*case, marks=pytest.mark.full) for case in SHUFFLED if case not in SHUFFLED_QUICK),
    ],
)
def test_two_stages_have_each_effect_once(
    env: FlowsEnv, sink: str, workers: int, point: str, how: str
) -> None:
    env.play(sink, groups=2, again=3)
    env.arrive(100)
    first = env.worker(crash=order(point, how))
    others = env.companions(workers - 1)
    env.feed_until(first.be_killed if how == "kill" else first.wait_until_stopped)
    env.arrive(50)
    if not others:
        env.worker()
    env.settle()
    if how == "stop":
        first.resume()
        env.arrive(50)
        env.settle()


RECOVERY = (
    ("flows.commit.after_pre_commit", "flows.recover.before_abort"),
    ("flows.commit.after_store", "flows.recover.before_finish"),
    ("flows.commit.before_flag", "flows.recover.after_finish"),
)
RECOVERIES = [
    *((sink, point, again) for sink in IN_PHASES for point, again in RECOVERY),
    *(
        (sink, "flows.commit.between_finishes", "flows.recover.between_finishes")
        for sink in WINDOWS
        if "+" in sink
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(("sink", "point", "again"), RECOVERIES)
def test_a_recovery_that_is_killed_is_repeated(env: FlowsEnv, sink: str, point: str, again: str) -> None:
    env.play(sink)
    env.arrive(100)
    env.worker(crash=order(point, "kill")).be_killed(within=HANG_SECONDS)
    env.worker(crash=f"{again}:kill").be_killed(within=HANG_SECONDS)
    env.worker(crash=f"{again}:kill").be_killed(within=HANG_SECONDS)
    env.arrive(50)
    env.worker()

    env.settle()


@pytest.mark.full
def test_three_workers_of_which_two_are_killed(env: FlowsEnv) -> None:
    env.play("rows", groups=6)
    process_pool = [env.worker() for _ in range(3)]
    env.arrive(200)
    env.settle()
    process_pool[0].kill()
    env.arrive(200)
    process_pool[1].kill()
    env.arrive(200)

    env.settle()
