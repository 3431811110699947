"""What happens on the day of a contest: clocks that stand still, feedback that is withheld, tokens, verdicts
that a jury verifies, notes, balloons, and news."""

import io
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge._case_result import CaseResult
from fencepost_judge._judging import Judgement
from tests.integration.judge.judge_env import PROGRAM, JudgeEnv, open_office
from tests.integration.judge.test_contests import opened
from tests.integration.judge.test_rejudging import FUNCTIONS, OWNER, again, claimed, judged

HOUR = 3600
PLACE = "/judge/api/contests/autumn"


async def joined(office: JudgeEnv, clock: Clock, **changes: Any) -> None:
    """The contest `autumn` has begun, with con and cat in it."""
    await opened(office, clock, **changes)
    for who in ("con", "cat"):
        await office.ask(who, "POST", f"{PLACE}/contestants", json={})
    clock.advance(HOUR + 600)


async def submit(office: JudgeEnv, who: str, contest: str | None = "autumn") -> tuple[int, Any]:
    answer = await office.ask(who, "POST", "/submit", json=PROGRAM | {"contest": contest})
    return answer.status_code, answer.json().get("job_id") or answer.json().get("error")


async def sent(office: JudgeEnv, who: str, contest: str | None = "autumn") -> int:
    status, job_id = await submit(office, who, contest)
    assert status == 202, job_id
    return int(job_id)


async def removed(office: JudgeEnv, clock: Clock, team: str | None, minutes: int, who: str = "jo") -> Any:
    """From now on for so many minutes."""
    body = {
        "team": team,
        "from_at": clock.now().isoformat(),
        "until_at": (clock.now() + timedelta(minutes=minutes)).isoformat(),
        "reason": "no power",
    }
    return await office.ask(who, "POST", f"{PLACE}/intervals", json=body)


async def board(office: JudgeEnv, who: str = "jo") -> dict[str, tuple[int, int]]:
    lines = (await office.ask(who, "GET", f"{PLACE}/scoreboard")).json()["lines"]
    return {one["name"]: (one["solved"], one["penalty"]) for one in lines}


async def test_a_team_that_lost_time_has_it_later_and_counts_the_same(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await joined(office, clock, freeze_at=None)
        forbidden = await removed(office, clock, "cat", 30, who="con")
        made = await removed(office, clock, "cat", 30)
        overlapping = await removed(office, clock, None, 10)
        clock.advance(45 * 60)
        for who in ("con", "cat"):
            await judged(office, database, await sent(office, who), "AC")
        boards = await board(office)
        feed = (await office.ask("jo", "GET", "/api/contests/autumn/submissions")).json()
        clock.advance(4 * HOUR - 55 * 60 + 60)
        late = {who: (await submit(office, who))[0] for who in ("con", "cat")}
        unfrozen = await office.ask("jo", "POST", f"{PLACE}/finalize")
        clock.advance(30 * 60)
        after = await submit(office, "cat")
        state = (await office.ask("jo", "GET", "/api/contests/autumn/state")).json()

    assert (forbidden.status_code, made.status_code, overlapping.status_code) == (403, 201, 400)
    assert boards == {"con": (1, 55), "cat": (1, 25)}
    assert [one["contest_time"][:4] for one in feed] == ["0:55", "0:25"]
    assert (late, unfrozen.status_code, after[0]) == ({"con": 400, "cat": 202}, 400, 400)
    assert state["ended"] is not None


async def test_an_interval_of_all_moves_the_end_and_can_be_given_back(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async def times() -> tuple[str, str, str]:
        ours = (await office.ask("jo", "GET", PLACE)).json()
        theirs = (await office.ask("jo", "GET", "/api/contests/autumn")).json()
        return ours["freeze_at"], ours["ends_at"], theirs["duration"]

    async with open_office(database, tmp_path) as office:
        await joined(office, clock)
        before = await times()
        first = await sent(office, "con")
        made = await removed(office, clock, None, 20)
        clock.advance(30 * 60)
        second = await sent(office, "con")
        between = await times()
        feed = (
            await office.ask("jo", "GET", "/api/contests/autumn/event-feed?stream=false&since_token=0")
        ).text
        place = f"{PLACE}/intervals/{made.json()['interval_id']}"
        restored = await office.ask("jo", "DELETE", place)
        after = await times()
        twice = await office.ask("jo", "DELETE", place)

    assert before == after
    assert between[0] > before[0]
    assert between[1] > before[1]
    assert between[2] == before[2] == "4:00:00.000"
    assert (first, second) == (1, 2)
    # The second one says the time that it has without the interval.
    assert '"id":"2","language_id":"python3"' in feed
    assert '"contest_time":"0:20:' in feed
    assert (restored.status_code, twice.status_code) == (204, 404)


async def told(office: JudgeEnv, who: str, job_id: int) -> tuple[str, list[str], dict[str, float]]:
    result = (await office.ask(who, "GET", f"/status/{job_id}")).json()["result"]
    return result["verdict"], [case["name"] for case in result["cases"]], result["points"]


async def scored(office: JudgeEnv, database: Database, job_id: int) -> None:
    names = (
        ("sample/1", "AC"),
        ("secret/a/overflow", "AC"),
        ("secret/b/cycle", "WA"),
        ("secret/b/deep", "SK"),
    )
    judgement = Judgement(
        verdict="PA",
        score=40.0,
        cases=[CaseResult(name=name, verdict=verdict) for name, verdict in names],
        points={"secret/a": 40.0, "secret/b": 0.0},
    )
    claimed(database, job_id)
    assert await office.fp.run(judge_calls.put_result(job_id, 1, OWNER, judgement))


async def test_feedback_is_withheld_until_the_end_except_for_a_token(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    points = {"subtask 1": 40.0, "subtask 2": 0.0}
    everything = ("PA", ["sample/1", "test 1", "test 2", "test 3"], points)
    nothing = ("RECEIVED", ["sample/1"], dict[str, float]())

    async with open_office(database, tmp_path) as office:
        await joined(office, clock, scoring="ioi", freeze_at=None, feedback="none", tokens=1)
        jobs = [await sent(office, "con") for _ in range(3)] + [await sent(office, "con", None)]
        for job_id in jobs:
            await scored(office, database, job_id)
        withheld = [await told(office, "con", job_id) for job_id in jobs]
        seen = [one["verdict"] for one in (await office.ask("con", "GET", "/submissions")).json()]
        own = (await office.ask("con", "GET", "/api/contests/autumn/judgements")).json()
        plays = [
            (await office.ask(who, "POST", f"/judge/api/submissions/{job_id}/token")).status_code
            for who, job_id in (("cat", jobs[0]), ("con", jobs[0]), ("con", jobs[0]), ("con", jobs[1]))
        ]
        played = [await told(office, "con", job_id) for job_id in jobs[:2]]
        jury = await told(office, "jo", jobs[0])
        clock.advance(4 * HOUR)
        over = [await told(office, "con", job_id) for job_id in jobs]
        feed = (
            await office.ask("con", "GET", "/api/contests/autumn/event-feed?stream=false&since_token=0")
        ).text

    assert withheld == [nothing] * 4
    assert (seen, own) == (["RECEIVED"] * 4, [])
    assert plays == [404, 200, 200, 400]
    assert played == [everything, nothing]
    assert jury[1] == ["sample/1", "secret/a/overflow", "secret/b/cycle", "secret/b/deep"]
    assert over == [everything] * 4
    # What was withheld is told with the end.
    assert feed.count('"type":"judgements"') >= 3


async def test_a_contest_that_verifies_is_final_when_every_verdict_was_looked_at(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async def verify(job_id: int, generation: int, verdict: str, who: str = "jo") -> Any:
        body = {"generation": generation, "verdict": verdict}
        return await office.ask(who, "POST", f"/judge/api/submissions/{job_id}/verify", json=body)

    async with open_office(database, tmp_path) as office:
        await joined(office, clock, freeze_at=None, verifies=True)
        jobs = [await sent(office, who) for who in ("con", "cat")]
        for job_id in jobs:
            await judged(office, database, job_id, "WA")
        clock.advance(4 * HOUR)
        forbidden = await verify(jobs[0], 0, "WA", who="con")
        stale = await verify(jobs[0], 0, "AC")
        first = (await verify(jobs[0], 0, "WA")).json()
        refused = await office.ask("jo", "POST", f"{PLACE}/finalize")
        generation, again_jobs = await again(office, submissions=[jobs[0]])
        await judged(office, database, again_jobs[jobs[0]], "AC")
        await office.ask("jo", "POST", f"/judge/api/rejudgings/{generation}/apply")
        queue = (await office.ask("jo", "GET", f"{PLACE}/unverified")).json()
        verified = [
            (await verify(jobs[0], generation, "AC")).status_code,
            (await verify(jobs[1], 0, "WA")).status_code,
        ]
        final = await office.ask("jo", "POST", f"{PLACE}/finalize")

    assert (forbidden.status_code, stale.status_code, first) == (403, 409, {"verified_by": "jo"})
    assert refused.status_code == 400
    assert "1 verdicts are not verified yet" in refused.text
    assert [(one["job_id"], one["verdict"]) for one in queue] == [(jobs[0], "AC"), (jobs[1], "WA")]
    assert (verified, final.status_code) == ([200, 200], 204)


async def test_juries_see_the_outputs_of_the_first_failed_tests_and_contestants_do_not(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await joined(office, clock)
        job_id = await sent(office, "con")
        cases = [CaseResult(name=f"secret/{n}", verdict="WA", output=f"output of {n}") for n in range(5)]
        claimed(database, job_id)
        judgement = Judgement(verdict="WA", cases=cases)
        await office.fp.run(judge_calls.put_result(job_id, 1, OWNER, judgement))
        seen = {who: (await office.ask(who, "GET", f"/status/{job_id}")).json() for who in ("con", "jo")}
        await office.ask("jo", "POST", f"/judge/api/submissions/{job_id}/notes", json={"text": "A typo."})
        async with office.browser("con") as con, office.browser("jo") as jo:
            pages = [(await one.get(f"/judge/submissions/{job_id}")).text for one in (con, jo)]
        archive = await office.ask("jo", "GET", f"{PLACE}/archive")

    kept = [one.get("output") for one in seen["jo"]["result"]["cases"]]
    assert kept == ["output of 0", "output of 1", "output of 2", None, None]
    assert "output" not in str(seen["con"])
    assert [("A typo." in page, "secret/0" in page) for page in pages] == [(False, False), (True, True)]
    names = zipfile.ZipFile(io.BytesIO(archive.content)).namelist()
    assert f"sources/con/A/{job_id}-WA/main.py" in names
    assert {"scoreboard.csv", "submissions.json", "clarifications.json", "decisions.json"} <= set(names)


async def test_balloons_follow_from_the_results_and_are_brought_once(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await joined(office, clock, colors={"A": "red #ff0000"})
        for who in ("con", "con", "cat"):
            await judged(office, database, await sent(office, who), "AC")
        before = (await office.ask("jo", "GET", f"{PLACE}/balloons")).json()
        hidden = await office.ask("con", "GET", f"{PLACE}/balloons")
        body = {"team": "con", "problem_id": "echo"}
        brought = (await office.ask("jo", "POST", f"{PLACE}/balloons", json=body)).json()
        missing = await office.ask("jo", "POST", f"{PLACE}/balloons", json=body | {"team": "nobody"})
        after = (await office.ask("jo", "GET", f"{PLACE}/balloons")).json()

    assert [(one["team_id"], one["color"], one["first"], one["delivered_by"]) for one in before] == [
        ("con", "red", True, None),
        ("cat", "red", False, None),
    ]
    assert (hidden.status_code, brought, missing.status_code) == (403, {"delivered_by": "jo"}, 404)
    assert [one["delivered_by"] for one in after] == ["jo", None]


async def test_news_are_unread_until_their_page_was_read(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async def unread(who: str) -> int:
        return len((await office.ask(who, "GET", f"{PLACE}/news")).json()["unread"])

    async with open_office(database, tmp_path) as office:
        await joined(office, clock, categories=["statement"])
        body = {"text": "Why?", "category": "statement"}
        asked = (await office.ask("con", "POST", f"{PLACE}/clarifications", json=body)).json()[
            "clarification_id"
        ]
        jury = await unread("jo")
        await office.ask("jo", "POST", f"{PLACE}/clarifications/{asked}/answer", json={"text": "So."})
        await office.ask("jo", "POST", f"{PLACE}/announcements", json={"text": "Lunch."})
        before = [await unread(who) for who in ("con", "cat", "jo")]
        async with office.browser("con") as browser:
            page = (await browser.get("/judge/contests/autumn/clarifications")).text
        after = [await unread(who) for who in ("con", "cat")]
        listed = (await office.ask("jo", "GET", f"{PLACE}/clarifications")).json()

    assert (jury, before, after) == (1, [2, 1, 0], [0, 1])
    assert "statement" in page
    assert [one["category"] for one in listed] == ["statement", None]


BUGS = {
    "a team's own interval gives it no time": (
        "judge_interval.sql",
        "where i.contest = p_contest and i.team = p_team\n",
        "where false\n",
        test_a_team_that_lost_time_has_it_later_and_counts_the_same,
    ),
    "an interval of all does not move the end": (
        "judge_interval.sql",
        "set ends_at = c.ends_at + v_length,",
        "set ends_at = c.ends_at,",
        test_an_interval_of_all_moves_the_end_and_can_be_given_back,
    ),
    "tokens are not counted": (
        "judge_interval.sql",
        "if v_played > v_contest.tokens then",
        "if false then",
        test_feedback_is_withheld_until_the_end_except_for_a_token,
    ),
    "a program sent outside of the contest shows what it withholds": (
        "judge.sql",
        "order by array_position(array['none', 'points', 'full'], c.feedback) limit 1), 'full') end",
        (
            "and exists (select 1 from fencepost.judge_submission s"
            " where s.job_id = p_job_id and s.contest = c.slug) limit 1), 'full') end"
        ),
        test_feedback_is_withheld_until_the_end_except_for_a_token,
    ),
    "a verdict counts as verified in every generation": (
        "judge_jury.sql",
        "where v.job_id = r.job_id and v.generation = r.generation)",
        "where v.job_id = r.job_id)",
        test_a_contest_that_verifies_is_final_when_every_verdict_was_looked_at,
    ),
    "a verdict is verified that the jury has not seen": (
        "judge_jury.sql",
        "if (v_result.generation, v_result.verdict) is distinct from (p_generation, p_verdict) then",
        "if false then",
        test_a_contest_that_verifies_is_final_when_every_verdict_was_looked_at,
    ),
    "a contest is final before every verdict is verified": (
        "judge_contest.sql",
        "where v_contest.verifies;",
        "where false;",
        test_a_contest_that_verifies_is_final_when_every_verdict_was_looked_at,
    ),
}
"""Where each is planted, and the test that sees it."""


@pytest.mark.parametrize("name", BUGS)
async def test_a_planted_bug_is_seen(database: Database, tmp_path: Path, clock: Clock, name: str) -> None:
    file, right, wrong, story = BUGS[name]
    source = (FUNCTIONS / file).read_text()
    assert source.count(right) == 1, "the planted bug no longer fits the source"
    with psycopg.connect(database.admin_url, autocommit=True) as connection:
        connection.execute(source.replace(right, wrong).encode())
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        await story(database, tmp_path, clock)


async def test_pages_ask_before_they_move_the_clock_or_play_a_token(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await joined(office, clock, scoring="ioi", freeze_at=None, feedback="none", tokens=1)
        job_id = await sent(office, "con")
        token = f"/judge/submissions/{job_id}/token"
        moment = "%Y-%m-%dT%H:%M:%S"
        form = {
            "from_at": clock.now().strftime(moment),
            "until_at": (clock.now() + timedelta(minutes=10)).strftime(moment),
            "team": "cat",
            "reason": "no power",
        }
        async with office.browser("jo") as jo, office.browser("con") as con:
            asked = await jo.send("/judge/contests/autumn/intervals", **form)
            before = (await office.ask("jo", "GET", PLACE)).json()["intervals"]
            done = await jo.send("/judge/contests/autumn/intervals", confirmed="yes", **form)
            [interval] = (await office.ask("jo", "GET", PLACE)).json()["intervals"]
            place = f"/judge/contests/autumn/intervals/{interval['id']}/restore"
            restoring = await jo.send(place)
            restored = await jo.send(place, confirmed="yes")
            playing = await con.send(token)
            played = await con.send(token, confirmed="yes")
        after = (await office.ask("jo", "GET", PLACE)).json()["intervals"]

    assert [one.status_code for one in (asked, restoring, playing)] == [200] * 3
    assert "The contest ends 0:10:00 later for team cat." in asked.text
    assert "A token does not come back." in playing.text
    assert [one.status_code for one in (done, restored, played)] == [303] * 3
    assert (before, after) == ([], [])
