"""A contest through a storm: Redis loses everything, PostgreSQL restarts, judges are killed. Each submission
gets one verdict, and the right one."""

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.errors import FencepostError
from fencepost.kernel.drivers import run
from fencepost.kernel.migrate import migrate
from fencepost.testing import Child, Clock
from fencepost_judge import _contests as contests
from fencepost_judge import _teams as teams
from fencepost_judge._scoreboard import Contest, ContestProblem, Scoring, scoreboard
from fencepost_judge._service import Judging
from tests.acceptance.judge.judge_workers import judge, open_judging
from tests.integration.judge.judge_env import problem_folder
from tests.tmp_dirs import server_directory
from tests.waiting_for import found

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

PROGRAMS = {
    "AC": "print(input())",
    "WA": "print(2)",
    "RE": "raise SystemExit(3)",
    "CE": "this is (no program",
}
CONTEST = "autumn"


@dataclass
class Storm:
    """One contest: who submitted what, and what befell the servers meanwhile."""

    database: Database
    valkey: ValkeyServer
    clock: Clock
    folder: Path
    submissions: int
    judges: int
    kills: int
    expected: dict[int, str] = field(default_factory=dict[int, str])
    befell: Counter[str] = field(default_factory=Counter[str])
    children: list[Child] = field(default_factory=list[Child])
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - Repeatable.

    async def rage(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._end)
            url, redis_url = self.database.url, self.valkey.url
            async with open_judging(url, redis_url, self.folder, "asking", work=False) as asking:
                await self._open_contest(asking)
                self._man()
                troubles = self._troubles()
                for number in range(self.submissions):
                    await self._submit(asking, number)
                    await self._strike(troubles, len(self.expected) / 2)
                # What is left of the trouble comes while the rest is judged.
                await found(
                    "every trouble has come",
                    lambda: self._strike(troubles, self._judged()),
                    lambda _: not troubles,
                    within=60 + self.submissions,
                )
                await self._calm()
        self._check()

    async def _open_contest(self, asking: Judging) -> None:
        await asking.import_problem(problem_folder(self.folder / "echo", "1\n"))
        now = self.clock.now()
        contest = Contest(
            slug=CONTEST,
            title="Autumn",
            scoring=Scoring.ICPC,
            starts_at=now - timedelta(hours=1),
            ends_at=now + timedelta(days=30),
            problems=[ContestProblem("A", "echo")],
        )
        await asking.fp.run(contests.put_contest(contest, "test"))
        for number in range(20):
            await asking.fp.run(contests.join(CONTEST, f"c{number}"))

    def _troubles(self) -> list[tuple[float, str]]:
        """How many verdicts there are when each comes, in this order."""
        kinds = ["redis wiped", "postgresql restarted", *["judge killed"] * self.kills]
        step = self.submissions / (len(kinds) + 1)
        return [((place + 1) * step, kind) for place, kind in enumerate(kinds)]

    async def _submit(self, asking: Judging, number: int) -> None:
        """Until it is answered: the same key is the same submission, however often it is asked for."""
        verdict = self.chance.choices(list(PROGRAMS), weights=[5, 3, 1, 1])[0]

        async def ask() -> int | None:
            try:
                return await asking.submit(
                    "echo",
                    "python",
                    {"main.py": PROGRAMS[verdict]},
                    author=f"c{number % 20}",
                    contest=CONTEST,
                    key=f"k{number}",
                )
            except (FencepostError, psycopg.OperationalError):
                self.befell["submission asked for again"] += 1
                return None

        job_id = await found("the submission is answered", ask, lambda answer: answer is not None)
        assert job_id is not None
        self.expected[job_id] = verdict

    async def _strike(self, troubles: list[tuple[float, str]], reached: float) -> None:
        if not troubles or reached < troubles[0][0]:
            return
        _, kind = troubles.pop(0)
        self.befell[kind] += 1
        if kind == "redis wiped":
            # Not before there is something to lose: a judge that still starts has driven nothing.
            await found("entries wait in Redis", self._driven, lambda count: count > 1)
            await asyncio.to_thread(self.valkey.wipe)
        elif kind == "postgresql restarted":
            await asyncio.to_thread(self.database.server.restart)
        else:
            victim = self.children.pop(0)
            victim.kill()
            victim.__exit__(None, None, None)
            self._man()

    async def _calm(self) -> None:
        """Everything must get its verdict; what a killed judge held is free when its lease is over."""
        judged, since = self._judged(), time.monotonic()

        async def look() -> int:
            nonlocal judged, since
            if self._judged() > judged:
                judged, since = self._judged(), time.monotonic()
            elif time.monotonic() - since > 3:
                # Nothing moves: only leases of the dead are left, or of who lost the database.
                await asyncio.to_thread(self.clock.advance, 31)
                since = time.monotonic()
            return judged

        everything = self.submissions
        await found("everything is judged", look, lambda seen: seen >= everything, within=60 + everything)

    def _check(self) -> None:
        with self.database.connect_admin() as connection:
            stored = connection.execute(
                "select job_id, verdict, attempt from fencepost.judge_result"
            ).fetchall()
            jobs = connection.execute(
                "select state, count(*) from fencepost.jobs where queue = 'judge' group by 1"
            ).fetchall()
            entrants = [one.entrant for one in run(connection, teams.teams(CONTEST))]
            entries = run(connection, contests.entries(CONTEST))
            (seen,) = run(connection, contests.contests(one=CONTEST))
        lines = scoreboard(seen.contest, entrants, entries, seen.seen_at, sees_all=True)
        self.befell["attempts beyond the first"] = sum(attempt - 1 for _, _, attempt in stored)

        assert {job_id: verdict for job_id, verdict, _ in stored} == self.expected
        assert len(stored) == self.submissions == len(entries)
        assert jobs == [("finished", self.submissions)]
        assert sum(line.cells["A"].solved_minute is not None for line in lines) == len(
            {entry.team for entry in entries if entry.verdict == "AC"}
        )

    def _man(self) -> None:
        while len(self.children) < self.judges:
            child = Child(judge, self.database.url, self.valkey.url, str(self.folder))
            self.children.append(child)

    async def _driven(self) -> int:
        with self.database.connect_admin() as connection:
            row = connection.execute(
                "select count(*) from fencepost.jobs where state = 'dispatched'"
            ).fetchone()
        return int(row[0]) if row else 0

    def _judged(self) -> int:
        try:
            with self.database.connect_admin() as connection:
                row = connection.execute("select count(*) from fencepost.judge_result").fetchone()
        except psycopg.OperationalError:
            return 0
        return int(row[0]) if row else 0

    def _end(self) -> None:
        for child in self.children:
            child.__exit__(None, None, None)


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[tuple[Database, ValkeyServer]]:
    """Servers of the test's own: they do not survive it unharmed."""
    with (
        PostgresServer(server_directory(), settings={"fsync": "off"}, ephemeral=True) as postgres,
        ValkeyServer(server_directory(), ephemeral=True) as valkey,
    ):
        database = Database(postgres, "contest")
        database.create()
        migrate(database.admin_url)
        database.create_logins()
        yield database, valkey


@pytest.mark.parametrize(
    ("submissions", "judges", "kills"),
    [(12, 1, 0), pytest.param(2000, 2, 6, marks=[pytest.mark.full, pytest.mark.timeout(3600)])],
)
async def test_every_submission_of_a_contest_gets_one_verdict_through_a_storm(
    faults: tuple[Database, ValkeyServer], tmp_path: Path, submissions: int, judges: int, kills: int
) -> None:
    database, valkey = faults
    began = time.monotonic()
    with Clock(database.admin_url) as clock:
        storm = Storm(database, valkey, clock, tmp_path, submissions, judges, kills)
        await storm.rage()
    figures = {"submissions": submissions, "seconds": round(time.monotonic() - began), **storm.befell}
    print(figures, Counter(storm.expected.values()))  # noqa: T201 - The figures of a storm are read by people.

    assert storm.befell["redis wiped"] == storm.befell["postgresql restarted"] == 1
    assert storm.befell["judge killed"] == kills
