"""What other programs need of the judge: a verdict in the answer, batches, webhooks, and single sign-on."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost.webhooks import calls as webhooks
from fencepost_judge._role import JudgeRole
from fencepost_judge._settings import JudgeSettings
from tests.integration.console.oidc_double import ADA, BOB, openid_provider
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office
from tests.integration.judge.test_rejudging import again, judged
from tests.waiting_for import found

PUBLIC_URL = "https://judge.example"


async def test_submit_waits_for_the_verdict_and_not_for_ever(database: Database, tmp_path: Path) -> None:
    async def waits() -> int:
        return office.judging.streams.open

    async with open_office(database, tmp_path, streams_per_user=1) as office:
        await office.add("con", JudgeRole.CONTESTANT)
        waiting = asyncio.create_task(office.ask("con", "POST", "/submit?wait=true&timeout=60", json=PROGRAM))
        await found("it waits", waits, bool)
        refused = await office.ask("con", "POST", "/submit?wait=true", json=PROGRAM)
        await judged(office, database, 1, "WA")
        told = await waiting
        bounded = await office.ask("con", "POST", "/submit?wait=true&timeout=0", json=PROGRAM)
        endless = await office.ask("con", "POST", "/submit?wait=true&timeout=3600", json=PROGRAM)

    assert (told.status_code, told.json()["result"]["verdict"]) == (200, "WA")
    assert (refused.status_code, endless.status_code) == (429, 400)
    assert (bounded.status_code, bounded.json()["status"], bounded.json()["result"]) == (202, "PENDING", None)
    assert office.judging.streams.open == 0


async def test_a_batch_answers_each_program_by_itself_and_repeats_none(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        for who in ("con", "cat"):
            await office.add(who, JudgeRole.CONTESTANT)
        batch = {"submissions": [PROGRAM, PROGRAM | {"problem_id": "nothing"}, PROGRAM]}
        headers = {"Idempotency-Key": "b1"}
        first, repeated = [
            (await office.ask("con", "POST", "/submit/batch", json=batch, headers=headers)).json()
            for _ in range(2)
        ]
        jobs = ",".join(str(one["job_id"]) for one in first if "job_id" in one)
        states = {
            who: (await office.ask(who, "GET", f"/status?job_ids={jobs},999")).json()
            for who in ("con", "cat")
        }
        many = await office.ask("con", "POST", "/submit/batch", json={"submissions": [PROGRAM] * 21})

    assert [("job_id" in one, one.get("error", {}).get("status")) for one in first] == [
        (True, None),
        (False, 404),
        (True, None),
    ]
    assert repeated == first
    assert [len(states[who]) for who in ("con", "cat")] == [2, 0]
    assert many.status_code == 400


async def test_webhooks_are_told_of_each_verdict_once_and_of_one_that_changes(
    database: Database, tmp_path: Path
) -> None:
    async with open_office(database, tmp_path) as office:
        with database.connect_admin() as admin:
            run(admin, webhooks.add("verdicts", None, ["judge"], "test"))
            admin.commit()
        jobs = [
            await office.judging.submit("echo", "python", {"main.py": "1"}, author="con") for _ in range(2)
        ]
        for job_id in jobs:
            await judged(office, database, job_id, "WA")
        generation, again_jobs = await again(office, submissions=[jobs[0]])
        await judged(office, database, again_jobs[jobs[0]], "AC")
        await office.add("jo", JudgeRole.JURY)
        await office.ask("jo", "POST", f"/judge/api/rejudgings/{generation}/apply")
        with database.connect_admin() as admin:
            told = admin.execute(
                "select key, payload from fencepost.outbox_messages where channel = 'verdicts' order by id"
            ).fetchall()

    assert [(key, one["event"], one["submission"]["verdict"]) for key, one in told] == [
        (f"submission:{jobs[0]}", "verdict.given", "WA"),
        (f"submission:{jobs[1]}", "verdict.given", "WA"),
        (f"submission:{jobs[0]}", "verdict.changed", "AC"),
    ]
    assert [one["id"] for _, one in told] == [
        f"verdict-{jobs[0]}-0",
        f"verdict-{jobs[1]}-0",
        f"verdict-{jobs[0]}-{generation}",
    ]


async def signed_on(office: JudgeEnv, person: dict[str, Any]) -> list[Any]:
    async with office.browser() as browser, httpx.AsyncClient() as elsewhere:
        page = await browser.get("/judge/login?next=/judge/submissions")
        sent = await browser.get("/judge/login/sso?next=/judge/submissions")
        agreed = await elsewhere.post(sent.headers["location"], data={"sub": person["sub"]})
        back = urlsplit(agreed.headers["location"])
        came = await browser.get(f"{back.path}?{back.query}")
        account = await browser.get("/judge/account")
        jury = await browser.get("/judge/rejudgings")
        return ["Single sign-on" in page.text, came.status_code, account.status_code, jury.status_code]


async def test_a_person_of_the_provider_has_the_role_of_its_groups(
    database: Database, tmp_path: Path
) -> None:
    with openid_provider() as issuer:
        provider: dict[str, Any] = {
            "public_url": PUBLIC_URL,
            "oidc_issuer": issuer,
            "oidc_client_id": "fencepost",
            "oidc_client_secret": "known to two",
            "oidc_roles": {"ops": "jury"},
        }
        async with open_office(database, tmp_path, **provider) as office:
            ada = await signed_on(office, ADA)
            bob = await signed_on(office, BOB)

    assert ada == [True, 303, 200, 200]
    assert bob == [True, 403, 303, 303]


async def test_without_a_provider_there_is_no_sign_on(database: Database, tmp_path: Path) -> None:
    async with open_office(database, tmp_path) as office, office.browser() as browser:
        page = await browser.get("/judge/login")
        answers = [await browser.get(f"/judge/login/sso{path}") for path in ("", "/back?code=1&state=2")]

    assert "Single sign-on" not in page.text
    assert [one.status_code for one in answers] == [404, 404]


@pytest.mark.parametrize("missing", ["oidc_client_id", "public_url", "oidc_roles"])
def test_half_a_provider_is_refused(missing: str) -> None:
    whole = {
        "public_url": PUBLIC_URL,
        "oidc_issuer": "https://id.example",
        "oidc_client_id": "fencepost",
        "oidc_roles": {"ops": "jury"},
    }
    assert JudgeSettings(**whole).oidc_issuer is not None  # type: ignore[arg-type]
    del whole[missing]
    with pytest.raises(ValueError, match="JUDGE_OIDC"):
        JudgeSettings(**whole)  # type: ignore[arg-type]
