"""Every crash point is struck: by the torture's goal, or by a test that says which."""

import re
from pathlib import Path

from fencepost.testing import points_in
from fencepost.torture.goals import GOALS

ROOT = Path(__file__).parents[3]
# What the torture's systems never come to, and who kills a process there, or lets it raise.
ELSEWHERE = {
    "flows.": "tests/acceptance/flows/test_crashes.py",
    "jobs.give_back.": "tests/acceptance/jobs/test_crash_points.py",
    "jobs.poison.": "tests/acceptance/jobs/test_crash_points.py",
    "jobs.schedule.": "tests/integration/job_features/test_schedules.py",
    "judge.import.": "tests/integration/judge/test_half_done.py",
    "judge.rejudge.": "tests/integration/judge/test_half_done.py",
    "judge.submit.": "tests/integration/judge/test_half_done.py",
    "judge.": "tests/acceptance/judge/test_crash_points.py",
    "nonces.": "tests/acceptance/nonces/test_sending.py",
}


def test_every_crash_point_is_struck_by_somebody() -> None:
    points = {str(p.name) for p in points_in(ROOT / "src" / "fencepost") if p.hook == "crash_point"}
    tortured = set(GOALS["crashes"].points())
    left = points - tortured

    assert tortured <= points
    assert [point for point in sorted(left) if not point.startswith(tuple(ELSEWHERE))] == []
    assert [prefix for prefix in ELSEWHERE if not any(point.startswith(prefix) for point in left)] == []
    assert [file for file in ELSEWHERE.values() if not (ROOT / file).is_file()] == []
    said = re.search(r"pass (\d+) of the (\d+) crash points", (ROOT / "docs" / "guarantees.md").read_text())
    assert said is not None
    assert (int(said[1]), int(said[2])) == (len(tortured), len(points))
