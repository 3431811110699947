"""What a contestant is not shown: secret data, what tells of it, and of a conversation even the sample."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge._grading import CaseResult
from fencepost_judge._judging import Judgement
from fencepost_judge._role import JudgeRole
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office

SAMPLE, SECRET = "1357924680", "8642097531"


def package(folder: Path, *, interactive: bool) -> Path:
    kind = "type: interactive\n" if interactive else ""
    files = {
        "problem.yaml": f"problem_format_version: 2023-07\nname: Guess\nlimits: {{time_limit: 1}}\n{kind}",
        "statement/problem.en.md": "Guess the number.",
        "output_validator/guess.py": "raise SystemExit(42)\n",
    }
    for place, number in (("sample", SAMPLE), ("secret", SECRET)):
        files |= {f"data/{place}/1.in": f"{number}\n", f"data/{place}/1.ans": f"{number}\n"}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("interactive", [False, True])
async def test_a_problem_shows_its_samples_unless_they_are_what_the_validator_knows(
    database: Database, tmp_path: Path, interactive: bool
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        await office.judging.import_problem(package(tmp_path / "guess", interactive=interactive))
        told = (await office.ask("con", "GET", "/problems/guess")).text
        async with office.browser("con") as browser:
            page = (await browser.get("/judge/problems/guess")).text

    assert "Guess the number." in told
    assert "Guess the number." in page
    assert SECRET not in told + page
    assert [SAMPLE in told, SAMPLE in page] == [not interactive] * 2


OWNER = "judge/boot-1"
LETTER = 107
"""What a program read of a secret input, and ended with."""


async def judged(
    office: JudgeEnv, database: Database, *, contest: str | None = None, signal: bool = False
) -> int:
    """A submission of `con` that failed at a secret test, and said of it what it could."""
    job_id = await office.judging.submit(
        "echo", "python", {"main.py": PROGRAM["code"]}, author="con", contest=contest
    )
    how = f"It ended with {'signal' if signal else 'exit code'} {LETTER}."
    cases = [
        CaseResult(name="sample/1", verdict="AC", time_ms=41, mem_kb=9001, message="well done"),
        CaseResult(
            name="secret/1", verdict="RE", time_ms=217, mem_kb=20_107, message=how, errors="I read 107"
        ),
    ]
    judgement = Judgement(verdict="RE", message=how, time_ms=217, mem_kb=20_107, cases=cases)
    with database.connect() as connection:
        connection.execute("select * from fencepost.job_claim(%s, %s)", (job_id, OWNER))
        latest = [{"name": one.name, "time_ms": one.time_ms, "mem_kb": one.mem_kb} for one in cases]
        connection.execute(
            "select fencepost.job_progress(%s, 1, %s, %s)",
            (job_id, OWNER, Jsonb({"done": 2, "total": 2, "latest": latest})),
        )
    await office.fp.run(judge_calls.put_result(job_id, 1, OWNER, judgement))
    return job_id


@pytest.mark.parametrize("signal", [False, True])
async def test_how_a_program_ended_on_a_secret_test_is_for_juries(
    database: Database, tmp_path: Path, signal: bool
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        await office.add("jo", JudgeRole.JURY)
        job_id = await judged(office, database, signal=signal)
        told = [(await office.ask(who, "GET", f"/status/{job_id}")).json() for who in ("con", "jo")]
        async with office.browser("con") as browser:
            page = (await browser.get(f"/judge/submissions/{job_id}")).text

    entrant, jury = told
    # As a number of its own: an instant may contain its digits.
    assert not re.search(rf"(?<!\d){LETTER}(?!\d)", str(entrant["result"]))
    assert f"signal {LETTER}" not in page
    assert f"code {LETTER}" not in page
    assert entrant["result"]["verdict"] == "RE"
    assert entrant["result"]["cases"][0]["message"] == "well done"
    assert str(LETTER) in jury["result"]["message"]
    assert str(LETTER) in jury["result"]["cases"][1]["message"]


async def contest_of(office: JudgeEnv, clock: Clock, figures: str | None) -> None:
    now = clock.now()
    body: dict[str, Any] = {
        "title": "Autumn",
        "starts_at": (now - timedelta(hours=1)).isoformat(),
        "ends_at": (now + timedelta(hours=1)).isoformat(),
        "problems": {"A": "echo"},
    }
    body |= {"secret_figures": figures} if figures else {}
    put = await office.ask("jo", "PUT", "/judge/api/contests/autumn", json=body)
    assert put.status_code == 204, put.text
    await office.ask("con", "POST", "/judge/api/contests/autumn/contestants", json={})
    shown = (await office.ask("con", "GET", "/judge/api/contests/autumn")).json()
    assert shown["secret_figures"] == (figures or "rounded")


@pytest.mark.parametrize(
    ("figures", "time_ms", "mem_kb"),
    [
        ("shown", 217, 20_107),
        ("open", 217, 20_107),
        ("rounded", 300, 32_768),
        ("withheld", None, None),
        (None, 300, 32_768),
    ],
)
@pytest.mark.parametrize("beside", [False, True], ids=["in the contest", "beside the contest"])
async def test_a_contest_says_what_is_told_of_the_time_and_memory_of_secret_tests(
    database: Database,
    tmp_path: Path,
    clock: Clock,
    figures: str | None,
    time_ms: int | None,
    mem_kb: int | None,
    beside: bool,
) -> None:
    """Also of a program that is sent to the same problem without naming the contest."""
    async with open_office(database, tmp_path) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        await office.add("jo", JudgeRole.JURY)
        await contest_of(office, clock, figures)
        job_id = await judged(office, database, contest=None if beside else "autumn")
        told = (await office.ask("con", "GET", f"/status/{job_id}")).json()
        (listed,) = (await office.ask("con", "GET", "/submissions")).json()
        (jury,) = (await office.ask("jo", "GET", "/submissions?author=con")).json()
        async with office.browser("con") as browser:
            pages = [
                (await browser.get(place)).text
                for place in ("/judge/submissions", f"/judge/submissions/{job_id}")
            ]
        clock.advance(2 * 3600)
        later = (await office.ask("con", "GET", f"/status/{job_id}")).json()["result"]["time_ms"]

    sample, secret = told["result"]["cases"]
    seen = [told["result"], secret, told["progress"]["latest"][1], listed]
    assert [(one["time_ms"], one["mem_kb"]) for one in seen] == [(time_ms, mem_kb)] * 4
    assert (sample["time_ms"], sample["mem_kb"]) == (41, 9001)
    assert (jury["time_ms"], jury["mem_kb"]) == (217, 20_107)
    assert all(("217 ms" in page) == (figures in ("shown", "open")) for page in pages)
    # A program can write a secret input to its stderr: only an open contest shows it.
    assert secret["errors"] == ("I read 107" if figures == "open" else "")
    assert ("I read 107" in pages[1]) == (figures == "open")
    # After the contest a submission in it goes on telling as little; practice tells what was measured.
    assert later == (217 if beside else time_ms)
