"""Power cuts: PostgreSQL keeps what it has answered; told not to wait for the disk, it does not."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from fencepost_torture._disk import choose_disk
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._tally import Tally

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK),
        reason="a disk whose power can be cut needs root on Linux, and /dev/fuse",
    ),
]
# The control: commits are answered long before they are written.
UNSYNCED = {"synchronous_commit": "off", "wal_writer_delay": "10s"}


def run(cuts: int, **how: Any) -> RunResult:
    def enough(tally: Tally, _effects: Mapping[str, int]) -> bool:
        return tally.hit["power-cut"] >= cuts

    disk, kinds = choose_disk(["power-cut"], 0)
    return TortureRun(RunPlan(3, 120, ["leases"], kinds, enough=enough, **how), disk).run()


def keep(env: SystemEnvironment) -> None:
    """The tables are there after any cut: it is answers that are to be lost."""
    with env.database.connect_admin() as admin:
        admin.execute("checkpoint")


@pytest.mark.parametrize("cuts", [1, pytest.param(20, marks=pytest.mark.full)])
def test_a_power_cut_loses_nothing_that_was_answered(cuts: int) -> None:
    outcome = run(cuts, liveness_leases=30)

    assert outcome.judgement.breaches == []
    assert outcome.tally.hit["power-cut"] >= cuts


def test_without_synchronous_commits_it_does() -> None:
    """A disk that forgot nothing would pass the test above too."""
    outcome = run(1, server_settings=UNSYNCED, liveness_leases=0, patience_seconds=0, before=keep)

    assert {breach.rule for _, breach in outcome.judgement.breaches} & {"lost", "linearizable", "tokens grow"}
