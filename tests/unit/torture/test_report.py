"""The report: a file for programs, a page that needs nothing from elsewhere."""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from fencepost.testing import Breach
from fencepost_server.console._reports import read_reports
from fencepost_torture._goals import GOALS
from fencepost_torture._plan import RunPlan
from fencepost_torture._report import facts_of, keep, replay_command, write
from fencepost_torture._run import RunMoment, RunResult
from fencepost_torture._schedule import ProcessRole, chosen_kinds, schedule
from fencepost_torture._tally import Tally
from fencepost_torture._verdict import Hardness, judge
from fencepost_torture.systems import BY_NAME, PLACES

HARDNESS = Hardness(10.0, {"jobs": 200}, hits=3, ambiguous=4)


def outcome(**changes: Any) -> RunResult:
    plan = RunPlan(7, 10, ["jobs"], ["kill", "crash"])
    tally = Tally(hit=Counter(kill=3), struck=Counter(kill=4))
    tally.strike(next(schedule(7, ["kill"], [ProcessRole("jobs", 1, ())], gap_seconds=1)), 0.5)
    breaches = [("jobs", Breach("lost", "<script>alert(1)</script>", "was lost"))]
    facts: dict[str, Any] = {
        "plan": plan,
        "seconds": 10.0,
        "tally": tally,
        "effects": {"jobs": 200},
        "refusals": {"stale_attempt": 2},
        "hardness": HARDNESS,
        "restarts": 1,
        "ended_by_themselves": 0,
        "tries_charged": [],
        "settled_after": 1.0,
        "judgement": judge(breaches, HARDNESS, plan.floors),
        "moments": [RunMoment(0.5, {"jobs": 100}, 1, {}), RunMoment(10, {"jobs": 200}, 3, {})],
        "log": "a line",
    }
    return RunResult(**(facts | changes))


def test_the_last_run_can_be_read_by_a_program(tmp_path: Path) -> None:
    write(facts_of(outcome(), {"power cut": "no file system"}), tmp_path / "torture")

    facts = json.loads((tmp_path / "torture" / "last.json").read_text())

    figures = {name: facts[name] for name in ("effects", "lost", "doubled", "faults", "refusals", "verdict")}
    assert figures == {
        "effects": 200,
        "lost": 1,
        "doubled": 0,
        "faults": 3,
        "refusals": 2,
        "verdict": "violated",
    }
    assert facts["replay"].startswith("fencepost torture --seed 7 --seconds 10 --systems jobs --faults kill")
    assert [struck["kind"] for struck in facts["schedule"]] == ["kill"]


def test_the_command_that_has_the_same_run_again_has_its_settings_too() -> None:
    plan = RunPlan(
        7, 10, ["jobs"], ["crash"], ["jobs.ack.before"], server_settings={"synchronous_commit": "off"}
    )

    replay = facts_of(outcome(plan=plan), {})["replay"]

    assert replay == (
        "fencepost torture --seed 7 --seconds 10 --systems jobs --faults crash --points jobs.ack.before "
        "--setting synchronous_commit=off"
    )


def test_the_console_shows_the_run(tmp_path: Path) -> None:
    write(facts_of(outcome(), {}), tmp_path / "torture")

    assert [report["name"] for report in read_reports(tmp_path)] == ["torture, seed 7"]


def test_the_page_needs_nothing_from_elsewhere_and_believes_nothing(tmp_path: Path) -> None:
    page = write(
        facts_of(outcome(), {"power cut": "no file system"}), tmp_path, tmp_path / "sub" / "page.html"
    )
    text = page.read_text()

    assert page == tmp_path / "sub" / "page.html"
    assert json.loads(page.with_suffix(".json").read_text())["seed"] == 7
    assert not re.search(r"https?:|src=|href=|@import|url\(", text)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "power cut" in text
    assert "violated" in text


def test_a_goal_tells_how_much_of_it_was_reached_and_how_long_the_rest_takes() -> None:
    facts = facts_of(outcome(), {}, "crashes")

    crashes, effects, points = facts["goal"]["sizes"]
    assert (crashes["reached"], crashes["wanted"]) == (3, 100_000)
    assert crashes["hours_left"] == round((100_000 - 3) / 3 * 10 / 3600, 2)
    assert effects["reached"] == 200
    assert points == {"what": "hits of each crash point", "wanted": 500, "reached": 0, "hours_left": None}
    assert "--goal crashes" in facts["replay"]


def test_what_is_kept_for_years_is_short(tmp_path: Path) -> None:
    keep(facts_of(outcome(), {}), tmp_path / "results" / "kept.json")

    kept = json.loads((tmp_path / "results" / "kept.json").read_text())
    assert kept["effects"] == 200
    assert "schedule" not in kept


def test_the_command_for_a_run_that_ended_by_itself_says_how_long_it_was() -> None:
    endless = outcome(plan=replace(outcome().plan, seconds=math.inf), seconds=12.3)

    assert replay_command(endless).startswith("fencepost torture --seed 7 --seconds 13 ")


def test_every_goal_names_systems_and_faults_that_there_are() -> None:
    for goal in GOALS.values():
        assert set(goal.systems) <= {*PLACES, *BY_NAME}
        assert set(chosen_kinds(goal.faults)) == set(goal.faults)
        assert all(set(size.kinds) <= set(goal.faults) for size in goal.sizes)
