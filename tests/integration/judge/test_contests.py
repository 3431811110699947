"""Contests over HTTP: who may submit when, what is hidden until it begins, the freeze, and clarifications."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_judge._contest_api import ContestRequest
from fencepost_judge._role import JudgeRole
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office
from tests.integration.judge.test_rejudging import judged


async def opened(office: JudgeEnv, clock: Clock, **changes: Any) -> None:
    """A contest from the first to the fifth hour from now, frozen for its last one."""
    for name, role in (("con", JudgeRole.CONTESTANT), ("cat", JudgeRole.CONTESTANT), ("jo", JudgeRole.JURY)):
        await office.add(name, role)
    start = clock.now() + timedelta(hours=1)
    body = {
        "title": "Autumn",
        "starts_at": start.isoformat(),
        "freeze_at": (start + timedelta(hours=3)).isoformat(),
        "ends_at": (start + timedelta(hours=4)).isoformat(),
        "problems": {"A": "echo"},
    } | changes
    answer = await office.ask("jo", "PUT", "/judge/api/contests/autumn", json=body)
    assert answer.status_code == 204, answer.text


async def test_a_problem_is_not_there_for_contestants_before_its_contest_begins(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async def seen(who: str) -> list[Any]:
        listed = (await office.ask(who, "GET", "/problems")).json()
        one = await office.ask(who, "GET", "/problems/echo")
        sent = await office.ask(who, "POST", "/submit", json=PROGRAM)
        contest = (await office.ask(who, "GET", "/judge/api/contests/autumn")).json()
        return [len(listed), one.status_code, sent.status_code, len(contest["problems"])]

    async with open_office(database, tmp_path) as office:
        await opened(office, clock)
        before = [await seen(who) for who in ("con", "jo")]
        clock.advance(3600)
        after = [await seen(who) for who in ("con", "jo")]

    assert before == [[0, 404, 404, 0], [1, 200, 202, 1]]
    assert after == [[1, 200, 202, 1]] * 2


async def test_a_submission_of_a_participant_counts_within_the_contest_and_the_freeze_hides_it(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async def submit(who: str) -> tuple[int, Any]:
        answer = await office.ask(who, "POST", "/submit", json=PROGRAM | {"contest": "autumn"})
        return answer.status_code, answer.json().get("job_id", answer.json().get("field"))

    async def board(who: str) -> list[tuple[str, int, int, int]]:
        lines = (await office.ask(who, "GET", "/judge/api/contests/autumn/scoreboard")).json()["lines"]
        return [(one["name"], one["solved"], one["penalty"], one["cells"]["A"]["pending"]) for one in lines]

    async with open_office(database, tmp_path) as office:
        await opened(office, clock)
        for who in ("con", "cat"):
            await office.ask(who, "POST", "/judge/api/contests/autumn/contestants", json={})
        forged = await office.ask("con", "POST", "/judge/api/contests/autumn/contestants", json={"name": "x"})
        clock.advance(3600 + 600)
        stranger = await submit("jo")
        _, early = await submit("con")
        await judged(office, database, early, "WA")
        clock.advance(3 * 3600)
        _, late = await submit("con")
        await judged(office, database, late, "AC")
        frozen, jury = await board("cat"), await board("jo")
        too_soon = await office.ask("jo", "POST", "/judge/api/contests/autumn/unfreeze")
        clock.advance(3600)
        over = await submit("con")
        joined = await office.ask(
            "jo", "POST", "/judge/api/contests/autumn/contestants", json={"name": "dan"}
        )
        lifted = await office.ask("jo", "POST", "/judge/api/contests/autumn/unfreeze")
        final = await board("cat")

    assert (stranger, over, forged.status_code) == ((400, "contest"), (400, "contest"), 403)
    assert frozen == [("cat", 0, 0, 0), ("con", 0, 0, 1)]
    assert jury == final == [("con", 1, 210, 0), ("cat", 0, 0, 0)]
    assert (too_soon.status_code, joined.status_code, lifted.status_code) == (400, 400, 204)


async def test_a_question_is_answered_once_and_seen_by_those_it_concerns(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    place = "/judge/api/contests/autumn/clarifications"

    async def seen(who: str) -> list[tuple[str, str | None]]:
        return [(one["question"], one["answer"]) for one in (await office.ask(who, "GET", place)).json()]

    async with open_office(database, tmp_path) as office:
        await opened(office, clock)
        stranger = await office.ask("con", "POST", place, json={"text": "When?"})
        for who in ("con", "cat"):
            await office.ask(who, "POST", "/judge/api/contests/autumn/contestants", json={})
        asked = [
            (await office.ask("con", "POST", place, json=body)).json().get("clarification_id")
            for body in ({"text": "When?"}, {"text": "Why?", "label": "A"}, {"text": "?", "label": "Z"})
        ]
        replies = [
            (await office.ask("jo", "POST", f"{place}/{asked[0]}/answer", json={"text": text})).status_code
            for text in ("Now.", "Never.")
        ]
        await office.ask("jo", "POST", f"{place}/{asked[1]}/answer", json={"text": "So.", "to_all": True})
        await office.ask("jo", "POST", "/judge/api/contests/autumn/announcements", json={"text": "Lunch."})
        got = {who: await seen(who) for who in ("con", "cat", "jo")}
        asked_by = {
            who: [one["author"] for one in (await office.ask(who, "GET", place)).json() if one["question"]]
            for who in ("con", "cat", "jo")
        }

    assert asked_by == {"con": ["con", "con"], "cat": [""], "jo": ["con", "con"]}
    told = [("Why?", "So."), ("", "Lunch.")]
    assert (stranger.status_code, asked[2], replies) == (400, None, [204, 409])
    assert got == {"con": [("When?", "Now."), *told], "cat": told, "jo": [("When?", "Now."), *told]}


@pytest.mark.parametrize(
    "changes",
    [
        {"ends_at": "2020-01-01T00:00:00Z"},
        {"freeze_at": "2020-01-01T00:00:00Z"},
        {"problems": {"A": "echo", "B": "echo"}},
        {"starts_at": "2026-01-01T00:00:00"},
    ],
)
def test_a_contest_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    body = {
        "title": "Autumn",
        "starts_at": "2026-10-03T09:00:00Z",
        "ends_at": "2026-10-03T14:00:00Z",
        "problems": {"A": "echo"},
    }
    assert ContestRequest.model_validate(body).penalty_minutes == 20
    with pytest.raises(ValidationError):
        ContestRequest.model_validate(body | changes)
