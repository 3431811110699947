"""Imports: what a stranger's package may cost, and what it may delay."""

import asyncio
import io
import json
import shutil
import threading
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost_judge import _service as service
from fencepost_judge._role import JudgeRole
from fencepost_judge.packages._reading import ReadProblem, read_problem
from tests.integration.judge.judge_env import PROGRAM, open_office
from tests.unit.judge.test_packages import LEGACY
from tests.unit.test_strict_yaml import alias_bomb, merge_bomb
from tests.waiting_for import until

SEVEN = 7
needs_boxes = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc"
)


def zipped(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


@pytest.mark.parametrize("bomb", [alias_bomb(9), merge_bomb(9)], ids=["aliases", "merge keys"])
async def test_a_bomb_is_answered_and_no_caller_waits_for_it(
    database: Database, tmp_path: Path, bomb: str
) -> None:
    async with open_office(database, tmp_path) as office, asyncio.timeout(30):
        await office.add("jo", JudgeRole.JURY)
        body = zipped(LEGACY | {"problem.yaml": f"name: x\n{bomb}\n"})
        answered = await office.ask("jo", "PUT", "/problems/bomb", content=body)

    assert (answered.status_code, answered.json()["field"]) == (400, "problem.yaml"), answered.text
    assert "anchor" in answered.json()["message"]


async def test_imports_that_hang_delay_no_page_and_are_bounded(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    body = zipped(LEGACY)

    def slowly(*given: Any, **named: Any) -> ReadProblem:
        assert go_on.wait(120)
        return read_problem(*given, **named)

    async with open_office(database, tmp_path) as office, asyncio.timeout(120), AsyncExitStack() as stack:
        await office.add("jo", JudgeRole.JURY)
        browser = await stack.enter_async_context(office.browser("jo"))
        # As many threads as a machine with few cores has for everything.
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(SEVEN))
        monkeypatch.setattr(service, "read_problem", slowly)
        try:
            asked = [
                asyncio.create_task(office.ask("jo", "PUT", f"/problems/p{number}", content=body))
                for number in range(service.IMPORTS_MAX)
            ]
            await until("all imports are under way", lambda: office.judging.imports == service.IMPORTS_MAX)
            refused = await office.ask("jo", "PUT", "/problems/more", content=body)
            page = await asyncio.wait_for(browser.get("/judge/problems/echo"), 20)
        finally:
            go_on.set()
        answers = await asyncio.gather(*asked)

    assert page.status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (429, "backpressure"), refused.text
    assert {one.status_code for one in answers} == {200}


@pytest.mark.parametrize(
    "body",
    [
        "[" * 200_000,
        '{"a":' * 100_000,
        '{"problem_id": ' + "9" * 60_000 + "}",
        json.dumps(PROGRAM).replace('"python"', "1e999"),
        '{"problem_id": "echo", "problem_id": "echo"',
        json.dumps(PROGRAM | {"code": "\ud800"}),
    ],
    ids=["deep", "deep keys", "long number", "infinite", "cut", "half a character"],
)
async def test_json_without_a_floor_is_refused_as_what_it_is(
    database: Database, tmp_path: Path, body: str
) -> None:
    async with open_office(database, tmp_path) as office, asyncio.timeout(30):
        await office.add("con", JudgeRole.CONTESTANT)
        answered = await office.ask(
            "con", "POST", "/submit", content=body.encode(), headers={"Content-Type": "application/json"}
        )

    assert 400 <= answered.status_code < 500, answered.text
    assert len(answered.text) < 3000


SLEEPER = """
import time
begun = time.process_time()
while time.process_time() - begun < {seconds}: pass
print(input())
"""
UNTIMED = {
    "problem.yaml": "problem_format_version: 2025-09\nname: Untimed\n",
    "data/secret/1.in": "1\n",
    "data/secret/1.ans": "1\n",
    "submissions/accepted/quick.py": "print(input())\n",
    "submissions/accepted/slow.py": SLEEPER.format(seconds=0.8),
    "submissions/time_limit_exceeded/slower.py": SLEEPER.format(seconds=20),
}


@needs_boxes
async def test_a_limit_that_is_not_given_is_inferred_and_kept_with_what_was_measured(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("jo", JudgeRole.JURY)
        await office.add("con", JudgeRole.CONTESTANT)
        put = await office.ask("jo", "PUT", "/problems/untimed", content=zipped(UNTIMED), timeout=120)
        seen = (await office.ask("jo", "GET", "/problems/untimed")).json()
        hidden = (await office.ask("con", "GET", "/problems/untimed")).json()
        async with office.browser("jo") as jo:
            page = (await jo.get("/judge/problems/untimed")).text

    assert put.status_code == 200, put.text
    timing = seen["timing"]
    # Twice the slowest, in whole seconds; a busy machine may need more.
    assert (timing["origin"], timing["slowest"]) == ("inferred", "accepted/slow.py")
    assert timing["slowest_ms"] >= 800
    assert seen["time_ms"] == -(-timing["slowest_ms"] * 2 // 1000) * 1000
    assert [(run["name"], run["bound"]) for run in timing["runs"]] == [
        ("accepted/quick.py", "lower"),
        ("accepted/slow.py", "lower"),
        ("time_limit_exceeded/slower.py", "upper"),
    ]
    assert timing["runs"][2]["verdict"] == "TLE"
    assert hidden["timing"] is None
    assert "The time limit is inferred: accepted/slow.py took" in page


@needs_boxes
async def test_a_solution_that_should_be_too_slow_and_is_not_leaves_no_limit(
    database: Database, tmp_path: Path
) -> None:
    quick = {"submissions/time_limit_exceeded/slower.py": "print(input())\n"}
    async with open_office(database, tmp_path) as office:
        await office.add("jo", JudgeRole.JURY)
        new = await office.ask("jo", "PUT", "/problems/p", content=zipped(UNTIMED | quick), timeout=120)
        old_files = UNTIMED | quick | {"problem.yaml": "name: Old\n"}
        old = await office.ask("jo", "PUT", "/problems/p", content=zipped(old_files), timeout=120)
        told = (await office.ask("jo", "GET", "/problems/p")).json()["timing"]

    assert (new.status_code, new.json()["field"]) == (400, "time_limit")
    assert "time_limit_exceeded/slower.py should be too slow" in new.json()["message"]
    # The old format asks for no such thing: it is told.
    assert old.status_code == 200, old.text
    assert (told["factor"], "should be too slow" in told["note"]) == (5, True)


async def test_without_solutions_the_import_asks_for_a_limit_and_takes_it(
    database: Database, tmp_path: Path
) -> None:
    bare = {name: text for name, text in UNTIMED.items() if not name.startswith("submissions/")}
    async with open_office(database, tmp_path) as office:
        await office.add("jo", JudgeRole.JURY)
        asked = await office.ask("jo", "PUT", "/problems/p", content=zipped(bare))
        given = await office.ask("jo", "PUT", "/problems/p?time_limit=2.5", content=zipped(bare))
        seen = (await office.ask("jo", "GET", "/problems/p")).json()

    assert (asked.status_code, asked.json()["field"]) == (400, "time_limit")
    assert "no accepted solution" in asked.json()["message"]
    assert (given.status_code, seen["time_ms"], seen["timing"]["origin"]) == (200, 2500, "given")


LIMITED = LEGACY | {
    "problem.yaml": "problem_format_version: 2025-09\nname: Limited\nlanguages: [python3]\n"
    "limits: {time_limit: 1, code: 1}\n",
    "attachments/tool kit.py": "<script>alert(1)</script>",
}


async def test_languages_code_limit_and_attachments_of_a_problem(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("jo", JudgeRole.JURY)
        await office.add("con", JudgeRole.CONTESTANT)
        assert (await office.ask("jo", "PUT", "/problems/p", content=zipped(LIMITED))).status_code == 200
        program = {"problem_id": "p", "language": "python", "code": "print(1)"}
        right = await office.ask("con", "POST", "/submit", json=program)
        other = await office.ask("con", "POST", "/submit", json=program | {"language": "c"})
        long = await office.ask("con", "POST", "/submit", json=program | {"code": "#" * 1025})
        told = (await office.ask("con", "GET", "/problems/p")).json()
        file = await office.ask("con", "GET", "/problems/p/attachments/tool%20kit.py")
        none = await office.ask("con", "GET", "/problems/p/attachments/other")
        large = LIMITED | {"problem.yaml": LIMITED["problem.yaml"].replace("code: 1", "code: 1000")}
        refused = await office.ask("jo", "PUT", "/problems/q", content=zipped(large))
        async with office.browser("con") as con:
            page = await con.get("/judge/problems/p")
            shown = await con.get("/judge/problems/p/attachments/tool%20kit.py")

    assert right.status_code == 202, right.text
    assert (other.status_code, other.json()["field"]) == (400, "language")
    assert (long.status_code, long.json()["field"]) == (400, "code")
    assert (told["languages"], told["attachments"]) == (["pypy", "python"], ["tool kit.py"])
    assert (file.content, none.status_code) == (b"<script>alert(1)</script>", 404)
    for answer in (file, shown):
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment;")
    assert "JUDGE_SOURCE_MAX_BYTES" in refused.json()["message"]
    assert 'value="c"' not in page.text
    assert 'value="python"' in page.text
    assert "tool%20kit.py" in page.text


async def test_statements_of_every_form_are_shown_or_handed_out(database: Database, tmp_path: Path) -> None:
    files = {name: text for name, text in LEGACY.items() if not name.startswith("problem_statement")} | {
        "problem_statement/problem.en.tex": "Add \\textbf{them}.",
        "problem_statement/problem.sv.html": "<p>Addera <b>dem</b>.</p><script>alert(1)</script>",
        "problem_statement/problem.en.pdf": "%PDF-1.4 x",
    }
    async with open_office(database, tmp_path) as office:
        await office.add("jo", JudgeRole.JURY)
        await office.add("con", JudgeRole.CONTESTANT)
        assert (await office.ask("jo", "PUT", "/problems/p", content=zipped(files))).status_code == 200
        told = (await office.ask("con", "GET", "/problems/p")).json()
        written = await office.ask("con", "GET", "/problems/p/statements/sv.html")
        async with office.browser("con") as con:
            usual = await con.get("/judge/problems/p")
            swedish = await con.get("/judge/problems/p?statement=sv.html")
            pdf = await con.get("/judge/problems/p/statements/en.pdf")
            none = await con.get("/judge/problems/p?statement=fr.tex")

    assert (told["statement"], told["statements"]) == ("Add **them**.\n", ["en.tex", "en.pdf", "sv.html"])
    # Only a PDF is shown as it is: HTML of a package would be a page of this host.
    assert written.headers["content-disposition"].startswith("attachment;")
    assert (pdf.headers["content-type"], pdf.content) == ("application/pdf", b"%PDF-1.4 x")
    assert pdf.headers["content-disposition"].startswith("inline;")
    assert "<strong>them</strong>" in usual.text
    assert "/judge/problems/p/statements/en.pdf" in usual.text
    assert "Addera <b>dem</b>." in swedish.text
    assert "alert(1)" not in swedish.text
    assert none.status_code == 404
