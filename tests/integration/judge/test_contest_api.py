"""The Contest API: the objects, who sees which, and the event feed."""

import asyncio
import base64
import io
import json
import socket
import zipfile
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from shutil import which
from typing import Any

import httpx
import psycopg
import pytest
import uvicorn

from fencepost.embedded import Database
from fencepost.testing import Clock
from fencepost_judge import _contests as contests
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _teams as teams
from fencepost_judge._grading import CaseResult
from fencepost_judge._judging import Judgement
from fencepost_judge._role import ACCOUNTS, JudgeRole
from fencepost_judge._scoreboard import TeamKind
from fencepost_judge._teams import Organization, Team, TeamGroup
from fencepost_judge.ccs._objects import COLLECTIONS
from fencepost_server.accounts.passwords import Passwords
from tests.integration.judge.contest_api_schema import check
from tests.integration.judge.judge_env import CHEAP, PROGRAM, JudgeEnv, open_office
from tests.integration.judge.test_rejudging import OWNER, claimed

API = "/api/contests/autumn"
HOUR = 3600.0
PASSWORD = "correct-horse"
Event = dict[str, Any]


async def opened(office: JudgeEnv, clock: Clock) -> None:
    """A public contest of four hours that begins in one, frozen for its last one; con and cat are in teams of
    one university, hid is a hidden team, obs an observer, jo the jury."""
    for name in ("con", "cat", "hid", "obs"):
        await office.add(name, JudgeRole.CONTESTANT)
    await office.add("jo", JudgeRole.JURY)
    start = clock.now() + timedelta(hours=1)
    body = {
        "title": "Autumn",
        "starts_at": start.isoformat(),
        "freeze_at": (start + timedelta(hours=3)).isoformat(),
        "ends_at": (start + timedelta(hours=4)).isoformat(),
        "problems": {"A": "echo"},
        "colors": {"A": "red #ff0000"},
        "public": True,
    }
    answer = await office.ask("jo", "PUT", "/judge/api/contests/autumn", json=body)
    assert answer.status_code == 204, answer.text
    await office.fp.run(
        teams.put_teams(
            "autumn",
            "jo",
            organizations=[Organization("uni", "Uni", "University", "SVN")],
            groups=[
                TeamGroup("in", "Participants", type="site"),
                TeamGroup("out", "Guests", TeamKind.OBSERVERS),
                TeamGroup("test", "Testers", TeamKind.HIDDEN),
            ],
            teams=[
                Team("1", "Foxes", organization="uni", members=["Ana", "Bor"], groups=["in"]),
                Team("2", "Owls", organization="uni", groups=["in"]),
                Team("8", "Guests", groups=["out"]),
                Team("9", "Testers", groups=["test"]),
            ],
        )
    )
    for name, team in (("con", "1"), ("cat", "2"), ("obs", "8"), ("hid", "9")):
        await office.fp.run(teams.put_account("autumn", name, team))


async def submit(office: JudgeEnv, who: str) -> int:
    answer = await office.ask(who, "POST", "/submit", json=PROGRAM | {"contest": "autumn"})
    assert answer.status_code == 202, answer.text
    return int(answer.json()["job_id"])


async def judged(office: JudgeEnv, database: Database, job_id: int, verdict: str) -> None:
    """As a worker would, with one test."""
    claimed(database, job_id)
    cases = [
        CaseResult(name="secret/1", verdict=verdict, time_ms=12),
        CaseResult(name="secret/2", verdict="SK"),
    ]
    await office.fp.run(judge_calls.put_result(job_id, 1, OWNER, Judgement(verdict=verdict, cases=cases)))


async def read(office: JudgeEnv, who: str | None, path: str = "") -> Any:
    answer = await office.ask(who, "GET", API + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def feed(office: JudgeEnv, who: str | None, since: str | None = None) -> list[Event]:
    """Everything that is in the feed now."""
    token = "" if since is None else f"&since_token={since}"
    answer = await office.ask(who, "GET", f"{API}/event-feed?stream=false{token}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines() if line]


def last_token(events: list[Event]) -> str:
    return next(str(one["token"]) for one in reversed(events) if "token" in one)


async def follow(office: JudgeEnv, seen: dict[str | None, list[Event]]) -> None:
    """Add to what each has seen what came since."""
    for who, events in seen.items():
        events.extend(await feed(office, who, last_token(events)))


def held(events: list[Event]) -> dict[str, dict[str | None, Any]]:
    """What a client holds that has read these events."""
    found: dict[str, dict[str | None, Any]] = {}
    for one in events:
        kind = found.setdefault(one["type"], {})
        if one["data"] is None:
            kind.pop(one["id"], None)
        else:
            kind[one["id"]] = one["data"]
    return found


def ranking(objects: dict[str, dict[str | None, Any]]) -> list[tuple[str, int, int]]:
    """Team, problems solved and penalty, computed as a spectator's tool does, from what it holds."""
    types = objects["judgement-types"]
    submissions = sorted(objects.get("submissions", {}).values(), key=lambda one: int(one["id"]))
    verdicts = {
        one["submission_id"]: one["judgement_type_id"] for one in objects.get("judgements", {}).values()
    }
    lines: list[tuple[str, int, int]] = []
    for team in objects["teams"].values():
        if team["hidden"]:
            continue
        solved, penalty, tries, done = 0, 0, dict[str, int](), set[str]()
        for one in (one for one in submissions if one["team_id"] == team["id"]):
            kind, problem = types.get(verdicts.get(one["id"])), one["problem_id"]
            if kind is None or problem in done:
                continue
            if kind["solved"]:
                hours, minutes, _ = one["contest_time"].split(":")
                solved, done = solved + 1, done | {problem}
                penalty += int(hours) * 60 + int(minutes) + 20 * tries.get(problem, 0)
            elif kind["penalty"]:
                tries[problem] = tries.get(problem, 0) + 1
        lines.append((team["id"], solved, penalty))
    return sorted(lines, key=lambda line: (-line[1], line[2], line[0]))


async def test_every_object_is_as_the_specification_says_and_is_seen_by_those_who_may(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await opened(office, clock)
        before = {who: await read(office, who, "/problems") for who in (None, "con", "jo")}
        clock.advance(HOUR + 600)
        for who, verdict in (("con", "WA"), ("cat", "AC"), ("hid", "AC"), ("obs", "AC")):
            await judged(office, database, await submit(office, who), verdict)
        await office.ask("con", "POST", f"{API}/clarifications", json={"text": "Why?", "problem_id": "echo"})
        clock.advance(3 * HOUR)
        await judged(office, database, late := await submit(office, "con"), "AC")
        found = {
            who: {kind: await read(office, who, f"/{kind}") for kind in COLLECTIONS}
            for who in (None, "con", "cat", "jo")
        }
        events = {who: await feed(office, who) for who in (None, "con", "jo")}
        boards = {who: await read(office, who, "/scoreboard") for who in (None, "jo")}
        access = await read(office, "con", "/access")
        one = await read(office, "jo", f"/submissions/{late}")
        filtered = await read(office, "jo", "/submissions?team_id=2")
        strangers = [
            (await office.ask(who, "GET", f"{API}/submissions/{late}/files")).status_code
            for who in (None, "cat", "con", "jo")
        ]

    assert {who: len(seen) for who, seen in before.items()} == {None: 0, "con": 0, "jo": 1}
    for seen in found.values():
        for kind, documents in seen.items():
            for document in documents:
                check(kind, document)
    for lines in events.values():
        for event in lines:
            check(event["type"], event["data"])
    for board in boards.values():
        check("scoreboard", board)

    def counts(who: str | None) -> dict[str, int]:
        return {
            kind: len(found[who][kind]) for kind in ("teams", "submissions", "judgements", "runs", "accounts")
        }

    assert counts(None) == {"teams": 3, "submissions": 4, "judgements": 3, "runs": 0, "accounts": 0}
    assert counts("con") == {"teams": 3, "submissions": 4, "judgements": 4, "runs": 0, "accounts": 1}
    assert counts("cat") == {"teams": 3, "submissions": 4, "judgements": 3, "runs": 0, "accounts": 1}
    assert counts("jo") == {"teams": 4, "submissions": 5, "judgements": 5, "runs": 5, "accounts": 0}
    assert [len(found[who]["clarifications"]) for who in (None, "con", "cat", "jo")] == [0, 1, 0, 1]
    assert [row["team_id"] for row in boards[None]["rows"]] == ["2", "1"]
    assert [row["problems"][0]["num_pending"] for row in boards[None]["rows"]] == [0, 1]
    assert one["id"] == str(late)
    assert [each["team_id"] for each in filtered] == ["2"]
    assert strangers == [404, 404, 200, 200]
    assert access["capabilities"] == ["team_submit", "team_clar"]
    # The feed holds the same as the collections.
    for viewer, lines in events.items():
        for kind in COLLECTIONS:
            assert list(held(lines).get(kind, {}).values()) == found[viewer][kind], (viewer, kind)


async def test_a_feed_is_resumed_without_a_gap_and_thaws_with_the_scoreboard(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await opened(office, clock)
        seen: dict[str | None, list[Event]] = {who: await feed(office, who) for who in (None, "jo")}
        start = held(seen[None])["state"][None]
        clock.advance(HOUR + 60)
        await judged(office, database, await submit(office, "con"), "WA")
        clock.advance(HOUR)
        await judged(office, database, first := await submit(office, "cat"), "AC")
        clock.advance(HOUR * 2)
        await judged(office, database, late := await submit(office, "con"), "AC")
        await follow(office, seen)
        frozen, hidden = held(seen[None]), ranking(held(seen[None]))
        board = [line["team_id"] for line in (await read(office, None, "/scoreboard"))["rows"]]
        clock.advance(HOUR)
        await office.ask("jo", "POST", "/judge/api/contests/autumn/reveal")
        await follow(office, seen)
        revealed = ranking(held(seen[None]))
        await office.ask("jo", "POST", "/judge/api/contests/autumn/unfreeze")
        finished = await office.ask("jo", "POST", "/judge/api/contests/autumn/finalize")
        await follow(office, seen)
        rejoined = await office.ask(
            "jo",
            "PUT",
            "/judge/api/contests/autumn",
            json={
                "title": "Late",
                "starts_at": "2026-01-01T00:00:00Z",
                "ends_at": "2026-01-02T00:00:00Z",
                "problems": {},
            },
        )
        wrong = [
            (await office.ask("jo", "GET", f"{API}/event-feed?since_token={token}")).status_code
            for token in ("99999", "x", "-1")
        ]

    assert start["started"] is None
    assert frozen["state"][None]["frozen"] is not None
    assert str(late) not in frozen["judgements"]
    assert hidden == [("2", 1, 61), ("1", 0, 0)]
    assert board == ["2", "1"]
    assert revealed == [("2", 1, 61), ("1", 1, 20 + 181)]
    final = held(seen[None])
    assert final["state"][None]["end_of_updates"] is not None
    assert {one["type"] for one in seen[None][-1:]} == {"state"}
    assert final["awards"]["winner"]["team_ids"] == ["2"]
    assert final["awards"]["first-to-solve-echo"]["team_ids"] == ["2"]
    assert (finished.status_code, rejoined.status_code) == (204, 400)
    assert wrong == [400, 400, 400]
    # For a jury, which sees everything, the tokens are the numbers of all changes.
    tokens = [int(one["token"]) for one in seen["jo"] if "token" in one]
    assert tokens == list(range(tokens[0], tokens[0] + len(tokens)))
    assert str(first) in final["judgements"]


async def test_a_rejudging_replaces_the_judgement_and_its_runs(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async with open_office(database, tmp_path) as office:
        await opened(office, clock)
        clock.advance(HOUR + 60)
        await judged(office, database, job_id := await submit(office, "con"), "WA")
        seen = await feed(office, "jo")
        again = await office.ask(
            "jo", "POST", "/judge/api/rejudgings", json={"reason": "data", "submissions": [job_id]}
        )
        generation = again.json()["generation"]
        with database.connect_admin() as connection:
            (row,) = connection.execute("select job_id from fencepost.judge_rejudged").fetchall()
        await judged(office, database, int(row[0]), "AC")
        await office.ask("jo", "POST", f"/judge/api/rejudgings/{generation}/apply")
        seen += await feed(office, "jo", last_token(seen))
        now = {kind: await read(office, "jo", f"/{kind}") for kind in ("judgements", "runs")}

    objects = held(seen)
    assert list(objects["judgements"]) == [f"{job_id}-{generation}"]
    assert [one["judgement_type_id"] for one in objects["judgements"].values()] == ["AC"]
    assert {kind: list(objects[kind].values()) for kind in now} == now


def test_numbers_are_given_in_the_order_of_commits_and_a_rollback_leaves_no_gap(
    database: Database, clock: Clock
) -> None:
    add = "select fencepost._judge_feed_add('autumn', '{teams}', array[%s::text])"
    start = clock.now() + timedelta(hours=1)
    with database.connect_admin() as one, database.connect_admin() as other:
        one.execute(
            "select fencepost.judge_contest_put("
            "'autumn', 'Autumn', 'icpc', %s, null, %s, 20, '{}', '{}', 'jo')",
            (start, start + timedelta(hours=4)),
        )
        rows = "select seq, id from fencepost.judge_feed_read('autumn', 2, 10)"
        other.execute("set lock_timeout = '50ms'")
        with one.transaction(force_rollback=True):
            one.execute(add, ("first",))
            # One that could pass here would have a higher number, and be seen before the lower one.
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(add, ("second",))
        assert one.execute(rows).fetchall() == [(None, None)]
        other.execute(add, ("third",))
        assert one.execute(rows).fetchall() == [(3, "third")]


async def test_a_client_logs_in_with_a_password_and_submits_an_archive(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    held_archive = io.BytesIO()
    with zipfile.ZipFile(held_archive, "w") as archive:
        archive.writestr("main.py", PROGRAM["code"])
    body = {
        "language_id": "python3",
        "problem_id": "echo",
        "files": [{"data": base64.b64encode(held_archive.getvalue()).decode()}],
    }
    async with open_office(database, tmp_path) as office:
        await opened(office, clock)
        hashed = Passwords(CHEAP).hashed(PASSWORD)
        await office.fp.run(ACCOUNTS.set_password("con", hashed, "test", by_service=True))

        async def ask(method: str, path: str, password: str | None = PASSWORD, **more: Any) -> httpx.Response:
            auth = None if password is None else httpx.BasicAuth("con", password)
            return await office.client.request(method, API + path, auth=auth, **more)

        early = await ask("POST", "/submissions", json=body)
        clock.advance(HOUR + 60)
        sent = await ask("POST", "/submissions", json=body)
        account = await ask("GET", "/account")
        file = await ask("GET", f"/submissions/{sent.json()['id']}/files")
        refused = [
            await ask("GET", "", "wrong-password"),
            await ask("POST", "/submissions", None, json=body),
            await ask("POST", "/submissions", json=body | {"team_id": "2"}),
            await ask("POST", "/submissions", json=body | {"files": [{"data": "bm8="}]}),
            await ask("GET", "/nothing"),
            await ask("PATCH", "", json={"id": "autumn", "start_time": "2030-01-01T00:00:00Z"}),
        ]
        await office.fp.run(ACCOUNTS.disable_user("con", "test"))
        locked = await ask("GET", "")

    assert (early.status_code, sent.status_code) == (404, 201)
    check("submissions", sent.json())
    assert sent.headers["location"] == f"{API}/submissions/{sent.json()['id']}"
    assert account.json() == {"id": "con", "username": "con", "type": "team", "team_id": "1"}
    with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
        assert archive.read("main.py").decode() == PROGRAM["code"]
    assert [one.status_code for one in refused] == [401, 401, 403, 400, 404, 403]
    assert all(one.json()["code"] == one.status_code for one in refused)
    assert locked.status_code == 401


async def test_what_is_not_public_is_not_there_without_a_login(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    async def seen() -> list[int]:
        page = await browser.get("/judge/contests/autumn/scoreboard")
        answers = [await office.ask(None, "GET", path) for path in (API, f"{API}/event-feed?stream=false")]
        listed = (await office.ask(None, "GET", "/api/contests")).json()
        return [page.status_code, *(one.status_code for one in answers), len(listed)]

    async with open_office(database, tmp_path) as office, office.browser() as browser:
        await opened(office, clock)
        public = await seen()
        (contest,) = await office.fp.run(contests.contests(one="autumn"))
        hidden = contests.ContestRules(is_public=False)
        await office.fp.run(contests.put_contest(contest.contest, "jo", hidden))
        private = await seen()

    assert public == [200, 200, 200, 1]
    assert private == [303, 404, 404, 0]


@asynccontextmanager
async def served(office: JudgeEnv) -> AsyncGenerator[str]:
    """The application on a port of this machine."""
    server = uvicorn.Server(uvicorn.Config(office.transport.app, log_level="error", lifespan="off"))
    # It listens before the server runs: a client that is early waits.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def test_an_archiver_of_others_reads_the_whole_contest(
    database: Database, tmp_path: Path, clock: Clock
) -> None:
    archiver = which("clics-archiver")
    if archiver is None:
        pytest.skip("No independent client is here: install xcpcio from the Python registry")
    async with open_office(database, tmp_path) as office, served(office) as address:
        await opened(office, clock)
        clock.advance(HOUR + 60)
        for who, verdict in (("con", "WA"), ("cat", "AC")):
            await judged(office, database, await submit(office, who), verdict)
        asked = ["--base-url", f"{address}/api", "--contest-id", "autumn", "-o", str(tmp_path / "archive")]
        process = await asyncio.create_subprocess_exec(
            archiver, *asked, "-u", "jo", "-p", office.tokens["jo"], stdout=PIPE, stderr=STDOUT
        )
        said, _ = await process.communicate()
        expected = {kind: await read(office, "jo", f"/{kind}") for kind in ("teams", "judgements", "runs")}

    assert process.returncode == 0, said.decode()
    for kind, documents in expected.items():
        assert json.loads((tmp_path / f"archive/{kind}.json").read_text()) == documents, said.decode()
    lines = (tmp_path / "archive/event-feed.ndjson").read_text().splitlines()
    assert held([json.loads(line) for line in lines if line])["submissions"].keys() == {"1", "2"}
