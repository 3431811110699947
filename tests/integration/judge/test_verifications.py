"""A setter verifies a package at a browser: a judge runs it as a job, and nothing is imported unasked."""

import io
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.jobs.job import Job
from fencepost_judge import _verifications as verifications
from fencepost_judge._role import JudgeRole
from tests.integration.judge.judge_env import JudgeEnv, open_office
from tests.unit.judge.test_packages import LEGACY
from tests.waiting_for import found

NAME = "guess-two"
HOME = "/judge/verifications"


def zipped(**changes: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**LEGACY, "data/secret/a.ans": "2\n", **changes}.items():
            archive.writestr(f"{NAME}/{name}", text)
    return made.getvalue()


@asynccontextmanager
async def setter(database: Database, folder: Path) -> AsyncGenerator[JudgeEnv]:
    async with open_office(database, folder) as office:
        await office.add("jo", JudgeRole.JURY)
        await office.add("con", JudgeRole.CONTESTANT)
        yield office


async def ended(office: JudgeEnv, job_id: int) -> verifications.StoredVerification:
    async def look() -> verifications.StoredVerification:
        return await office.judging.verifications.get(job_id)

    return await found("the verification has ended", look, lambda one: one.report is not None)


async def test_a_setter_uploads_a_package_watches_it_and_imports_it(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifications, "PROGRESS_SECONDS", 0.0)
    told: list[Any] = []
    progress = Job.progress

    async def recorded(job: Job, said: Any) -> None:
        told.append(said)
        await progress(job, said)

    monkeypatch.setattr(Job, "progress", recorded)
    async with setter(database, tmp_path) as office, office.browser("jo") as jo, office.browser("con") as con:
        files = {"package": (f"{NAME}.zip", zipped(), "application/zip")}
        fields = {"form_token": await jo.form_token(), "slug": "", "time_limit": ""}
        sent = await jo.client.post(HOME, data=fields, files=files)
        place = sent.headers["location"]
        waiting = await jo.get(place)
        refused = await con.get(place)
        async with office.judging.running():
            report = (await ended(office, int(place.rpartition("/")[2]))).report
        shown = await jo.get(place)
        text = await jo.get(f"{place}/report")
        before = await jo.get(f"/judge/problems/{NAME}")
        imported = await jo.send(f"{place}/import")
        after = await jo.get(f"/judge/problems/{NAME}")
        listed = await jo.get(HOME)

    assert sent.status_code == 303, sent.text
    assert "data-again" in waiting.text
    assert refused.status_code == 403
    assert [(one["done"], one["total"]) for one in told] == [(0, 2), (0, 2), (1, 2), (2, 2)]
    assert "accepted/x.py" in told[-1]["lines"][-2]
    assert (report["right"], report["wrong"]) == (2, 0), report
    assert "data-again" not in shown.text
    assert "accepted/x.py" in shown.text
    assert text.headers["content-type"].startswith("text/markdown")
    assert "everything as expected" in text.text
    assert (before.status_code, after.status_code) == (404, 200), "only the button imports it"
    assert imported.headers["location"] == f"/judge/problems/{NAME}"
    assert "as expected" in listed.text


async def test_what_is_not_as_expected_and_what_cannot_be_read_are_told(
    database: Database, tmp_path: Path
) -> None:
    wrong = zipped(**{"submissions/accepted/z.py": "print(3)\n"})
    broken = zipped(**{"problem.yaml": "name: X\nsurprise: 1\n"})
    async with setter(database, tmp_path) as office, office.judging.running():
        asked = [
            await office.ask("jo", "POST", f"/judge/api/verifications?name={NAME}", content=content)
            for content in (wrong, broken)
        ]
        jobs = [one.json()["job_id"] for one in asked]
        first, second = [(await ended(office, job_id)).report for job_id in jobs]
        again = await office.judging.verifications.repeat(jobs[0], 5.0, actor="jo")
        third = await ended(office, again)
        stranger = await office.ask("con", "POST", f"/judge/api/verifications?name={NAME}", content=wrong)
        missing = await office.ask("jo", "GET", "/judge/api/verifications/999999")
        listed = (await office.ask("jo", "GET", "/judge/api/verifications")).json()

    assert first["wrong"] == 1
    assert "accepted/z.py" in first["text"]
    assert "surprise" in second["refused"]
    assert third.time_limit_seconds == 5.0
    assert third.report["wrong"] == 1
    assert (stranger.status_code, missing.status_code) == (403, 404)
    assert [one["job_id"] for one in listed] == [again, jobs[1], jobs[0]]
    assert "text" not in listed[0]["report"]


async def test_a_package_that_left_the_store_is_told_and_not_tried_for_ever(
    database: Database, tmp_path: Path
) -> None:
    place = tmp_path / "p.zip"
    place.write_bytes(zipped())
    async with setter(database, tmp_path) as office:
        job_id = await office.judging.verifications.submit(place, NAME, None, actor="jo")
        one = await office.judging.verifications.get(job_id)
        (tmp_path / "store" / one.digest[:2] / one.digest).unlink()
        async with office.judging.running():
            report = (await ended(office, job_id)).report

    assert "Upload it again" in report["refused"]
