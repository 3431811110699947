"""A process that dies between the first write and the commit leaves nothing half done; the same again does
it whole."""

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from fencepost.embedded import Database
from fencepost.testing import at_crash_point
from fencepost_judge._rejudging import Filter
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office


class Died(Exception):
    """There is no process any more, and so no commit."""


@contextmanager
def dying_at(point: str) -> Generator[None]:
    def die() -> None:
        raise Died

    with at_crash_point(point, die), pytest.raises(Died):
        yield


async def submit(office: JudgeEnv) -> int:
    sources = {"main.py": PROGRAM["code"]}
    return await office.judging.submit("echo", "python", sources, author="ann", key="key-1")


def rows(database: Database) -> tuple[int, int, int]:
    """Jobs, submissions and rejudgings."""
    with database.connect_admin() as admin:
        found = admin.execute(
            """select (select count(*) from fencepost.job), (select count(*) from fencepost.judge_submission),
                      (select count(*) from fencepost.judge_rejudging)"""
        ).fetchall()
    [(jobs, submissions, rejudgings)] = found
    return jobs, submissions, rejudgings


async def test_a_submission_and_its_job_are_there_or_neither(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        with dying_at("judge.submit.before_commit"):
            await submit(office)
        nothing = rows(database)
        job_id = await submit(office)

        assert (nothing, rows(database)) == ((0, 0, 0), (1, 1, 0))
        assert await submit(office) == job_id


async def test_a_rejudging_and_its_jobs_are_there_or_none(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await submit(office)
        before = rows(database)
        with dying_at("judge.rejudge.before_commit"):
            await office.judging.rejudge(Filter(problem="echo"), reason="test 7 was wrong", actor="jo")
        after = rows(database)
        await office.judging.rejudge(Filter(problem="echo"), reason="test 7 was wrong", actor="jo")

    assert (before, after, rows(database)) == ((1, 1, 0), (1, 1, 0), (2, 1, 1))


async def test_data_that_no_problem_names_belongs_to_no_problem(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        with as_file(files("fencepost_judge") / "samples") as samples:
            place = min(samples.iterdir())
            before = await office.judging.problems(None, 100)
            with dying_at("judge.import.after_data"):
                await office.judging.import_problem(place)
            after = await office.judging.problems(None, 100)
            imported = await office.judging.import_problem(place)

        assert before == after
        assert imported.slug in [title.slug for title in await office.judging.problems(None, 100)]
        assert imported.version == 1
