"""`job.finish_with`: jobs that finish together share a commit, and nothing else."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from unittest import mock

import psycopg
import pytest

from fencepost import Fencepost, Handler, InvalidInput, Job, StaleAttempt
from fencepost.embedded import Database
from fencepost.jobs import _group_commit as group_commit
from fencepost.jobs._group_commit import GroupCommit
from fencepost.kernel import job as kernel_job
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes
from tests.takeover import TAKEN_OVER

ONE_TAKEN_OVER = TAKEN_OVER.replace("job_running r returning", "job_running r where job_id = %s returning")
NOTE = "insert into note (text) values (%s)"
Together = Callable[[], Awaitable[None]]


@pytest.fixture(autouse=True)
def tables(probes: Probes) -> None:
    probes.plant(
        """create table folder (name text primary key);
           insert into folder values ('here');
           create table note (text text unique, folder text references folder deferrable initially deferred);
           create table tally (name text primary key, count integer not null);
           insert into tally values ('one', 0), ('two', 0);
           grant select, insert on note to fencepost_app; grant select, update on tally to fencepost_app"""
    )


@pytest.fixture(autouse=True)
def patient() -> Iterable[None]:
    """A busy machine is slow, and slow is not stuck. Tests of what is stuck say so."""
    with mock.patch.multiple(group_commit, STATEMENT_MS_MAX=60_000, LOCK_MS_MAX=60_000):
        yield


def gathering(count: int) -> Together:
    """Returns when so many handlers wait here: they go on in one turn of the loop."""
    arrived, all_here = list[int](), asyncio.Event()

    async def wait() -> None:
        arrived.append(1)
        if len(arrived) >= count:
            all_here.set()
        await all_here.wait()

    return wait


def written(probes: Probes) -> list[str]:
    return probes.column("select text from note order by text")


def ongoing(probes: Probes) -> int:
    return int(probes.value("select count(*) from fencepost.jobs where state in ('pending', 'running')"))


def commits(probes: Probes) -> int:
    return int(probes.value("select count(distinct xmin::text) from note"))


async def submitted(fp: Fencepost, handler: Handler[[str]], names: Iterable[str]) -> dict[str, int]:
    async with fp.transaction() as tx:
        return {name: (await handler.submit(tx, name)).job_id for name in names}


async def test_jobs_that_finish_together_share_a_commit(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    together = gathering(8)

    @fp.job("notes")
    async def note(job: Job, name: str) -> None:
        await together()
        await job.finish_with((NOTE, (name,)), (NOTE, (name.upper(),)), result={"name": name})

    jobs = await submitted(fp, note, "abcdefgh")
    async with working(fp):
        assert [await fp.jobs.result(job_id, within=60) for job_id in jobs.values()] == [
            {"name": name} for name in jobs
        ]
    assert written(probes) == sorted("abcdefghABCDEFGH")
    assert commits(probes) == 1


async def test_a_statement_that_fails_fails_its_own_job_alone(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    together = gathering(6)
    failed: list[str] = []

    @fp.job("notes", tries=1)
    async def note(job: Job, name: str) -> None:
        await together()
        try:
            await job.finish_with((NOTE, ("the same" if name in "be" else name,)), final_status=name)
        except psycopg.errors.UniqueViolation:
            failed.append(name)
            raise

    jobs = await submitted(fp, note, "abcdef")
    async with working(fp):
        await probes.until("all have ended", lambda: not ongoing(probes))
    assert [probes.state(job_id) for job_id in jobs.values()] == [
        "dead" if name in failed else "finished" for name in jobs
    ]
    assert len(failed) == 1, "one of the two has the text"
    assert written(probes) == sorted(["the same", *"acdf"])


async def test_a_constraint_that_fails_at_the_commit_fails_its_own_job_alone(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    together = gathering(4)

    @fp.job("notes", tries=1)
    async def note(job: Job, name: str) -> None:
        await together()
        folder = "nowhere" if name == "c" else "here"
        await job.finish_with(("insert into note (text, folder) values (%s, %s)", (name, folder)))

    jobs = await submitted(fp, note, "abcd")
    async with working(fp):
        for name, job_id in jobs.items():
            await probes.until_state(job_id, "dead" if name == "c" else "finished")
    assert written(probes) == ["a", "b", "d"]


async def test_a_job_that_was_taken_over_is_refused_and_the_others_commit(
    fp: Fencepost, database: Database, probes: Probes, working: Working
) -> None:
    together = gathering(4)
    refused: list[StaleAttempt] = []

    @fp.job("notes", tries=1)
    async def note(job: Job, name: str) -> None:
        if name == "b":
            with database.connect_admin() as admin:
                admin.execute(ONE_TAKEN_OVER.encode(), (job.id,))
        await together()
        try:
            await job.finish_with((NOTE, (name,)))
        except StaleAttempt as refusal:
            refused.append(refusal)
            raise

    jobs = await submitted(fp, note, "abcd")
    async with working(fp, lease_seconds=120, heartbeat_seconds=60):
        for name in "acd":
            await fp.jobs.result(jobs[name], within=60)
        await probes.until("it was refused", lambda: bool(refused))
    assert refused[0].subject == str(jobs["b"])
    assert written(probes) == ["a", "c", "d"], "the late writer has written nothing"
    assert probes.state(jobs["b"]) == "running", "its new owner has it"


async def test_a_group_that_asks_for_no_answer_of_the_finish_writes_for_a_zombie(
    fp: Fencepost, database: Database, probes: Probes, working: Working
) -> None:
    """The planted bug: neither the fence nor the finish of a group is asked whether the job is ours."""
    together = gathering(2)

    @fp.job("notes", tries=1)
    async def note(job: Job, name: str) -> None:
        if name == "b":
            with database.connect_admin() as admin:
                admin.execute(ONE_TAKEN_OVER.encode(), (job.id,))
        await together()
        await job.finish_with((NOTE, (name,)))

    with (
        mock.patch.object(group_commit, "_require_finished"),
        mock.patch.object(kernel_job, "fence_all", return_value=None),
    ):
        jobs = await submitted(fp, note, "ab")
        async with working(fp, lease_seconds=120, heartbeat_seconds=60):
            await fp.jobs.result(jobs["a"], within=60)
    assert written(probes) == ["a", "b"], "a zombie's write was committed: the test above sees it"


async def test_a_statement_that_waits_holds_up_no_other(
    fp: Fencepost, database: Database, probes: Probes, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it waits as long as it would alone."""
    monkeypatch.setattr(group_commit, "LOCK_MS_MAX", 20)
    together = gathering(3)

    @fp.job("tally", tries=1)
    async def count(job: Job, name: str) -> None:
        await together()
        await job.finish_with(("update tally set count = count + 1 where name = %s", (name,)))

    @fp.job("tally", tries=1)
    async def note(job: Job, name: str) -> None:
        await together()
        await job.finish_with((NOTE, (name,)))

    with database.connect_admin() as admin:
        admin.execute("begin; select * from tally where name = 'one' for update")
        held, free = (await submitted(fp, count, ["one", "two"])).values()
        noted = await submitted(fp, note, ["a"])
        async with working(fp):
            for job_id in (free, *noted.values()):
                await fp.jobs.result(job_id, within=60)
            assert probes.state(held) == "running"
            admin.execute("rollback")
            await fp.jobs.result(held, within=60)
    assert probes.rows("select name, count from tally order by name") == [("one", 1), ("two", 1)]


async def test_two_groups_that_lock_rows_in_different_orders_both_commit(
    fp: Fencepost, probes: Probes, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of two, made of single statements that could never have deadlocked alone."""
    monkeypatch.setattr(group_commit, "LOCK_MS_MAX", 20)
    monkeypatch.setattr(group_commit, "MEMBERS_MAX", 2)
    together = gathering(20)

    @fp.job("tally", tries=1)
    async def count(job: Job, name: str) -> None:
        await together()
        await job.finish_with(("update tally set count = count + 1 where name = %s", (name,)))

    names = ["one", "two", "two", "one"] * 5
    async with fp.transaction() as tx:
        jobs = [(await count.submit(tx, name)).job_id for name in names]
    async with working(fp):
        for job_id in jobs:
            await fp.jobs.result(job_id, within=60)
    assert probes.rows("select name, count from tally order by name") == [("one", 10), ("two", 10)]


async def test_a_handler_that_no_longer_waits_is_left_out(fp: Fencepost) -> None:
    asked = list[int]()

    async def serve(_self: GroupCommit, members: list[group_commit.Member]) -> list[bool]:
        asked.extend(member.done.job_id for member in members)
        return [True] * len(members)

    with mock.patch.object(GroupCommit, "_serve", serve):
        groups = GroupCommit(fp, "me")

        def member(job_id: int) -> group_commit.Member:
            done = kernel_job.Finish(job_id, 1)
            return group_commit.Member(done, (), lambda: None)

        leaving = asyncio.ensure_future(groups.finish(member(1)))
        staying = asyncio.ensure_future(groups.finish(member(2)))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying
    assert asked in ([2], [1, 2])


@pytest.mark.parametrize("query", ["commit", "rollback to s", "set local x.y = 'z'", "begin", "call p()", ""])
def test_what_would_end_or_change_the_shared_transaction_is_refused(query: str) -> None:
    group_commit.check_query("  WITH moved as (select 1) select * from moved")
    with pytest.raises(InvalidInput, match="the job's own"):
        group_commit.check_query(query)
