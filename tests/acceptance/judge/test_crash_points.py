"""A judge that is killed anywhere: its submission is judged once, with one verdict, and its life tells so."""

import shutil
from pathlib import Path

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Child, Clock
from tests.acceptance.judge.judge_workers import judge, open_judging
from tests.acceptance.judge.test_judged_once import RIGHT, judged, results

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

LEASE_SECONDS = 30
QUICK = ("judge.after_result",)
POINTS = {
    # No judge holds it yet: the next one has the first attempt.
    "jobs.dispatch.before_add": 1,
    "jobs.dispatch.after_add": 1,
    "jobs.dispatch.before_commit": 1,
    "jobs.dispatch.after_commit": 1,
    "jobs.fetch.after_read": 1,
    "jobs.claim.before_commit": 1,
    # Held, and no verdict yet: the lease ends, and another attempt judges anew.
    "jobs.claim.after_commit": 2,
    "judge.before_run": 2,
    "judge.after_run": 2,
    "jobs.finish.before_fence": 2,
    "jobs.finish.after_fence": 2,
    "judge.after_result": 2,
    "jobs.finish.before_commit": 2,
    # The verdict stands: whatever comes after it is a repeat that the claim refuses.
    "jobs.finish.after_commit": 1,
    "jobs.ack.before": 1,
    "jobs.ack.after": 1,
}
"""Every point on the way of a submission, and the attempt that its verdict has when the judge dies there."""


def life(database: Database, job_id: int) -> list[tuple[str, int | None]]:
    """What `fencepost explain` tells: each event with its attempt."""
    with psycopg.connect(database.admin_url) as connection:
        rows = connection.execute("select event, token from fencepost.explain(%s)", (f"job:{job_id}",))
        return [(str(event), token) for event, token in rows]


@pytest.mark.parametrize(
    "point", [one if one in QUICK else pytest.param(one, marks=pytest.mark.full) for one in POINTS]
)
async def test_a_judge_that_is_killed_leaves_one_verdict_and_the_life_of_the_job_says_so(
    database: Database, redis_url: str, tmp_path: Path, clock: Clock, point: str
) -> None:
    attempt = POINTS[point]
    async with open_judging(database.url, redis_url, tmp_path, "asking", work=False) as asking:
        await asking.import_samples()
        job_id = await asking.submit("fence-posts", "python", RIGHT, author="ann")
    with Child(judge, database.url, redis_url, str(tmp_path), crash=f"{point}:kill") as child:
        child.be_killed(within=60)
    clock.advance(LEASE_SECONDS + 1)
    async with open_judging(database.url, redis_url, tmp_path, "survivor") as judging:
        got = await judged(judging, job_id)
    told = life(database, job_id)

    assert results(database) == [(job_id, attempt, "AC")]
    assert (got["status"], got["attempt_id"]) == ("FINISHED", attempt)
    assert [one for one in told if one[0] in ("claimed", "finished")] == [
        ("claimed", attempt),
        ("finished", attempt),
    ]
    # The worker that was lost is in the history, and only where one was.
    assert [one for one in told if one[0] == "lost"] == [("lost", 1)] * (attempt - 1)
