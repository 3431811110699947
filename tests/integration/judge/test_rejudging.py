"""Rejudging: beside what stands, compared, applied or dropped; and a late result replaces nothing."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.errors import AlreadyFinished, InFlight, NotFound, StaleAttempt
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _rejudging as rejudging
from fencepost_judge._judging import Judgement
from fencepost_judge._rejudging import Filter
from fencepost_judge._role import JudgeRole
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office

FUNCTIONS = Path(__file__).parents[3] / "packages/fencepost-judge/src/fencepost_judge/functions"
OWNER = "judge/boot-1"


async def submitted(office: JudgeEnv, author: str = "ann") -> int:
    return await office.judging.submit("echo", "python", {"main.py": PROGRAM["code"]}, author=author)


def claimed(database: Database, job_id: int) -> int:
    with database.connect() as connection:
        row = connection.execute("select * from fencepost.job_claim(%s, %s)", (job_id, OWNER)).fetchone()
    assert row
    return job_id


async def judged(office: JudgeEnv, database: Database, job_id: int, verdict: str) -> bool:
    """As a worker would; whether the verdict was kept."""
    claimed(database, job_id)
    return await late(office, job_id, verdict)


async def late(office: JudgeEnv, job_id: int, verdict: str) -> bool:
    """The result of a worker that holds the job already."""
    return await office.fp.run(judge_calls.put_result(job_id, 1, OWNER, Judgement(verdict=verdict)))


async def again(office: JudgeEnv, **chosen: Any) -> tuple[int, dict[int, int]]:
    """A generation, and the job of each submission in it."""
    opened = await office.judging.rejudge(Filter(**chosen), reason="test 7 was wrong", actor="jo")
    lines = await office.fp.run(rejudging.changes(opened.generation, changed=False))
    return opened.generation, {one.submission_id: one.job_id for one in lines}


async def standing(office: JudgeEnv, job_id: int) -> tuple[str, int]:
    result = (await office.judging.standing(job_id)).result
    return result["verdict"], result["generation"]


async def test_what_stands_goes_on_standing_until_a_whole_generation_is_applied(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("jo", JudgeRole.JURY)
        ids = [await submitted(office) for _ in range(3)]
        for job_id, verdict in zip(ids, ("WA", "AC", "AC"), strict=True):
            await judged(office, database, job_id, verdict)
        asked = await office.ask(
            "jo", "POST", "/judge/api/rejudgings", json={"problem_id": "echo", "reason": "test 7 was wrong"}
        )
        place = f"/judge/api/rejudgings/{asked.json()['generation']}"
        lines = (await office.ask("jo", "GET", f"{place}?everything=true")).json()["changes"]
        early = await office.ask("jo", "POST", f"{place}/apply")
        for line, verdict in zip(lines, ("AC", "AC", "SE"), strict=True):
            await judged(office, database, line["job_id"], verdict)
        beside = [await standing(office, job_id) for job_id in ids]
        compared = (await office.ask("jo", "GET", place)).json()
        applied = await office.ask("jo", "POST", f"{place}/apply")
        after = [await standing(office, job_id) for job_id in ids]
        remembered = (await office.ask("jo", "GET", place)).json()
        twice = await office.ask("jo", "POST", f"{place}/apply")

    assert asked.json() == {"generation": 1, "submissions": 3}
    assert (early.status_code, early.json()["code"]) == (409, "in_flight")
    assert beside == [("WA", 0), ("AC", 0), ("AC", 0)]
    changed = [(ids[0], "WA", "AC"), (ids[2], "AC", "SE")]
    for told in (compared, remembered):
        assert changed == [
            (one["submission_id"], one["verdict_before"], one["verdict_after"]) for one in told["changes"]
        ]
    # The judge's own failure is no verdict to replace one with.
    assert (applied.json(), after) == ({"replaced": 2}, [("AC", 1), ("AC", 1), ("AC", 0)])
    assert (remembered["state"], remembered["settled_by"]) == ("applied", "jo")
    assert (twice.status_code, twice.json()["code"]) == (409, "already_finished")


async def test_a_filter_chooses_and_the_jobs_wait_behind_everything_else(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        ann, bob = await submitted(office, "ann"), await submitted(office, "bob")
        await judged(office, database, ann, "WA")
        found = [
            sorted((await again(office, **chosen))[1])
            for chosen in (
                {"submissions": [bob]},
                {"problem": "echo"},
                {"author": "ann"},
                {"problem": "echo", "verdict": "WA"},
            )
        ]
        with pytest.raises(NotFound):
            await again(office, problem="echo", language="c")
        nothing = await office.ask(
            "the-token-of-the-server", "POST", "/judge/api/rejudgings", json={"reason": "x"}
        )
    with psycopg.connect(database.admin_url) as connection:
        priorities = connection.execute(
            "select priority, count(*) from fencepost.job_waiting group by 1 order by 1"
        )
        waiting = priorities.fetchall()

    assert found == [[bob], [ann, bob], [ann], [ann]]
    assert (nothing.status_code, nothing.json()["field"]) == (400, "filter")
    assert waiting == [(1, 1), (2, 5)]


async def test_a_rejudging_goes_by_the_newest_version_of_the_problem(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        job_id = await submitted(office)
        (tmp_path / "echo/1.ans").write_text("2\n")
        await office.judging.import_problem(tmp_path / "echo")
        _, jobs = await again(office, submissions=[job_id])
        (old,), (new,) = [await office.fp.run(judge_calls.get_task(one)) for one in (job_id, jobs[job_id])]

    assert old.problem != new.problem
    assert office.judging.store.get(next(new.problem.data.all_cases()).answer) == b"2\n"


async def an_older_generation_is_applied_after_a_newer_one(office: JudgeEnv, database: Database) -> None:
    job_id = await submitted(office)
    older, older_jobs = await again(office, submissions=[job_id])
    newer, newer_jobs = await again(office, submissions=[job_id])
    await judged(office, database, newer_jobs[job_id], "AC")
    await office.fp.run(rejudging.apply(newer, "jo"))
    await judged(office, database, older_jobs[job_id], "WA")
    with pytest.raises(StaleAttempt) as refused:
        await office.fp.run(rejudging.apply(older, "jo"))

    assert refused.value.seen == {"submission": job_id, "generation": newer}
    assert await standing(office, job_id) == ("AC", newer)


async def a_submissions_own_result_comes_after_a_generation(office: JudgeEnv, database: Database) -> None:
    job_id = claimed(database, await submitted(office))
    generation, jobs = await again(office, submissions=[job_id])
    await judged(office, database, jobs[job_id], "AC")
    await office.fp.run(rejudging.apply(generation, "jo"))

    assert not await late(office, job_id, "WA")
    assert await standing(office, job_id) == ("AC", generation)


async def a_result_comes_after_its_generation_was_dropped(office: JudgeEnv, database: Database) -> None:
    job_id = await submitted(office)
    generation, jobs = await again(office, submissions=[job_id])
    rejudged = claimed(database, jobs[job_id])
    await office.fp.run(rejudging.drop(generation, "jo"))

    assert not await late(office, rejudged, "WA")
    assert await office.fp.run(judge_calls.get_task(rejudged)) == []
    (line,) = await office.fp.run(rejudging.changes(generation, changed=False))
    assert not line.judged
    with pytest.raises(AlreadyFinished):
        await office.fp.run(rejudging.apply(generation, "jo"))


async def a_generation_is_applied_before_all_of_it_is_judged(office: JudgeEnv, database: Database) -> None:
    job_id = await submitted(office)
    generation, _ = await again(office, submissions=[job_id])
    with pytest.raises(InFlight):
        await office.fp.run(rejudging.apply(generation, "jo"))


Story = Callable[[JudgeEnv, Database], Awaitable[None]]
STORIES: dict[Story, tuple[str, str, str]] = {
    an_older_generation_is_applied_after_a_newer_one: (
        "judge_rejudge.sql",
        "    where r.generation < excluded.generation;",
        ";",
    ),
    a_submissions_own_result_comes_after_a_generation: (
        "judge.sql",
        "on conflict (job_id) do nothing;",
        "on conflict (job_id) do update set verdict = excluded.verdict, generation = 0;",
    ),
    a_result_comes_after_its_generation_was_dropped: (
        "judge_rejudge.sql",
        "if v_state <> 'judging' then",
        "if false then",
    ),
    a_generation_is_applied_before_all_of_it_is_judged: (
        "judge_rejudge.sql",
        "if v_missing > 0 then",
        "if false then",
    ),
}
"""What must not happen, and the bug by which it would."""


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_too_late_or_too_early_replaces_nothing_and_a_planted_bug_is_noticed(
    database: Database, tmp_path: Path, story: Story
) -> None:
    file, right, wrong = STORIES[story]
    source = (FUNCTIONS / file).read_text()
    assert source.count(right) == 1, "the planted bug no longer fits the source"
    async with open_office(database, tmp_path) as office:
        await story(office, database)
        with psycopg.connect(database.admin_url, autocommit=True) as connection:
            connection.execute(source.replace(right, wrong).encode())
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            await story(office, database)
