"""Custom runs: a program on an input of its author, shown to the author only, and deleted after a while."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencepost.cli._app import run
from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.errors import NotFound, StaleAttempt
from fencepost.testing import Clock
from fencepost_judge import _custom_runs as custom_runs
from fencepost_judge._custom_run_executor import OUTPUT_BYTES_MAX, CustomRunOutcome
from fencepost_judge._service import Judging
from tests.acceptance.judge.judge_workers import judging_of, open_judging
from tests.waiting_for import found

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

LOUD = "import sys\nprint(int(input()) * 2)\nprint('oh', file=sys.stderr)\n"


async def tried(judging: Judging, source: str, given: str | None, language: str = "python") -> dict[str, Any]:
    name = "main.py" if language == "python" else "main.c"
    job_id = await judging.custom_runs.submit(language, {name: source}, given, author="ann")

    async def look() -> dict[str, Any]:
        return dict((await judging.custom_runs.get(job_id)).outcome or {})

    return await found(f"custom run {job_id} is over", look, bool)


async def test_a_custom_run_reports_how_it_ended_and_nothing_is_judged(
    database: Database, redis_url: str, tmp_path: Path
) -> None:
    async with open_judging(database.url, redis_url, tmp_path, "one") as judging:
        ran = await tried(
            judging, "import sys\nprint(int(input()) * 2)\nprint('oh', file=sys.stderr)", "21\n"
        )
        failed = await tried(judging, "raise SystemExit(3)", "")
        slow = await tried(judging, "while True: pass", "")
        much = await tried(judging, "print('\\0' + 'x' * 100_000)", "")
        compiled = await tried(judging, "int main(void){return 0;}", None, "c")
        broken = await tried(judging, "int main(", None, "c")
        left = list((tmp_path / "one").glob("*/apps/*"))
        history = await judging.history("ann", None, 10)
    with psycopg.connect(database.admin_url) as connection:
        kept = connection.execute("select f.result, f.final_status from fencepost.job_finished f").fetchall()

    assert (ran["verdict"], ran["output"], ran["errors"], ran["cut"]) == ("OK", "42\n", "oh\n", False)
    assert (failed["verdict"], failed["exit_code"], slow["verdict"]) == ("RE", 3, "TLE")
    assert (len(much["output"]), much["output"][:2], much["cut"]) == (OUTPUT_BYTES_MAX, "\ufffdx", True)
    assert (compiled["verdict"], compiled["output"], broken["verdict"]) == ("OK", "", "CE")
    assert "main.c" in broken["message"]
    assert (left, history) == ([], [])
    assert sorted(kept) == sorted((None, word) for word in ("OK", "RE", "TLE", "OK", "OK", "CE"))


async def test_a_custom_run_is_deleted_when_it_expires(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with Fencepost(database.url) as fp:
        judging = judging_of(fp, tmp_path, "one")
        job_id = await judging.custom_runs.submit("python", {"main.py": "1"}, "secret", author="ann")
        clock.advance(judging.settings.custom_run_keep_seconds - 10)
        kept = await judging.custom_runs.get(job_id)
        clock.advance(10)
        with pytest.raises(NotFound):
            await judging.custom_runs.get(job_id)
        with psycopg.connect(database.admin_url) as connection:
            before = connection.execute("select count(*) from fencepost.judge_custom_run").fetchone()
            await judging.custom_runs.prune()
            after = connection.execute("select count(*) from fencepost.judge_custom_run").fetchone()

    assert (kept.input, before, after) == ("secret", (1,), (0,))


async def test_the_outcome_needs_the_jobs_fence_and_its_time_begins_with_it(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with Fencepost(database.url) as fp:
        judging = judging_of(fp, tmp_path, "one")
        keep_seconds = judging.settings.custom_run_keep_seconds
        job_id = await judging.custom_runs.submit("python", {"main.py": "1"}, "", author="ann")
        clock.advance(keep_seconds - 10)
        with database.connect() as connection:
            for owner in ("old", "new"):
                connection.execute("select * from fencepost.job_claim(%s, %s)", (job_id, owner))
                if owner == "old":
                    connection.execute("select * from fencepost.job_release(%s, 1, 'old')", (job_id,))
        with pytest.raises(StaleAttempt):
            await fp.run(custom_runs.done(job_id, 1, "old", CustomRunOutcome(verdict="RE")))
        await fp.run(custom_runs.done(job_id, 2, "new", CustomRunOutcome(verdict="OK")))
        clock.advance(keep_seconds - 10)
        kept = await judging.custom_runs.get(job_id)

    assert kept.outcome["verdict"] == "OK"


async def test_a_custom_run_is_typed_and_its_outcome_shown(
    database: Database,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("JUDGE_STORE", str(tmp_path / "store"))
    (tmp_path / "twice.py").write_text(LOUD)
    (tmp_path / "in").write_text("21\n")
    async with open_judging(database.url, redis_url, tmp_path, "one"):
        code = await asyncio.to_thread(run, ("judge", "try", "twice.py", "--input", "in"))

    first, *rest = capsys.readouterr().out.splitlines()
    assert (code, first.split()[0], rest) == (0, "OK", ["42", "oh"])
