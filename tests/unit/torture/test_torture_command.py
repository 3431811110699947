"""What `fencepost torture` answers: a code for each verdict, and an error about what does not exist."""

import json
import math
import sys
from collections import Counter
from pathlib import Path

import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.testing import Breach
from fencepost_torture import _commands as command
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult
from fencepost_torture._tally import Tally
from fencepost_torture._verdict import Floors, judge
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
    told: RunResult = outcome(judgement=judgement)

    def ran(_plan: RunPlan, _disk: object, _faketime: object) -> RunResult:
        return told

    monkeypatch.setattr(command, "_run", ran)

    assert run(["torture", "--seconds", "1", "--systems", "leases", "--faults", "kill"]) == code
    facts = json.loads((tmp_path / ".fencepost" / "torture" / "last.json").read_text())
    assert facts["verdict"] == told.judgement.verdict


PAUSES = ["torture", "--goal", "pauses", "--result", "pauses.json"]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[RunPlan]:
    """What would have been run; each run passes."""
    found: list[RunPlan] = []

    def ran(plan: RunPlan, _disk: object, _faketime: object) -> RunResult:
        found.append(plan)
        tally = Tally(hit=Counter(pause=12_000))
        return outcome(plan=plan, tally=tally, judgement=judge([], HARDNESS, NONE))

    monkeypatch.setattr(command, "_run", ran)
    return found


def kept() -> tuple[list[int], list[int]]:
    facts = json.loads(Path("pauses.json").read_text())
    return [run["seed"] for run in facts["runs"]], [size["reached"] for size in facts["sizes"]]


def test_runs_of_a_goal_add_up_in_one_file_and_no_seed_counts_twice(plans: list[RunPlan]) -> None:
    assert run([*PAUSES, "--seed", "101", "--minutes", "1"]) == ExitCode.OK
    assert run([*PAUSES, "--seed", "102", "--seconds", "5"]) == ExitCode.OK
    assert kept() == ([101, 102], [24_000])

    assert run([*PAUSES, "--seed", "101"]) == ExitCode.USAGE
    assert [plan.seconds for plan in plans] == [60, 5]


def test_a_goal_without_a_time_lasts_until_what_is_missing_is_there(plans: list[RunPlan]) -> None:
    run([*PAUSES, "--seed", "101", "--minutes", "1"])
    run([*PAUSES, "--seed", "102"])

    timed, endless = plans
    assert (timed.seconds, endless.seconds) == (60, math.inf)
    assert not timed.enough(Tally(hit=Counter(pause=20_000)), {})
    assert not endless.enough(Tally(hit=Counter(pause=7999)), {})
    assert endless.enough(Tally(hit=Counter(pause=8000)), {})


def test_a_goal_that_is_reached_goes_on_only_when_it_is_told_how_long(
    plans: list[RunPlan], capsys: pytest.CaptureFixture[str]
) -> None:
    run([*PAUSES, "--seed", "101", "--minutes", "1"])
    run([*PAUSES, "--seed", "102", "--minutes", "1"])

    assert run([*PAUSES, "--seed", "103"]) == ExitCode.USAGE
    assert "pauses.json has all of pauses" in capsys.readouterr().err
    assert run([*PAUSES, "--seed", "103", "--seconds", "5"]) == ExitCode.OK
    assert len(plans) == 3


def test_a_run_with_other_systems_than_the_goals_is_no_part_of_it(plans: list[RunPlan]) -> None:
    run([*PAUSES, "--seed", "101", "--minutes", "1"])
    alone = ["torture", "--goal", "pauses", "--seed", "102", "--minutes", "1", "--systems", "leases"]

    assert run([*alone, "--result", "pauses.json"]) == ExitCode.USAGE
    assert run([*alone, "--result", "other.json"]) == ExitCode.OK
    assert kept() == ([101], [12_000])
    assert json.loads(Path("other.json").read_text())["seed"] == 102
    assert run([*PAUSES[:3], "--result", "other.json", "--seed", "103"]) == ExitCode.USAGE


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
