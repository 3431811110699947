"""What `fencepost torture` answers: a code for each verdict, and a complaint about what does not exist."""

import json
import sys
from pathlib import Path

import pytest

from fencepost.cli import torture as command
from fencepost.cli.app import run
from fencepost.cli.exits import ExitCode
from fencepost.testing import Breach
from fencepost.torture.ordeal import Outcome, Plan
from fencepost.torture.verdict import Floors, judge
from tests.unit.torture.test_report import HARDNESS, outcome

LOST = [("jobs", Breach("lost", "k", "was lost"))]
NONE = Floors(0, 0, 0)


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes what lies here importable, for as long as its process lives."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize(
    ("judgement", "code"),
    [
        (judge([], HARDNESS, NONE), ExitCode.OK),
        (judge([], HARDNESS, Floors(effects_per_second=1000)), ExitCode.VOID),
        (judge(LOST, HARDNESS, NONE), ExitCode.PROBLEM),
    ],
    ids=lambda value: getattr(value, "verdict", None),
)
def test_each_verdict_has_its_exit_code(
    judgement: object, code: ExitCode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: Outcome = outcome(judgement=judgement)

    def ran(_plan: Plan, _disk: object) -> Outcome:
        return told

    monkeypatch.setattr(command, "_run", ran)

    assert run(["torture", "--seconds", "1", "--systems", "leases", "--faults", "kill"]) == code
    facts = json.loads((tmp_path / ".fencepost" / "torture" / "last.json").read_text())
    assert facts["verdict"] == told.judgement.verdict


@pytest.mark.parametrize(
    "arguments",
    [
        ["--faults", "flood"],
        ["--systems", "moon"],
        ["--goal", "glory"],
        ["--setting", "fsync"],
        ["--minutes", "1", "--seconds", "5"],
        # It would be a torture without a crash, and look like one with.
        ["--points", "jobs.ack.nowhere"],
    ],
    ids=lambda arguments: arguments[-1],
)
def test_a_wrong_name_is_a_wrong_command_line(arguments: list[str]) -> None:
    assert run(["torture", *arguments]) == ExitCode.USAGE
