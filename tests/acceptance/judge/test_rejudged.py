"""A rejudging by real judges: the data was wrong, the verdicts follow when an operator asks for it."""

import shutil
from pathlib import Path

import pytest

from fencepost.embedded import Database
from fencepost.testing import Child, Clock
from fencepost_judge import _rejudging as rejudging
from fencepost_judge._rejudging import Filter
from fencepost_judge._service import Judging
from tests.acceptance.judge.judge_workers import judge, open_judging
from tests.acceptance.judge.test_judged_once import judged
from tests.waiting_for import found

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

TWICE = {"main.py": "print(2 * int(input()))\n"}


def wrong_data(folder: Path) -> Path:
    folder.mkdir()
    (folder / "1.in").write_text("2\n")
    (folder / "1.ans").write_text("5\n")
    return folder


async def whole(judging: Judging, generation: int) -> None:
    async def look() -> int:
        return (await judging.fp.run(rejudging.generations(one=generation)))[0].judged

    await found(f"generation {generation} is judged", look, bool)


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.full)])
async def test_verdicts_follow_the_repaired_data_once_the_generation_is_applied(
    database: Database, redis_url: str, tmp_path: Path, clock: Clock, killed: bool
) -> None:
    problem = wrong_data(tmp_path / "twice")
    async with open_judging(database.url, redis_url, tmp_path, "one") as judging:
        await judging.import_problem(problem)
        job_id = await judging.submit("twice", "python", TWICE, author="ann")
        before = await judged(judging, job_id)
    (problem / "1.ans").write_text("4\n")
    async with open_judging(database.url, redis_url, tmp_path, "asking", work=False) as asking:
        await asking.import_problem(problem)
        opened = await asking.rejudge(Filter(problem="twice"), reason="the answer was wrong", actor="jo")
    if killed:
        with Child(judge, database.url, redis_url, str(tmp_path), crash="judge.after_result:kill") as child:
            child.be_killed(within=60)
        clock.advance(31)
    async with open_judging(database.url, redis_url, tmp_path, "two") as judging:
        await whole(judging, opened.generation)
        (change,) = await judging.fp.run(rejudging.changes(opened.generation))
        beside = await judged(judging, job_id)
        await judging.fp.run(rejudging.apply(opened.generation, "jo"))
        after = await judged(judging, job_id)

    assert (change.verdict_before, change.verdict_after) == ("WA", "AC")
    assert [one["result"]["verdict"] for one in (before, beside, after)] == ["WA", "WA", "AC"]
    assert [one["result"]["version"] for one in (before, after)] == [1, 2]
