"""The torture of the judge: honest work is accepted, and one wrong row, answer or file is seen."""

import asyncio
import math
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, LiteralString, Self

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._errors import BinaryMissingError
from fencepost.embedded._valkey import ValkeyServer
from fencepost.kernel import job as kernel_job
from fencepost.testing import Clock
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _service as service
from fencepost_judge._judging import Judgement
from fencepost_judge._settings import JudgeSettings
from fencepost_torture._operation_log import Operation
from fencepost_torture._pace import RunPace
from fencepost_torture._plan import RunPlan
from fencepost_torture._run import RunResult, TortureRun
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment
from fencepost_torture.systems import _judge_leftovers as judge_leftovers
from fencepost_torture.systems._judge import JudgeCaller, JudgeSystem
from fencepost_torture.systems._judge_checker import PROGRAMS
from fencepost_torture.systems._judge_leftovers import LeftoverScan
from tests.acceptance.torture.conftest import open_environment
from tests.acceptance.torture.test_bulk_judges import retell
from tests.acceptance.torture.wreckage import rules, wreck
from tests.waiting_for import until

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

EXAMS = 4
OWNER = "bench"
PLACE = "fencepost_torture.systems._judge:JUDGE"
CALLED: LiteralString = "select count(*) from told where step = 'rejudge'"


class FewExams(JudgeSystem):
    """All for one caller."""

    processes = 1

    def looking_at(self, env: SystemEnvironment) -> Self:
        """The same exams, in a copy of where they were held."""
        other = copy(self)
        other._asked, other._leftovers = list(self._asked), LeftoverScan(env.directory)
        return other


@dataclass(frozen=True)
class Held:
    """Exams that were called for as ever, and judged without boxes."""

    system: FewExams
    database: Database
    directory: Path


@pytest.fixture(scope="module")
def held(
    template_database: Database, valkey: ValkeyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Held]:
    """They are held once. Each test has a copy of the database and of the files."""
    database = Database(template_database.server, f"exams_{uuid.uuid4().hex}")
    database.create(template=template_database.name)
    held = Held(FewExams(), database, tmp_path_factory.mktemp("exams"))
    with open_environment(database, valkey, Clock(database.admin_url), held.directory) as env:
        asyncio.run(hold(held.system, env))
    yield held
    database.drop()


async def hold(system: FewExams, env: SystemEnvironment) -> None:
    with system.open(env) as more:
        for turn in range(EXAMS):
            await asyncio.to_thread(system.ask, env, turn)
        async with Fencepost(env.database.url) as fp:
            await call(env, fp, more)
            for (job_id,) in await asyncio.to_thread(env.rows, "select job_id from job_made"):
                await give_verdict(fp, job_id)
    assert system.account(env) == Account(4 * EXAMS, 4 * EXAMS)


@pytest.fixture
def env(held: Held, valkey: ValkeyServer, tmp_path: Path) -> Iterator[SystemEnvironment]:
    database = Database(held.database.server, f"t_{uuid.uuid4().hex}")
    database.create(template=held.database.name)
    shutil.copytree(held.directory, tmp_path, dirs_exist_ok=True)
    with open_environment(database, valkey, Clock(database.admin_url), tmp_path) as env:
        yield env
    database.drop()


@pytest.fixture
def judge(held: Held, env: SystemEnvironment) -> FewExams:
    return held.system.looking_at(env)


async def call(env: SystemEnvironment, fp: Fencepost, more: Mapping[str, Any]) -> None:
    judging = service.Judging(fp, JudgeSettings(store=env.directory / "store"))
    task = ProcessTask("judge", 0, 1, "", "", str(env.operation_log.path), 10.0, more)
    stop = asyncio.Event()
    working = asyncio.create_task(JudgeCaller(judging, task, stop).work())
    await until("every exam is called for", lambda: env.value(CALLED) >= EXAMS)
    stop.set()
    await working


async def give_verdict(fp: Fencepost, job_id: int) -> None:
    """As a worker does, without a look at the program: by its source it is known what it deserves."""
    deserved = {program.source: program.verdict for program in PROGRAMS.values()}
    running = await fp.run(kernel_job.claim(job_id, OWNER))
    [task] = await fp.run(judge_calls.get_task(job_id))
    verdict = deserved[task.sources["main.c"]]
    async with fp.transaction() as tx:
        await tx.run(judge_calls.put_result(job_id, running.attempt, OWNER, Judgement(verdict=verdict)))
        await tx.run(kernel_job.finish(kernel_job.Finish(job_id, running.attempt), OWNER))


# Of four exams two have a wrong program and two a right one, and each has one that does not compile.
DAMAGES: dict[str, tuple[LiteralString, set[str]]] = {
    "nothing": ("analyze verdict", set()),
    "a verdict is written twice": (
        "update fencepost.judge_result set judged_at = judged_at where generation = 0 and verdict = 'WA'",
        {"doubled"},
    ),
    "a verdict of a rejudging is written twice": (
        "update fencepost.judge_rejudged set judged_at = judged_at where verdict = 'AC'",
        {"doubled"},
    ),
    "a verdict is lost": ("delete from verdict where generation = 0 and verdict = 'WA'", {"lost"}),
    "a verdict is another's": (
        "update verdict set verdict = 'WA' where generation = 0 and verdict = 'AC'",
        {"the right verdict"},
    ),
    "a verdict is of an attempt that did not finish": (
        "update finishing set attempt = attempt + 1 where job_id = 1",
        {"one attempt"},
    ),
    "a job is finished twice": (
        "insert into finishing select * from finishing where job_id = 1",
        {"doubled"},
    ),
    "a job has no submission": ("insert into job_made values (999)", {"unrequested"}),
    "a submission has no job": ("delete from job_made where job_id = 1", {"lost"}),
    "a key has two submissions": (
        """insert into fencepost.judge_submission select (jsonb_populate_record(s, '{"job_id": 999}')).*
           from fencepost.judge_submission s where s.author = 'exam-1/right'""",
        # The other one has no job, and what its caller was told is not what is there.
        {"doubled", "lost", "as answered"},
    ),
    "a submission is lost, with all that hangs on it": (
        """with s as (select job_id from fencepost.judge_submission where author = 'exam-1/right'),
                d as (delete from fencepost.judge_rejudged where submission_id in (select job_id from s)),
                r as (delete from fencepost.judge_result where job_id in (select job_id from s))
           delete from fencepost.judge_submission where job_id in (select job_id from s)""",
        {"lost", "as answered", "all or none", "unrequested"},
    ),
    "a submission is to another problem": (
        "update fencepost.judge_submission set slug = 'exam-2' where author = 'exam-1/right'",
        {"its own problem"},
    ),
    "a rejudging is half there": (
        "delete from fencepost.judge_rejudged where generation = 1 and verdict = 'CE'",
        {"all or none", "unrequested"},
    ),
    "a rejudging is there without its submissions": (
        "delete from fencepost.judge_rejudged where generation = 1",
        {"all or none", "unrequested"},
    ),
    "an order has two rejudgings": (
        """insert into fencepost.judge_rejudging (scope, reason, made_at, made_by)
           select scope, reason, made_at, made_by from fencepost.judge_rejudging where generation = 1""",
        {"doubled", "all or none", "as answered"},
    ),
    "a rejudging is lost": (
        """with d as (delete from fencepost.judge_rejudged where generation = 1)
           delete from fencepost.judge_rejudging where generation = 1""",
        {"lost", "unrequested"},
    ),
    "nobody ordered a rejudging": (
        """insert into fencepost.judge_rejudging (scope, reason, made_at, made_by)
           values ('{}', 'nobody', now(), 'nobody')""",
        {"unrequested"},
    ),
    "an import has two versions": (
        """insert into fencepost.judge_problem select (jsonb_populate_record(p, '{"version": 2}')).*
           from fencepost.judge_problem p where p.slug = 'exam-1'""",
        {"doubled"},
    ),
    "a problem has another's data": (
        """update fencepost.judge_problem p set spec = o.spec from fencepost.judge_problem o
           where p.slug = 'exam-1' and o.slug = 'exam-2'""",
        {"whole problems"},
    ),
}


@pytest.mark.parametrize(("damage", "seen"), DAMAGES.values(), ids=DAMAGES)
async def test_one_wrong_row_is_seen(
    env: SystemEnvironment, judge: FewExams, damage: LiteralString, seen: set[str]
) -> None:
    wreck(env, damage)

    assert rules(judge, env) == seen


async def test_a_problem_whose_data_is_gone_is_seen(env: SystemEnvironment, judge: FewExams) -> None:
    max(path for path in (env.directory / "store").rglob("*") if path.is_file()).unlink()

    assert rules(judge, env) == {"whole problems"}


async def test_an_exam_that_was_never_held_is_lost(env: SystemEnvironment, judge: FewExams) -> None:
    await asyncio.to_thread(judge.ask, env, EXAMS)

    assert rules(judge, env) == {"lost"}
    assert judge.account(env).open == 4


async def test_callers_that_were_told_two_jobs_of_one_key_are_seen(
    env: SystemEnvironment, judge: FewExams
) -> None:
    def tell_another(operations: list[Operation]) -> None:
        # Of two at once one may be refused while the other is open; then both come again.
        of_one = [each for each in operations if each.subject == "exam-1/right" and not each.is_unknown]
        assert len(of_one) >= 2
        operations[operations.index(of_one[1])] = replace(of_one[1], answer=of_one[1].answer + 1)

    retell(env, tell_another)

    assert rules(judge, env) == {"as answered"}


async def test_an_order_that_was_never_answered_may_be_carried_out_or_not(
    env: SystemEnvironment, judge: FewExams
) -> None:
    def forget_answers(operations: list[Operation]) -> None:
        first = next(each for each in operations if each.what == "rejudge")
        never = {**first.question, "submissions": [1, 2]}
        operations[operations.index(first)] = replace(first, answer=None, ended=math.inf)
        operations.append(replace(first, subject="again", begun=first.ended))
        operations.append(replace(first, subject="never", question=never, answer=None, ended=math.inf))

    wreck(env, "update fencepost.judge_rejudging set reason = 'again' where generation = 1")
    retell(env, forget_answers)

    assert rules(judge, env) == set()


def started(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


Sleeper = Callable[[Path], int]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """A process that was told of a workspace, as a box is."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(workspace: Path) -> int:
        program = "import time; time.sleep(600)"
        begun.append(subprocess.Popen([sys.executable, "-c", program, f"workspace={workspace}"]))
        return begun[-1].pid

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def test_what_a_dead_judge_has_left_on_its_machine_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleeper: Sleeper
) -> None:
    cgroups, env, us = tmp_path / "cgroups", tmp_path / "stage", os.getpid()
    monkeypatch.setattr(judge_leftovers, "CGROUPS", cgroups)
    of_another = cgroups / "fencepost-box-1-1-999"
    living, dead = (env / "workspace" / f"judge-{us}-{start}-0a" for start in (started(us), "1"))
    for path in (of_another, living, env / "tmp"):
        path.mkdir(parents=True)
    leftovers = LeftoverScan(env)
    box = sleeper(living)
    (cgroups / f"fencepost-box-1-{box}-{started(box)}").mkdir()
    assert list(leftovers.of_the_dead()) == []
    assert [breach.key for breach in leftovers.of_everybody()] == ["workspace", "box"]

    left = sleeper(dead)
    (cgroups / f"fencepost-box-1-{left}-1").mkdir()
    dead.mkdir()
    (env / "tmp" / "forgotten").touch()

    assert [str(breach) for breach in leftovers.of_the_dead()] == [
        f"left behind: workspace {dead.name}",
        "left behind: scratch forgotten",
        f"left behind: box process {left}",
        f"left behind: cgroup {cgroups}/fencepost-box-1-{left}-1",
    ]


def run(before: Callable[[SystemEnvironment], None] = lambda env: None) -> RunResult:
    """Until every crash point was hit."""
    plan = RunPlan(
        3,
        90.0,
        [PLACE],
        ["crash", "kill"],
        gap_seconds=0.1,
        lease_seconds=1.0,
        pace=RunPace(evenly=True),
        server_settings={"fsync": "off", "full_page_writes": "off"},
        liveness_leases=30,
        enough=lambda tally, effects: set(JudgeSystem.points) <= set(tally.points),
        before=before,
    )
    return TortureRun(plan).run()


@pytest.mark.timeout(240)
@pytest.mark.full
def test_judges_that_are_killed_at_every_crash_point_break_nothing() -> None:
    outcome = run()

    assert outcome.judgement.breaches == [], outcome.log[-4000:]
    assert set(outcome.tally.points) == set(JudgeSystem.points)
    assert sum(outcome.effects.values()) > 0


# Every import is a new version, also of what is there already.
FORGETFUL: LiteralString = """
    create or replace function fencepost.judge_problem_put(p_slug text, p_title text, p_spec jsonb)
    returns integer language sql volatile security definer as $f$
      insert into fencepost.judge_problem (slug, version, title, spec, imported_at)
      select p_slug, (select count(*) + 1 from fencepost.judge_problem where slug = p_slug), p_title, p_spec,
             fencepost.clock()
      returning version
    $f$;
"""


@pytest.mark.full
@pytest.mark.timeout(240)
def test_a_judge_that_forgets_what_it_has_is_caught() -> None:
    def plant(env: SystemEnvironment) -> None:
        with env.database.connect_admin() as admin:
            admin.execute(FORGETFUL)

    outcome = run(plant)

    assert (outcome.judgement.verdict, {breach.rule for _, breach in outcome.judgement.breaches}) == (
        "violated",
        {"doubled"},
    )


def test_where_nothing_can_be_compiled_it_is_said_what_to_install(
    env: SystemEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(env.directory))

    with pytest.raises(BinaryMissingError, match="gcc"), JudgeSystem().open(env):
        pytest.fail("there was a compiler")
