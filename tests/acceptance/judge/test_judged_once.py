"""A submission gets one verdict: through crashes, zombies, repeats, and failures of the judge itself."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.errors import InvalidInput, Mismatch, NotFound, StaleAttempt
from fencepost.testing import Child, Clock
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge._api import make_router
from fencepost_judge._judging import Judgement
from fencepost_judge._role import OPERATOR
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._visibility import as_json
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.acceptance.judge.judge_workers import judge, judging_of, open_judging
from tests.waiting_for import found

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

RIGHT = {"main.py": "length, step = map(int, input().split())\nprint(length // step + 1)\n"}
WRONG = {"main.py": "length, step = map(int, input().split())\nprint(length // step)\n"}


async def judged(judging: Judging, job_id: int, within: float = 60) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        return as_json(await judging.standing(job_id), OPERATOR)

    return await found(f"{job_id} is judged", look, lambda seen: seen["status"] == "FINISHED", within=within)


def results(database: Database) -> list[Any]:
    with psycopg.connect(database.admin_url) as connection:
        return connection.execute("select job_id, attempt, verdict from fencepost.judge_result").fetchall()


async def test_a_submission_is_judged_and_says_so(database: Database, redis_url: str, tmp_path: Path) -> None:
    async with open_judging(database.url, redis_url, tmp_path, "one") as judging:
        right = await judging.submit("fence-posts", "python", RIGHT, author="ann")
        wrong = await judging.submit("fence-posts", "python", WRONG, author="ann")
        broken = await judging.submit("fence-posts", "c", {"main.c": "int main("}, author="ann")
        got = [await judged(judging, job_id) for job_id in (right, wrong, broken)]
        past = await judging.history("ann", None, 10)

    assert [one["result"]["verdict"] for one in got] == ["AC", "WA", "CE"]
    assert [one["final_status"] for one in got] == ["AC", "WA", "CE"]
    assert "main.c" in got[2]["result"]["message"]
    assert [(one.job_id, one.verdict) for one in past] == [(broken, "CE"), (wrong, "WA"), (right, "AC")]
    assert len(got[0]["result"]["cases"]) == 10


@pytest.mark.full
async def test_a_judge_that_stood_still_cannot_write_a_second_verdict(
    database: Database, redis_url: str, tmp_path: Path, clock: Clock
) -> None:
    async with open_judging(database.url, redis_url, tmp_path, "asking", work=False) as asking:
        await asking.import_samples()
        job_id = await asking.submit("fence-posts", "python", RIGHT, author="ann")
    with Child(judge, database.url, redis_url, str(tmp_path), crash="judge.after_run:stop") as child:
        child.wait_until_stopped(within=60)
        clock.advance(31)
        async with open_judging(database.url, redis_url, tmp_path, "survivor") as judging:
            await judged(judging, job_id)
        child.resume()
        child.say("stop")
        child.succeed(within=60)

    assert results(database) == [(job_id, 2, "AC")]


async def test_the_database_refuses_a_result_without_the_fence(database: Database, tmp_path: Path) -> None:
    async with Fencepost(database.url) as fp:
        judging = judging_of(fp, tmp_path, "one")
        await judging.import_samples()
        job_id = await judging.submit("fence-posts", "python", RIGHT, author="ann")
        with database.connect() as connection:
            for owner in ("old", "new"):
                connection.execute("select * from fencepost.job_claim(%s, %s)", (job_id, owner))
                if owner == "old":
                    connection.execute("select * from fencepost.job_release(%s, 1, 'old')", (job_id,))
        with pytest.raises(StaleAttempt):
            await fp.run(judge_calls.put_result(job_id, 1, "old", Judgement(verdict="AC")))

    assert results(database) == []


async def test_the_same_key_is_the_same_submission(database: Database, tmp_path: Path) -> None:
    async with Fencepost(database.url) as fp:
        judging = judging_of(fp, tmp_path, "one")
        await judging.import_samples()
        first = await judging.submit("fence-posts", "python", RIGHT, author="ann", key="k1")
        again = await judging.submit("fence-posts", "python", RIGHT, author="ann", key="k1")
        other = await judging.submit("fence-posts", "python", RIGHT, author="bob", key="k1")
        with pytest.raises(Mismatch):
            await judging.submit("fence-posts", "python", WRONG, author="ann", key="k1")

    assert first == again != other


async def test_what_cannot_be_judged_is_not_taken(database: Database, tmp_path: Path) -> None:
    async with Fencepost(database.url) as fp:
        judging = judging_of(fp, tmp_path, "one")
        await judging.import_samples()
        with pytest.raises(NotFound):
            await judging.submit("no-such", "python", RIGHT, author="ann")
        with pytest.raises(InvalidInput, match="offered"):
            await judging.submit("fence-posts", "brainfog", RIGHT, author="ann")
        large = "x" * (judging.settings.source_max_bytes + 1)
        with pytest.raises(InvalidInput, match="bytes"):
            await judging.submit("fence-posts", "python", {"main.py": large}, author="ann")
        with pytest.raises(InvalidInput, match=r"no \.py file"):
            await judging.submit("fence-posts", "python", {"main.txt": "1"}, author="ann")
    with psycopg.connect(database.admin_url) as connection:
        jobs = connection.execute("select count(*) from fencepost.job").fetchone()

    assert jobs == (0,)


async def test_a_fault_of_the_judge_is_tried_again_and_then_said(
    database: Database, redis_url: str, tmp_path: Path, clock: Clock
) -> None:
    async with open_judging(database.url, redis_url, tmp_path, "one") as judging:
        # The data is gone: no program is to blame for it.
        shutil.rmtree(tmp_path / "store")
        job_id = await judging.submit("fence-posts", "python", RIGHT, author="ann")

        async def look_later() -> dict[str, Any]:
            seen = as_json(await judging.standing(job_id), OPERATOR)
            # Past the delays of its retries, and never through a lease: not while it runs.
            if seen["status"] not in ("RUNNING", "FINISHED"):
                clock.advance(2)
            return seen

        got = await found("the judge has given up", look_later, lambda seen: seen["status"] == "FINISHED")

    assert (got["result"]["verdict"], got["final_status"]) == ("SE", "SANDBOX_ERROR")
    assert got["attempt_id"] == JudgeSettings().tries


async def test_a_problem_that_is_imported_again_has_a_new_version_only_when_it_changed(
    database: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "problem"
    folder.mkdir()
    (folder / "1.in").write_text("1\n")
    (folder / "1.ans").write_text("1\n")
    async with Fencepost(database.url) as fp:
        judging = judging_of(fp, tmp_path, "one")
        versions = [(await judging.import_problem(folder)).version for _ in range(2)]
        (folder / "1.ans").write_text("2\n")
        versions.append((await judging.import_problem(folder)).version)

    assert versions == [1, 1, 2]


@pytest.fixture
def http(database: Database, redis_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    fp = Fencepost(database.url, redis_url=redis_url)
    judging = judging_of(fp, tmp_path, "web")
    yield from served(fp, HttpService("judge", make_router(judging), judging.running))


@pytest.fixture
def quiet_http(database: Database, tmp_path: Path) -> Iterator[httpx.Client]:
    """No judge runs."""
    fp = Fencepost(database.url)
    yield from served(fp, HttpService("judge", make_router(judging_of(fp, tmp_path, "web"))))


def served(fp: Fencepost, part: HttpService) -> Iterator[httpx.Client]:
    server = WebServer(make_app([part], WebSettings(), opened_first=lambda: fp), address="127.0.0.1", port=0)
    server.start()
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
    server.stop()


def test_over_http_a_program_is_submitted_watched_and_judged(http: httpx.Client) -> None:
    problem = http.get("/problems/fence-posts").json()
    body = {"problem_id": "fence-posts", "language": "python", "code": RIGHT["main.py"]}
    first = http.post("/submit", json=body, headers={"Idempotency-Key": "k"})
    again = http.post("/submit", json=body, headers={"Idempotency-Key": "k"})
    other = http.post("/submit", json=body | {"code": "1"}, headers={"Idempotency-Key": "k"})
    job_id = first.json()["job_id"]
    with http.stream("GET", f"/status/{job_id}/events") as stream:
        events = [line for line in stream.iter_lines() if line.startswith("data:")]
    status = http.get(f"/status/{job_id}").json()

    assert [one["slug"] for one in http.get("/problems").json()] == [
        "fence-posts",
        "guess-the-post",
        "painted-fence",
    ]
    assert problem["samples"][0] == {"name": "sample/1", "input": "30 3\n", "answer": "11\n"}
    assert (first.status_code, again.json(), other.status_code) == (202, {"job_id": job_id}, 422)
    assert '"FINISHED"' in events[-1]
    assert (status["status"], status["result"]["verdict"], status["attempt_id"]) == ("FINISHED", "AC", 1)
    assert http.get("/submissions").json()[0]["job_id"] == job_id
    assert set(http.get("/languages").json()) <= {"c", "python"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("POST", "/submit", {"problem_id": "No Such", "language": "c", "code": ""}, 400, "problem_id"),
        ("POST", "/submit", {"problem_id": "fence-posts", "language": "c"}, 400, "body"),
        ("POST", "/submit", {"problem_id": "fence-posts", "language": "x", "code": "1"}, 400, "language"),
        (
            "POST",
            "/submit",
            {"problem_id": "fence-posts", "language": "c", "sources": {"../../etc/passwd": "1"}},
            400,
            None,
        ),
        ("GET", "/status/123456", None, 404, None),
        ("GET", "/status/123456/events", None, 404, None),
        ("GET", "/problems/nothing", None, 404, None),
        ("PUT", "/problems/thing", {"not": "a zip"}, 400, "archive"),
    ],
)
def test_a_wrong_request_is_refused_with_its_field(
    quiet_http: httpx.Client, method: str, path: str, body: Any, status: int, field: str | None
) -> None:
    answer = quiet_http.request(method, path, json=body)

    assert answer.status_code == status, answer.text
    if field is not None:
        assert answer.json()["field"] == field
