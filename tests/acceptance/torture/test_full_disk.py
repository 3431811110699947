"""A disk without room: PostgreSQL stops itself, comes back when there is room, and nothing is lost."""

from collections.abc import Mapping

import pytest

from fencepost_torture._disk import Disk, choose_disk
from fencepost_torture._mount_namespace import may_mount
from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._small_disk import SmallDisk
from fencepost_torture._tally import Tally

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not may_mount(), reason="a disk of a chosen size needs the right to mount"),
]


SECONDS_MAX = 200
"""The run ends as soon as the disk was full often enough; a busy machine takes longer."""

# One hit needs little work, and a small disk, because filling it writes all of it.
SHORT_SECONDS_MAX = 60
LITTLE_WORK = RunPace(helpings_per_second={"leases": 2.0, "jobs": 2.0})


class Roomy(SmallDisk):
    """It can be filled as often as one likes, and has room afterwards."""

    def fill(self) -> None:
        pass


def run(disk: Disk | None, times: int, seconds: float, pace: RunPace = LITTLE_WORK) -> RunResult:
    def enough(tally: Tally, _effects: Mapping[str, int]) -> bool:
        return tally.hit["disk-full"] >= times

    plan = RunPlan(
        3, seconds, ["leases", "jobs"], ["disk-full"], pace=pace, enough=enough, liveness_leases=30
    )
    return TortureRun(plan, disk).run()


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.full)])
def test_a_full_disk_loses_nothing_that_was_answered(times: int) -> None:
    seconds, pace = (SHORT_SECONDS_MAX, LITTLE_WORK) if times == 1 else (SECONDS_MAX, RunPace())
    disk, kinds = choose_disk(["disk-full"], seconds)
    assert kinds == ["disk-full"]

    outcome = run(disk, times, seconds, pace)

    assert outcome.judgement.breaches == [], outcome.log
    assert outcome.tally.hit["disk-full"] >= times


def test_a_disk_that_has_room_for_the_server_was_not_full() -> None:
    outcome = run(Roomy(4), 1, 4)

    assert outcome.tally.struck["disk-full"] > 0
    assert outcome.tally.hit["disk-full"] == 0
