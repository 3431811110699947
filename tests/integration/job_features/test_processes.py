"""Processes: handlers that compute beside the worker, and are killed when their time is over."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost import Fencepost, InvalidInput, Job, JobFailed
from fencepost.embedded import Database
from fencepost.kernel import job as kernel_job
from fencepost.testing import Child, Signals
from tests.integration.job_features import computing
from tests.integration.job_features.conftest import Working, quick
from tests.integration.job_features.probes import Probes
from tests.takeover import TAKEN_OVER


@pytest.fixture
async def fp(database: Database) -> AsyncIterator[Fencepost]:
    """A system with the handlers of `computing`, on the test's database."""
    async with Fencepost(database.url, job_settings=quick()) as fp:
        for handler in computing.fp.handlers:
            fp.handlers.add(handler)
        yield fp


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "pid"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def written_in(note: Path) -> int | None:
    text = note.read_text() if note.exists() else ""
    return int(text) if text.isdigit() else None


async def pid_in(note: Path, probes: Probes) -> int:
    await probes.until("the handler has begun", lambda: written_in(note) is not None, within=60)
    pid = written_in(note)
    assert pid is not None
    return pid


async def test_results_come_back_and_processes_are_used_again(fp: Fencepost, working: Working) -> None:
    async with working(fp, processes=2):
        async with fp.transaction() as tx:
            squares = await computing.square.submit_many(tx, [{"n": n} for n in range(10)])
            asked = [await computing.who.submit(tx) for _ in range(6)]
        assert [await fp.jobs.result(job, within=60) for job in squares] == [n * n for n in range(10)]
        pids = {await fp.jobs.result(job, within=60) for job in asked}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    assert not any(map(is_alive, pids)), "a worker that has ended leaves no process"


async def test_a_handler_whose_time_is_over_is_killed(
    fp: Fencepost, probes: Probes, working: Working, note: Path
) -> None:
    with Signals() as signals:
        async with working(fp):
            async with fp.transaction() as tx:
                job = await computing.for_ever.submit(tx, note=str(note))
            with pytest.raises(JobFailed, match="TimeoutError"):
                await fp.jobs.result(job, within=60)
            await signals.wait("process.killed")
            assert not is_alive(await pid_in(note, probes)), "it had begun, and is gone"


async def test_a_cancelled_job_is_killed(fp: Fencepost, probes: Probes, working: Working, note: Path) -> None:
    async with working(fp):
        async with fp.transaction() as tx:
            job = await computing.for_ever_without_timeout.submit(tx, note=str(note))
        pid = await pid_in(note, probes)
        await fp.run(kernel_job.cancel(job.job_id, "alice"))
        await probes.until_state(job.job_id, "cancelled")
        await probes.until("its process is gone", lambda: not is_alive(pid))


async def test_a_job_whose_lease_is_lost_is_killed(
    fp: Fencepost, probes: Probes, working: Working, note: Path
) -> None:
    async with working(fp):
        async with fp.transaction() as tx:
            await computing.for_ever_without_timeout.submit(tx, note=str(note))
        pid = await pid_in(note, probes)
        probes.plant(TAKEN_OVER)
        await probes.until("its process is gone", lambda: not is_alive(pid))
        probes.plant("delete from fencepost.job_running")


async def test_the_policy_sees_the_exception_itself(fp: Fencepost, probes: Probes, working: Working) -> None:
    async with working(fp):
        async with fp.transaction() as tx:
            again = await computing.divide.submit(tx, by=0)
            never = await computing.give_up.submit(tx)
        assert await fp.jobs.result(again, within=60) == 0.0
        with pytest.raises(JobFailed, match="PermanentError: of no use"):
            await fp.jobs.result(never, within=60)
    errors = "select detail ->> 'error' from fencepost.events where event = 'failed' order by event_id"
    assert probes.column(errors) == ["ZeroDivisionError: division by zero"] * 2
    tracebacks = "select detail ->> 'traceback' from fencepost.events where detail ? 'traceback'"
    for traceback in probes.column(tracebacks):
        # Those of the process itself, from the handler on.
        assert traceback.splitlines()[1].endswith(("in divide", "in give_up"))
    assert len(probes.column(tracebacks)) == 3


async def test_a_process_that_dies_is_a_failed_try_and_no_more(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    async with working(fp):
        async with fp.transaction() as tx:
            crashing = await computing.crash.submit(tx)
            leaving = await computing.leave.submit(tx)
        with pytest.raises(JobFailed, match="ProcessDied: its process was killed by SIGSEGV") as died:
            await fp.jobs.result(crashing, within=60)
        assert died.value.tries == 2
        with pytest.raises(JobFailed, match="SystemExit: 3"):
            await fp.jobs.result(leaving, within=60)


async def test_a_process_writes_under_the_fence(fp: Fencepost, probes: Probes, working: Working) -> None:
    probes.plant("create table note (text text); grant insert, select on note to fencepost_app")
    async with working(fp):
        async with fp.transaction() as tx:
            job = await computing.write.submit(tx, text="hello")
        assert await fp.jobs.result(job, within=60) == {"text": "hello"}
        async with fp.transaction() as tx:
            late = await computing.zombie.submit(tx, admin_url=probes.database.admin_url)
        await probes.until(
            "the zombie was refused",
            lambda: "stale_attempt" in probes.column("select reason from fencepost.refusals"),
        )
        probes.plant("delete from fencepost.job_running")
    assert probes.column("select text from note") == ["hello"]
    assert late.created


async def test_a_process_knows_its_trace_and_finds_a_renamed_handler(fp: Fencepost, working: Working) -> None:
    async with working(fp):
        async with fp.transaction() as tx:
            traced = await computing.traced.options(headers={"trace_id": "abc"}).submit(tx)
            renamed = await computing.another_name.submit(tx)
        assert await fp.jobs.result(traced, within=60) == {
            "job_id": traced.job_id,
            "attempt": 1,
            "trace_id": "abc",
        }
        assert await fp.jobs.result(renamed, within=60) == "found"


def working_alone(url: str) -> None:
    """A worker in a process of its own, for ever."""

    async def work() -> None:
        async with Fencepost(url, job_settings=quick()) as fp:
            for handler in computing.fp.handlers:
                fp.handlers.add(handler)
            await fp.jobs.worker().run()

    asyncio.run(work())


async def test_a_killed_worker_takes_its_processes_along(
    fp: Fencepost, database: Database, probes: Probes, note: Path
) -> None:
    with Child(working_alone, database.url) as worker:
        async with fp.transaction() as tx:
            await computing.for_ever_without_timeout.submit(tx, note=str(note))
        pid = await pid_in(note, probes)
        worker.kill()
        await probes.until("its handler is gone too", lambda: not is_alive(pid))


def test_what_cannot_run_in_a_process_is_refused_when_it_is_declared() -> None:
    fp = Fencepost("postgresql://localhost/never-opened")

    async def asynchronous(job: Job) -> None: ...

    def inner(job: Job) -> None: ...

    with pytest.raises(InvalidInput, match="runs in the loop"):
        fp.job("work", run_in="process")(asynchronous)
    with pytest.raises(InvalidInput, match="stands inside another function"):
        fp.job("work", run_in="process")(inner)
    with pytest.raises(InvalidInput, match="would block the loop"):
        fp.job("work", run_in="loop")(inner)
