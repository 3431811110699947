"""How a submission ends is told the same way before and after its job is forgotten, and agrees everywhere."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fencepost.embedded import Database
from fencepost.errors import InvalidInput
from fencepost.jobs.settings import JobSettings
from fencepost.testing import Clock, at_crash_point
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _rejudging as rejudging
from fencepost_judge._judging import Judgement
from fencepost_judge._rejudging import Filter
from fencepost_judge._requeue import needs_of
from fencepost_judge._role import OPERATOR, JudgeRole
from fencepost_judge._service import FINAL_STATUS, QUEUE, Judging
from fencepost_judge._visibility import as_json
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office
from tests.waiting_for import found

OWNER = "judge/boot-1"
BRISK = JobSettings(poll_seconds=0.05, sweep_interval_seconds=0.1, heartbeat_seconds=1)


async def submitted(office: JudgeEnv, author: str = "ann") -> int:
    return await office.judging.submit("echo", "python", {"main.py": PROGRAM["code"]}, author=author)


def operator(database: Database, *calls: tuple[str, tuple[Any, ...]]) -> None:
    with database.connect() as connection:
        for call, values in calls:
            connection.execute(call.encode(), values)


def buried(database: Database, job_id: int) -> None:
    operator(
        database,
        ("select * from fencepost.job_claim(%s, %s)", (job_id, OWNER)),
        ("select fencepost.job_bury(%s, 1, %s, 'broken')", (job_id, OWNER)),
    )


async def told(office: JudgeEnv, job_id: int) -> dict[str, Any]:
    document = as_json(await office.judging.standing(job_id), OPERATOR)
    return {name: document[name] for name in ("status", "final_status", "attempt_id", "result")}


async def test_a_submission_that_ended_without_a_verdict_reads_the_same_after_pruning(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("ann", JudgeRole.CONTESTANT)
        cancelled, discarded, dead = [await submitted(office) for _ in range(3)]
        operator(database, ("select fencepost.job_cancel(%s, 'jo')", (cancelled,)))
        buried(database, discarded)
        buried(database, dead)
        operator(database, ("select fencepost.job_discard(%s, 'jo')", (discarded,)))
        before = [await told(office, one) for one in (cancelled, discarded, dead)]
        clock.advance(3600)
        operator(database, ("select fencepost.job_prune('1 minute', 100, true)", ()))
        after = [await told(office, one) for one in (cancelled, discarded, dead)]
        listed = (await office.ask("ann", "GET", "/submissions")).json()
        async with office.browser("ann") as browser:
            page = (await browser.get("/judge/submissions")).text
            alone = (await browser.get(f"/judge/submissions/{cancelled}")).text

    assert [(one["status"], one["final_status"]) for one in before] == [
        ("CANCELLED", "cancelled"),
        ("CANCELLED", "discarded"),
        ("DEAD", "failed"),
    ]
    assert after == before
    assert [one["status"] for one in reversed(listed)] == ["CANCELLED", "CANCELLED", "DEAD"]
    assert ("CANCELLED" in page, "PENDING" in page) == (True, False)
    assert "CANCELLED" in alone


async def test_a_submission_that_is_replayed_and_pruned_reads_by_its_last_end(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        job_id = await submitted(office)
        operator(
            database,
            ("select fencepost.job_cancel(%s, 'jo')", (job_id,)),
            ("select fencepost.job_replay(%s, 'jo', 'cancelled')", (job_id,)),
        )
        waiting = await told(office, job_id)
        buried(database, job_id)
        clock.advance(3600)
        operator(database, ("select fencepost.job_prune('1 minute', 100, true)", ()))
        after = await told(office, job_id)

    assert (waiting["status"], after["status"]) == ("PENDING", "DEAD")


def finished(database: Database, job_id: int, verdict: str) -> None:
    """As a worker does: the verdict and the finish, in one commit."""
    status = FINAL_STATUS.get(verdict, verdict)
    put = judge_calls.put_result(job_id, 1, OWNER, Judgement(verdict=verdict))
    operator(database, ("select * from fencepost.job_claim(%s, %s)", (job_id, OWNER)))
    with database.connect() as connection, connection.transaction():
        connection.execute(put.sql, put.arguments)
        connection.execute(
            "select fencepost.job_finish(%s, 1, %s, %s, %s)",
            (job_id, OWNER, status, Jsonb({"verdict": verdict})),
        )


async def rejudged(office: JudgeEnv, database: Database, job_id: int, verdict: str) -> int:
    opened = await office.judging.rejudge(Filter(submissions=[job_id]), reason="test 7 was wrong", actor="jo")
    (line,) = await office.fp.run(rejudging.changes(opened.generation, changed=False))
    finished(database, line.job_id, verdict)
    return opened.generation


def viewed(database: Database, job_id: int) -> tuple[str, str, str]:
    """What the views say: the final status twice, and the verdict in the job's result."""
    with database.connect() as connection:
        row = connection.execute(
            "select j.final_status, s.status, j.result ->> 'verdict' from fencepost.jobs j"
            " join fencepost.submissions s using (job_id) where j.job_id = %s",
            (job_id,),
        ).fetchone()
    assert row
    return row[0], row[1], row[2]


@pytest.mark.parametrize("verdict", ["AC", "TLE", "MLE", "WA"])
async def test_the_final_status_agrees_with_the_verdict_after_a_rejudging(
    database: Database, tmp_path: Path, verdict: str, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        job_id = await submitted(office)
        finished(database, job_id, "RE")
        clock.advance(1)
        generation = await rejudged(office, database, job_id, verdict)
        beside = viewed(database, job_id)
        await office.fp.run(rejudging.apply(generation, "jo"))
        after, seen = await told(office, job_id), viewed(database, job_id)
        clock.advance(3600)
        operator(database, ("select fencepost.job_prune('1 minute', 100)", ()))
        pruned = await told(office, job_id)
        with database.connect() as connection:
            life = connection.execute(
                "select event, actor, detail from fencepost.explain(%s)", (f"job:{job_id}",)
            ).fetchall()

    status = FINAL_STATUS.get(verdict, verdict)
    assert beside == ("RE", "RE", "RE")
    assert seen == (status, status, verdict)
    assert (after["final_status"], pruned["final_status"]) == (status, status)
    assert life[-1] == ("rejudged", "jo", {"from": "RE", "to": status, "generation": generation})


async def test_the_judges_own_failure_changes_no_final_status(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        job_id = await submitted(office)
        finished(database, job_id, "WA")
        await office.fp.run(rejudging.apply(await rejudged(office, database, job_id, "SE"), "jo"))

        assert viewed(database, job_id) == ("WA", "WA", "WA")


@asynccontextmanager
async def worked(office: JudgeEnv, judging: Judging, verdict: str) -> AsyncGenerator[None]:
    """A worker whose judge says this of everything."""

    async def judge(*given: Any, **options: Any) -> Judgement:
        return Judgement(verdict=verdict)

    stub: Any = SimpleNamespace(languages={"python": None}, judge=judge)
    judging._judge = stub  # pyright: ignore[reportPrivateUsage]
    worker = office.fp.jobs.worker(BRISK, queues=[QUEUE], offers=needs_of(stub.languages)["needs"])
    working = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await working
        judging._judge = None  # pyright: ignore[reportPrivateUsage]


async def test_a_first_result_that_comes_too_late_says_what_stands(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        job_id = await submitted(office)
        generation = await rejudged(office, database, job_id, "AC")

        def apply_first() -> None:
            operator(database, ("select fencepost.judge_rejudge_apply(%s, 'jo')", (generation,)))

        with at_crash_point("judge.after_run", apply_first):
            async with worked(office, office.judging, "WA"):
                look = office.fp.run
                await found(
                    "the late job has ended",
                    lambda: look(judge_calls.get_standings([job_id])),
                    lambda seen: seen[0].job.get("state") == "finished",
                )
        after = await told(office, job_id)

    assert (after["result"]["verdict"], after["final_status"]) == ("AC", "AC")
    assert viewed(database, job_id) == ("AC", "AC", "AC")


def test_the_database_names_final_statuses_as_the_service_does(database: Database) -> None:
    verdicts = ["AC", "PA", "WA", "PE", "TLE", "MLE", "OLE", "RE", "CE", "SE"]
    with psycopg.connect(database.admin_url) as connection:
        row = connection.execute(
            "select array_agg(fencepost._judge_final_status(v) order by n)"
            " from unnest(%s::text[]) with ordinality u (v, n)",
            (verdicts,),
        ).fetchone()

    assert row == ([FINAL_STATUS.get(one, one) for one in verdicts],)


@pytest.mark.parametrize("sources", [{"main.py": ""}, {"main.py": " \n\t\n"}, {"main.py": "", "b.py": "\n"}])
async def test_an_empty_program_is_refused(
    database: Database, tmp_path: Path, sources: dict[str, str]
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("ann", JudgeRole.CONTESTANT)
        with pytest.raises(InvalidInput, match="empty"):
            await office.judging.submit("echo", "python", sources, author="ann")
        body = {"problem_id": "echo", "language": "python", "sources": sources}
        answers = [
            await office.ask("ann", "POST", "/submit", json=body),
            await office.ask(
                "ann",
                "POST",
                "/judge/api/custom-runs",
                json={"language": "python", "sources": sources, "input": ""},
            ),
        ]

    assert [(one.status_code, one.json()["field"]) for one in answers] == [(400, "code")] * 2
