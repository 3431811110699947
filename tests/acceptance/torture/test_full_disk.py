"""A disk without room: PostgreSQL stops itself, comes back when there is room, and nothing is lost."""

from collections.abc import Mapping

import pytest

from fencepost.torture.disk import choose_disk
from fencepost.torture.mounting import may_mount
from fencepost.torture.ordeal import Ordeal
from fencepost.torture.plan import Plan
from fencepost.torture.stage import Stage
from fencepost.torture.tally import Tally

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not may_mount(), reason="a disk of a chosen size needs the right to mount"),
]


@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.full)])
def test_a_full_disk_loses_nothing_that_was_answered(times: int) -> None:
    logs: list[str] = []

    def enough(tally: Tally, _effects: Mapping[str, int]) -> bool:
        return tally.hit["disk-full"] >= times

    def read_log(stage: Stage) -> None:
        logs.extend(path.read_text() for path in stage.database.server.log.parent.glob("*.log*"))

    disk, kinds = choose_disk(["disk-full"], 120)
    plan = Plan(3, 120, ["leases", "jobs"], kinds, enough=enough, after=read_log, liveness_leases=30)
    outcome = Ordeal(plan, disk).run()

    assert outcome.judgement.breaches == [], outcome.log
    assert outcome.tally.hit["disk-full"] >= times
    # It was full for the server, and not only for us.
    assert "No space left on device" in "".join(logs)
