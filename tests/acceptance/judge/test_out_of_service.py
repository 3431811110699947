"""A judge that produces system errors, beside one that does not, and alone."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.kernel import worker as kernel_worker
from fencepost.testing import Child, Clock, Signals
from fencepost_judge._judging import Judge, JudgeFault
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from tests.acceptance.judge.judge_workers import BRISK, judge, judging_of, open_judging
from tests.acceptance.judge.test_judged_once import RIGHT, judged

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")


@asynccontextmanager
async def judge_of(
    database: Database, redis_url: str, folder: Path, name: str, **changes: Any
) -> AsyncGenerator[Judging]:
    """A judge of a name of its own, as on a host of its own."""
    brisk = BRISK.model_copy(update={"worker_id": name})
    async with Fencepost(database.url, redis_url=redis_url, job_settings=brisk) as fp:
        judging = judging_of(fp, folder, name, **changes)
        await judging.import_samples()
        async with judging.running():
            yield judging


def make_sick(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> list[str]:
    """Let the judge of this name fail at everything; answers the jobs that it fails at."""
    failed, well = list[str](), Judge.judge

    async def fail(self: Judge, *args: Any, **options: Any) -> Any:
        if f"/{name}/" in str(self._workspace.folder):  # pyright: ignore[reportPrivateUsage]
            failed.append(options["job_id"])
            raise error
        return await well(self, *args, **options)

    monkeypatch.setattr(Judge, "judge", fail)
    return failed


def rows(database: Database, query: LiteralString) -> list[Any]:
    with psycopg.connect(database.admin_url) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    "error", [JudgeFault("sandbox: no space left on device"), OSError(28, "No space left on device")]
)
async def test_a_sick_judge_is_taken_out_and_its_submissions_are_judged_elsewhere(
    database: Database,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    failed = make_sick(monkeypatch, "sick", error)
    with Signals() as signals:
        async with judge_of(database, redis_url, tmp_path, "sick") as sick:
            jobs = [await sick.submit("fence-posts", "python", RIGHT, author="ann") for _ in range(6)]
            async with judge_of(database, redis_url, tmp_path, "well"):
                await signals.wait("judge.out_of_service", within=60)
                got = [await judged(sick, job_id) for job_id in jobs]
                listed = await sick.fp.run(kernel_worker.listing())

    assert [one["result"]["verdict"] for one in got] == ["AC"] * 6
    # No submission was charged for the judge's errors.
    assert rows(database, "select distinct tries from fencepost.job_finished") == [(1,)]
    assert len(failed) >= 3
    states = {one.name: (one.state, one.actor) for one in listed}
    assert states == {"sick": ("disabled", "judge"), "well": ("working", None)}
    (told,) = [record for record in caplog.messages if "judge_out_of_service" in record]
    assert "system errors in a row" in told
    assert "fencepost workers enable sick@" in told


async def test_a_judge_alone_keeps_submissions_waiting_until_a_person_enables_it(
    database: Database,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Signals() as signals:
        async with judge_of(database, redis_url, tmp_path, "only", errors_in_a_row=2) as judging:
            with monkeypatch.context() as sickness:
                make_sick(sickness, "only", JudgeFault("sandbox: clone failed"))
                jobs = [await judging.submit("fence-posts", "python", RIGHT, author="ann") for _ in range(3)]
                await signals.wait("judge.out_of_service", within=60)
            await signals.wait("worker.out_of_service", within=60)
            unserved = rows(database, "select message from fencepost.unserved_work")
            results = rows(database, "select * from fencepost.judge_result")
            (held,) = rows(database, "select target from fencepost.worker_holds")
            await judging.fp.run(kernel_worker.enable(held[0], "ann", "a new kernel"))
            got = [await judged(judging, job_id) for job_id in jobs]

    assert results == []
    assert len(unserved) == 1
    assert unserved[0][0].endswith("waiting, no worker serves it; 1 out of service")
    (told,) = [record for record in caplog.messages if "judge_out_of_service" in record]
    assert "No other judge is in service: submissions wait." in told
    assert [one["result"]["verdict"] for one in got] == ["AC"] * 3


async def test_lease_and_tries_are_those_of_the_settings(
    database: Database, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sick(monkeypatch, "only", JudgeFault("sandbox: clone failed"))
    changes = {"tries": 2, "lease_seconds": 7.5, "errors_in_a_row": 0, "errors_share": 0}
    async with judge_of(database, redis_url, tmp_path, "only", **changes) as judging:
        job_id = await judging.submit("fence-posts", "python", RIGHT, author="ann")
        custom = await judging.custom_runs.submit("python", RIGHT, "9 3", author="ann")
        got = await judged(judging, job_id)
    assert got["result"]["verdict"] == "SE"
    # The first error is the judge's; two more are charged.
    assert rows(database, "select attempt, tries from fencepost.job_finished order by job_id limit 1") == [
        (3, 2)
    ]
    terms = rows(database, "select job_id, extract(epoch from lease)::float, tries_max from fencepost.job")
    assert sorted(terms) == [(job_id, 7.5, 2), (custom, 7.5, 2)]


async def sick_judge(url: str, redis_url: str, folder: str) -> None:
    """A judge in a process of its own that fails at everything."""

    async def fail(self: Judge, *args: Any, **options: Any) -> Any:
        raise JudgeFault("sandbox: clone failed")

    Judge.judge = fail  # type: ignore[method-assign]
    await judge(url, redis_url, folder)


@pytest.mark.parametrize(
    ("point", "errors", "tries"), [("judge.before_system_error", 0, 2), ("judge.after_system_error", 1, 1)]
)
async def test_a_judge_that_is_killed_beside_its_error_leaves_all_of_it_or_nothing(
    database: Database, redis_url: str, tmp_path: Path, clock: Clock, point: str, errors: int, tries: int
) -> None:
    async with open_judging(database.url, redis_url, tmp_path, "asking", work=False) as asking:
        await asking.import_samples()
        job_id = await asking.submit("fence-posts", "python", RIGHT, author="ann")
    with Child(sick_judge, database.url, redis_url, str(tmp_path), crash=f"{point}:kill") as child:
        child.be_killed(within=60)
    assert len(rows(database, "select * from fencepost.judge_system_error")) == errors
    assert rows(database, "select count(*) from fencepost.job_running") == [(1 - errors,)]
    clock.advance(31)
    async with open_judging(database.url, redis_url, tmp_path, "survivor") as judging:
        got = await judged(judging, job_id)
    assert got["result"]["verdict"] == "AC"
    # Only a judge that was lost without a word is charged.
    assert rows(database, "select tries from fencepost.job_finished") == [(tries,)]


def test_the_settings_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {
        "JUDGE_LEASE_SEC": "45",
        "JUDGE_TRIES": "7",
        "JUDGE_ERRORS_IN_A_ROW": "5",
        "JUDGE_ERRORS_WINDOW": "50",
        "JUDGE_ERRORS_SHARE": "0.25",
    }
    settings = JudgeSettings.load(named)
    assert (settings.lease_seconds, settings.tries) == (45.0, 7)
    assert (settings.errors_in_a_row, settings.errors_window, settings.errors_share) == (5, 50, 0.25)
