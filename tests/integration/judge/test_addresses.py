"""Where the system keeps its things is for those who run it: no address of it reaches a contestant."""

from pathlib import Path
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.pool import CallLost
from fencepost_judge._role import JudgeRole
from fencepost_judge._store import Store, StoreUnavailable
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office
from tests.integration.judge.test_secrets import package

ADDRESS = "10.1.2.3"
REASON = f"JUDGE_STORE s3://private-bucket/data cannot be reached: http://{ADDRESS}:9000 refused"


def cut_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(store: Store, digest: str) -> bytes:
        raise StoreUnavailable(REASON)

    monkeypatch.setattr(Store, "get", get)


async def answers(office: JudgeEnv, who: str) -> list[str]:
    """What a problem with samples looks like to an account, by program and by browser."""
    told = await office.ask(who, "GET", "/problems/guess")
    async with office.browser(who) as browser:
        page = await browser.get("/judge/problems/guess")
    assert (told.status_code, page.status_code) == (503, 503)
    assert told.json()["code"] == "unavailable"
    return [told.text, page.text]


async def test_a_store_that_is_away_does_not_tell_a_contestant_where_it_is(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        await office.add("jo", JudgeRole.JURY)
        await office.judging.import_problem(package(tmp_path / "guess", interactive=False))
        cut_store(monkeypatch)
        hidden, open_ = await answers(office, "con"), await answers(office, "jo")

    for text in hidden:
        assert ADDRESS not in text
        assert "private-bucket" not in text
        assert "Try again" in text
    assert all(ADDRESS in text for text in open_)


async def test_a_database_that_is_away_does_not_either(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_office(database, tmp_path) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        fine = office.fp.transaction

        def cut(*given: Any, **options: Any) -> Any:
            raise CallLost(f'connection to server at "{ADDRESS}", port 5432 failed')

        async with office.browser("con") as browser:
            monkeypatch.setattr(office.fp, "transaction", cut)
            told = await office.ask("con", "POST", "/submit", json=PROGRAM)
            page = await browser.send("/judge/submissions", **PROGRAM)
            monkeypatch.setattr(office.fp, "transaction", fine)

    assert (told.status_code, told.json()["code"]) == (503, "indeterminate")
    # The program comes back with the error message, so that it need not be written again.
    assert PROGRAM["code"] in page.text.replace("&#40;", "(").replace("&#41;", ")")
    assert ADDRESS not in told.text + page.text
