"""Power cuts: PostgreSQL keeps what it has answered; told not to wait for the disk, it does not."""

import os
import sys
from pathlib import Path

import pytest

from tests.acceptance.torture.test_command import torture

POWER = ("--systems", "leases", "--faults", "power-cut", "--seconds", "10", "--seed", "3")
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK),
        reason="a disk whose power can be cut needs root on Linux, and /dev/fuse",
    ),
]


def test_a_power_cut_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    _, facts = torture(tmp_path, *POWER)

    assert facts["violations"] == []
    assert facts["faults_by_kind"]["power-cut"] > 0


def test_without_synchronous_commits_it_does(tmp_path: Path) -> None:
    """The control: a disk that forgot nothing would pass this too."""
    _, facts = torture(tmp_path, *POWER, "--setting", "synchronous_commit=off")

    assert facts["verdict"] == "violated"
