"""Every crash point in the code is one that a goal of the torture strikes."""

from pathlib import Path

from fencepost.testing import points_in
from fencepost_torture._goals import EACH_POINT, GOALS

SOURCE = Path(__file__).parents[3] / "packages"
ELSEWHERE = (
    "flows.commit.between_parts",
    "flows.prune",
    "flows.stage",
    "jobs.chunk",
    "orders.before_change",
    "orders.after_change",
    "judge.before_system_error",
    "judge.after_system_error",
)
"""What no system of the torture does: tests/acceptance/flows/test_crashes.py,
tests/integration/flows/test_large_state.py, tests/integration/job_features/test_chunks.py,
tests/acceptance/orders/test_crash_points.py and tests/acceptance/judge/test_out_of_service.py strike
these points."""


def test_every_crash_point_is_struck_by_a_goal() -> None:
    points = {str(point.name) for point in points_in(SOURCE) if point.hook == "crash_point"}
    points = {name for name in points if not name.startswith(ELSEWHERE)}
    goals = [goal for goal in GOALS.values() if any(size.what == EACH_POINT for size in goal.sizes)]
    struck = [point for goal in goals for point in goal.points()]

    assert sorted(struck) == sorted(points)
