"""A static validator judges the text of a program, and a problem may take answers in place of programs."""

from pathlib import Path

import pytest

from fencepost.embedded import Database
from fencepost_judge._judging import Judgement
from fencepost_judge._problem import ANSWERS, Problem
from fencepost_judge._role import JudgeRole
from fencepost_judge._verification import verify
from fencepost_judge.packages._reading import read_problem
from tests.integration.judge.judge_env import open_office
from tests.integration.judge.judge_site import JudgeSite, open_judge_site
from tests.unit.judge.test_packages import write
from tests.waiting_for import found

SHORT = """import os, sys
language, entry, feedback, most = sys.argv[1:]
text = open(entry).read()
assert feedback.endswith("/") and os.path.isdir(feedback)
open(feedback + "judgemessage.txt", "w").write(f"{language} {entry} {len(text)}")
sys.exit(42 if len(text) <= int(most) else 43)
"""
SCORED = """import sys
language, entry, feedback = sys.argv[1:]
open(feedback + "score_multiplier.txt", "w").write("0.5" if "sum" in open(entry).read() else "1")
sys.exit(42)
"""
PASS_FAIL = {
    "problem.yaml": "problem_format_version: 2025-09\nname: Short\nlimits: {time_limit: 2}\n",
    "data/secret/1.in": "1 2\n",
    "data/secret/1.ans": "3\n",
    "data/secret/test_group.yaml": "static_validation_score: pass-fail\nstatic_validator_args: ['60']\n",
    "static_validator/short.py": SHORT,
    "submissions/accepted/a.py": "print(sum(map(int, input().split())))\n",
    "submissions/wrong_answer/long.py": "print(sum(map(int, input().split())))\n" + "# padding\n" * 10,
}
SCORING = PASS_FAIL | {
    "problem.yaml": "problem_format_version: 2025-09\ntype: scoring\nname: Short\nlimits: {time_limit: 2}\n",
    "data/secret/test_group.yaml": "static_validation_score: 40\n",
    "data/secret/2.in": "5 6\n",
    "data/secret/2.ans": "11\n",
    "static_validator/short.py": SCORED,
}
ANSWERED = {
    "problem.yaml": "problem_format_version: 2025-09\ntype: submit-answer scoring\nname: Answers\n",
    "data/secret/easy.in": "1\n",
    "data/secret/easy.ans": "one\n",
    "data/secret/hard.in": "2\n",
    "data/secret/hard.ans": "two\n",
    "submissions/accepted/all/easy.out": "one\n",
    "submissions/accepted/all/hard.out": "two\n",
    "submissions/accepted/program.py": "print({'1': 'one', '2': 'two'}[input()])\n",
    "submissions/wrong_answer/none/hard.out": "one\n",
}


async def judged(site: JudgeSite, problem: Problem, sources: dict[str, str]) -> Judgement:
    files = {name: text.encode() for name, text in sources.items()}
    return await site.judge.judge(problem, ANSWERS, files)


async def test_a_program_is_rejected_for_its_text(tmp_path: Path) -> None:
    async with open_judge_site(tmp_path / "site") as site:
        read = read_problem(write(tmp_path / "p", PASS_FAIL), site.store)
        verified = [one async for one in verify(site.judge, read)]
        compiled = await site.sentence(read.problem, "c", '#include <stdio.h>\nint main(void){puts("3");}')

    assert [one.kept for one in verified] == [True, True], verified
    rejected = verified[1].got
    assert rejected is not None
    assert [(one.name, one.verdict) for one in rejected.cases] == [
        ("secret/static validation", "WA"),
        ("secret/1", "SK"),
    ]
    assert rejected.message == "python3 long.py 138"
    assert compiled.verdict == "AC"
    assert compiled.cases[0].message == "c main.c 45"


async def test_points_for_the_text_and_the_tests_add_up(tmp_path: Path) -> None:
    async with open_judge_site(tmp_path / "site") as site:
        problem = site.problem(SCORING)
        half = await site.sentence(problem, "python", "print(sum(map(int, input().split())))")
        whole = await site.sentence(problem, "python", "a, b = map(int, input().split())\nprint(a + b)")
        wrong = await site.sentence(problem, "python", "print(3)")

    assert (whole.verdict, whole.score) == ("AC", 100)
    assert (half.verdict, half.score) == ("PA", 80)
    assert (wrong.verdict, wrong.score) == ("PA", 70)


@pytest.mark.parametrize(
    "sources",
    [
        {"easy.out": "one\n", "hard.ans": "two\n"},
        {"main": "=== easy\none\n=== hard\ntwo\n"},
    ],
    ids=["a file for each", "one text"],
)
async def test_answers_are_judged_without_a_program(tmp_path: Path, sources: dict[str, str]) -> None:
    async with open_judge_site(tmp_path / "site") as site:
        problem = site.problem(ANSWERED)
        right = await judged(site, problem, sources)
        half = await judged(site, problem, {"easy.out": "one\n"})
        unknown = await judged(site, problem, {"easy.out": "one\n", "esay.out": "one\n"})

    assert (right.verdict, right.score) == ("AC", 100)
    assert (half.verdict, half.score, half.message) == ("PA", 50, "There is no answer to it.")
    assert (unknown.verdict, unknown.score) == ("CE", None)
    assert "easy, hard" in unknown.message


async def test_a_jury_answers_with_files_or_with_a_program(tmp_path: Path) -> None:
    async with open_judge_site(tmp_path / "site") as site:
        read = read_problem(write(tmp_path / "p", ANSWERED), site.store)
        verified = [one async for one in verify(site.judge, read)]

    assert read.problem.takes_answers
    assert [(one.submission.name, one.language, one.kept) for one in verified] == [
        ("accepted/all", ANSWERS, True),
        ("accepted/program.py", "python", True),
        ("wrong_answer/none", ANSWERS, True),
    ]


async def test_answers_are_submitted_where_a_problem_takes_them_and_nowhere_else(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        await office.judging.import_problem(write(tmp_path / "answered", ANSWERED))
        body = {"problem_id": "answered", "language": ANSWERS, "sources": {"easy.out": "one\n"}}
        program = {"problem_id": "answered", "language": "python", "code": "print(1)"}
        async with office.browser("con") as con, office.judging.running():
            page = await con.get("/judge/problems/answered")
            sent = await office.ask("con", "POST", "/submit", json=body)
            refused = [
                await office.ask("con", "POST", "/submit", json=one)
                for one in (program, {**body, "problem_id": "echo"})
            ]
            run = {"language": ANSWERS, "code": "one", "input": ""}
            tried = await office.ask("con", "POST", "/judge/api/custom-runs", json=run)

            async def look() -> str:
                asked = await office.ask("con", "GET", f"/status/{sent.json()['job_id']}")
                result = asked.json()["result"]
                return str(result["verdict"]) if result else ""

            verdict = await found("the answers are judged", look, bool)

    assert "=== NAME" in page.text
    assert "easy" in page.text
    assert verdict == "PA"
    assert [one.json()["field"] for one in refused] == ["language", "language"]
    assert tried.status_code == 400
