"""A judge that runs is listed, one that left or died says or shows it, and nothing depends on the list."""

import asyncio
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, LiteralString

import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Child, Clock
from fencepost_judge._discovery import ListedWorker
from fencepost_judge._rejudging import Filter
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from tests.acceptance.judge.judge_workers import BRISK, judge, judging_of, open_judging
from tests.acceptance.judge.test_judged_once import RIGHT, judged
from tests.matrix.ports import free_port
from tests.waiting_for import found

RIGHT_C = {
    "main.c": '#include <stdio.h>\nint main(void){long a,b;scanf("%ld %ld",&a,&b);printf("%ld\\n",a/b+1);}\n'
}
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")


def select(database: Database, query: LiteralString) -> list[Any]:
    with database.connect_admin() as admin:
        return admin.execute(query).fetchall()


def count(database: Database) -> int:
    """Jobs that have finished."""
    return len(select(database, "select 1 from fencepost.job_finished where state = 'finished'"))


def attempts(database: Database) -> set[tuple[int, int]]:
    """Attempts and tries of all jobs."""
    return set(select(database, "select attempt, tries from fencepost.jobs"))


async def listed(judging: Judging, wanted: Callable[[list[str]], bool]) -> list[ListedWorker]:
    def is_it(workers: Iterable[ListedWorker]) -> bool:
        return wanted([one.state for one in workers])

    return list(await found("the right ones are listed", judging.workers, is_it))


async def test_a_judge_is_listed_while_it_sits_and_lost_when_it_is_killed(
    database: Database, redis_url: str, tmp_path: Path, clock: Clock
) -> None:
    async with Fencepost(database.url) as fp:
        asking = judging_of(fp, tmp_path, "asking")
        with Child(judge, database.url, redis_url, str(tmp_path)) as child:
            (sitting,) = await listed(asking, lambda states: states == ["alive"])
            child.kill()
            clock.advance(16)
            (lost,) = await asking.workers()
        async with open_judging(database.url, redis_url, tmp_path, "next") as judging:
            (following,) = await listed(judging, lambda states: states == ["alive"])
        (left,) = await asking.workers()

    assert set(sitting.languages) == {"c", "python"}
    assert (sitting.slots, sitting.busy, sitting.sandbox.split(",")[0]) == (2, 0, "box")
    assert (lost.owner, lost.state) == (sitting.owner, "lost")
    # On the place of the one that is gone.
    assert following.owner != sitting.owner
    assert (left.owner, left.state) == (following.owner, "left")


@pytest.mark.parametrize("driven", ["redis", "alone"])
async def test_what_one_machine_cannot_compile_is_only_taken_by_another(
    database: Database, redis_url: str, tmp_path: Path, driven: str
) -> None:
    """Submissions, a custom run and a rejudging: the machine without the compiler claims none of them."""

    def settings(name: str, language: str) -> JudgeSettings:
        return JudgeSettings(
            workspace=tmp_path / name,
            store=tmp_path / "store",
            languages=language,
            discovery_lease_seconds=3,
        )

    async with (
        Fencepost(
            database.url, redis_url=redis_url if driven == "redis" else None, job_settings=BRISK
        ) as one,
        Fencepost(
            database.url, redis_url=redis_url if driven == "redis" else None, job_settings=BRISK
        ) as two,
    ):
        asked, other = Judging(one, settings("one", "python")), Judging(two, settings("two", "c"))
        await asked.import_samples()
        async with asked.running():
            before = asked.languages
            async with other.running():
                seen = Deadline(60, "the other one is seen")
                await asyncio.to_thread(seen.wait, lambda: asked.languages != before)
                after = asked.languages
                jobs = [await asked.submit("fence-posts", "c", RIGHT_C, author="ann") for _ in range(4)]
                got = [await judged(asked, job_id) for job_id in jobs]
                tried = await asked.custom_runs.submit("c", RIGHT_C, "9 3", author="ann")
                await one.jobs.result(tried, within=60)
                await asked.rejudge(Filter(problem="fence-posts"), reason="again", actor="jury")
                await asyncio.to_thread(
                    Deadline(60, "all are judged again").wait, lambda: count(database) == 9
                )

    assert (before, after) == (["python"], ["c", "python"])
    assert [one["result"]["verdict"] for one in got] == ["AC"] * 4
    assert attempts(database) == {(1, 1)}


async def test_a_submission_waits_for_the_validators_language_and_says_so(
    database: Database, redis_url: str, tmp_path: Path
) -> None:
    settings = JudgeSettings(workspace=tmp_path / "one", store=tmp_path / "store", languages="python")
    async with Fencepost(database.url, redis_url=redis_url, job_settings=BRISK) as fp:
        judging = Judging(fp, settings)
        await judging.import_samples()
        async with judging.running():
            job_id = await judging.submit("guess-the-post", "python", RIGHT, author="ann")
            expected = "queue judge: 1 waiting, kind judge_submission waits for workers that offer language:c"
            await asyncio.to_thread(
                Deadline(60, "it is told").wait,
                lambda: select(database, "select message from fencepost.unserved_work") == [(expected,)],
            )
            seen = await judging.standing(job_id)
    assert (seen.result, seen.job["attempt"]) == (None, 0)


async def test_a_worker_passes_a_job_on_whose_problem_has_changed(
    database: Database, redis_url: str, tmp_path: Path
) -> None:
    """More often than a fault of its own is tried: that would have ended as a verdict."""
    settings = JudgeSettings(workspace=tmp_path / "one", store=tmp_path / "store", languages="python")
    async with Fencepost(database.url, redis_url=redis_url, job_settings=BRISK) as fp:
        judging = Judging(fp, settings)
        await judging.import_samples()
        async with judging.running():
            job_id = await judging.submit("guess-the-post", "python", RIGHT, author="ann")
            with database.connect_admin() as admin:
                admin.execute("update fencepost.job set headers = headers - 'needs'")
                admin.execute("update fencepost.job_waiting set need_id = null")

            async def claims() -> int:
                seen = await judging.standing(job_id)
                assert seen.result is None, seen.result
                return int(seen.job.get("attempt") or 0)

            await found(
                "it was put back again and again", claims, lambda count: count > JudgeSettings().tries
            )


async def test_without_its_directory_a_judge_judges_on(
    database: Database, redis_url: str, tmp_path: Path
) -> None:
    settings = JudgeSettings(
        workspace=tmp_path / "one",
        store=tmp_path / "store",
        languages="python",
        discovery=f"etcd://127.0.0.1:{free_port()}",
    )
    async with Fencepost(database.url, redis_url=redis_url, job_settings=BRISK) as fp:
        judging = Judging(fp, settings)
        await judging.import_samples()
        async with judging.running():
            job_id = await judging.submit("fence-posts", "python", RIGHT, author="ann")
            got = await judged(judging, job_id)
        value = fp.metrics.registry.get_sample_value
        failed, here = (
            value("fencepost_judge_loop_errors_total", {"loop": "judge-listing"}),
            value("fencepost_judge_worker_listed"),
        )

    assert got["result"]["verdict"] == "AC"
    assert failed
    assert here == 0
