"""Imports: what a stranger's package may cost, and whom it may delay."""

import asyncio
import io
import json
import threading
import zipfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.judge import service
from fencepost.judge.packages.reading import ReadProblem, read_problem
from fencepost.judge.role import Role
from tests.integration.judge.office import PROGRAM, open_office
from tests.integration.judge.waiting import until
from tests.unit.judge.test_packages import LEGACY
from tests.unit.test_strict_yaml import alias_bomb, merge_bomb

SEVEN = 7


def zipped(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


@pytest.mark.parametrize("bomb", [alias_bomb(9), merge_bomb(9)], ids=["aliases", "merge keys"])
async def test_a_bomb_is_answered_and_nobody_waits_for_it(
    database: Database, tmp_path: Path, bomb: str
) -> None:
    async with open_office(database, tmp_path) as office, asyncio.timeout(30):
        await office.add("jo", Role.JURY)
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
        await office.add("jo", Role.JURY)
        browser = await stack.enter_async_context(office.browser("jo"))
        # As many threads as a machine with few cores has for everything.
        loop = asyncio.get_running_loop()
        loop.set_default_executor(service.ThreadPoolExecutor(SEVEN))
        monkeypatch.setattr(service, "read_problem", slowly)
        try:
            asked = [
                asyncio.create_task(office.ask("jo", "PUT", f"/problems/p{number}", content=body))
                for number in range(service.IMPORTS_MAX)
            ]
            await until("all imports are under way", lambda: office.judging.imports == service.IMPORTS_MAX)
            refused = await office.ask("jo", "PUT", "/problems/more", content=body)
            page = await asyncio.wait_for(browser.get("/court/problems/echo"), 20)
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
        await office.add("con", Role.CONTESTANT)
        answered = await office.ask(
            "con", "POST", "/submit", content=body.encode(), headers={"Content-Type": "application/json"}
        )

    assert 400 <= answered.status_code < 500, answered.text
    assert len(answered.text) < 3000
