"""Hooks are told of every try and change nothing; middleware takes part; every form is in the log."""

import asyncio
import io
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from fencepost import Fencepost, InvalidInput, Job, JobFailed, Retry, Snooze, SyncWorkflow, Workflow
from fencepost.embedded import Database
from fencepost.jobs import hooks as jobs_hooks
from fencepost.jobs.hooks import Ended
from fencepost.jobs.retry_policy import Verdict
from fencepost.logs import configure_logging
from tests.integration.job_features import hooked
from tests.integration.job_features.conftest import Working, quick
from tests.integration.job_features.probes import Probes
from tests.takeover import TAKEN_OVER

NAMES = {"job_id", "kind", "queue", "attempt", "try", "trace_id"}


def at_once(_tries: int, _error: Exception) -> Verdict:
    return Retry(0)


@pytest.fixture
def lines() -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """What a process with debug logs writes, line by line."""
    root, shown = logging.getLogger(), io.StringIO()
    before = (root.handlers, root.level)
    configure_logging(level="debug", form="json", stream=shown)

    def lines_of(event: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, shown.getvalue().splitlines()) if line["event"] == event]

    yield lines_of
    root.handlers, root.level = before
    structlog.reset_defaults()


class Told:
    """What the hooks of a client were told, in order."""

    def __init__(self, fp: Fencepost) -> None:
        self.starts: list[tuple[int, int]] = []
        self.errors: list[tuple[int, BaseException]] = []
        self.ends: list[tuple[int, Ended]] = []
        fp.on_start(self._start)
        fp.on_error(self._error)
        fp.on_finish(self._finish)

    async def _start(self, job: Job) -> None:
        self.starts.append((job.id, job.tries))

    def _error(self, job: Job, error: BaseException) -> None:
        self.errors.append((job.id, error))

    def _finish(self, job: Job, ended: Ended) -> None:
        self.ends.append((job.id, ended))

    def states(self, job_id: int) -> list[str]:
        return [ended.state for told, ended in self.ends if told == job_id]


async def test_a_coroutine_that_fails_once_is_told_at_each_step(fp: Fencepost, working: Working) -> None:
    told = Told(fp)

    @fp.job("default", retry=at_once)
    async def stumble(job: Job) -> None:
        if job.tries == 1:
            raise ValueError("once")
        async with job.finish({"well": True}):
            assert told.starts[-1] == (job.id, 2)

    async with working(fp):
        job = await stumble.enqueue()
        await fp.jobs.result(job, within=60)
    assert told.starts == [(job.job_id, 1), (job.job_id, 2)]
    [(_, error)] = told.errors
    assert (type(error), str(error)) == (ValueError, "once")
    first, last = [ended for _, ended in told.ends]
    assert (first.state, first.error, first.retry_seconds) == ("pending", "ValueError: once", 0)
    assert "in stumble" in (first.traceback or "")
    assert (last.state, last.error, last.traceback) == ("finished", None, None)
    assert last.seconds > 0


async def test_a_death_a_snooze_and_a_bad_payload_are_told(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    told = Told(fp)

    @fp.job("default", tries=1)
    def die(job: Job) -> None:
        raise KeyError("gone")

    @fp.job("default")
    async def snooze(job: Job) -> None:
        raise Snooze(3600)

    @fp.job("default")
    async def picky(job: Job, x: int) -> None: ...

    async with working(fp):
        dead, waits = await die.enqueue(), await snooze.enqueue()
        bad = await fp.run(picky.call(x=1))
        await probes.until_state(dead.job_id, "dead")
        await probes.until("all three are told", lambda: len(told.ends) == 3)
    assert told.states(dead.job_id) == ["dead"]
    assert told.states(waits.job_id) == ["pending"]
    assert told.states(bad.job_id) == ["finished"]
    assert [type(error) for _, error in told.errors] == [KeyError], "a snooze is no failure"


async def test_a_payload_that_does_not_fit_is_an_error_without_a_start(
    fp: Fencepost, database: Database, probes: Probes, working: Working
) -> None:
    told = Told(fp)

    @fp.job("default")
    async def picky(job: Job, x: int) -> None: ...

    job = await picky.enqueue(x=1)
    with database.connect_admin() as admin:
        admin.execute('update fencepost.job set payload = \'{"x": "many"}\'')
    async with working(fp):
        await probes.until("it is told", lambda: bool(told.ends))
    assert (told.starts, told.states(job.job_id)) == ([], ["dead"])
    assert isinstance(told.errors[0][1], InvalidInput)


async def test_hooks_that_fail_or_hang_change_no_outcome(
    fp: Fencepost, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_hooks, "HOOK_SECONDS", 0.05)
    hold = threading.Event()

    @fp.on_start
    def exits(job: Job) -> None:
        raise SystemExit(3)

    @fp.on_start
    async def gives_up(job: Job) -> None:
        raise asyncio.CancelledError

    @fp.on_start
    async def hangs(job: Job) -> None:
        await asyncio.Event().wait()

    @fp.on_finish
    def hangs_in_a_thread(job: Job, ended: Ended) -> None:
        hold.wait(60)

    @fp.on_error
    def breaks(job: Job, error: BaseException) -> None:
        raise RuntimeError("a hook that fails")

    @fp.job("default", tries=2, retry=at_once)
    async def work(job: Job) -> str:
        if job.tries == 1:
            raise ValueError("once")
        return "done"

    with structlog.testing.capture_logs() as logs:
        async with working(fp):
            job = await work.enqueue()
            assert await fp.jobs.result(job, within=60) == "done"
            hold.set()
    failed = {
        (log["hook"].rsplit(".", 1)[-1], log["on"], log["error"])
        for log in logs
        if log["event"] == "hook_failed"
    }
    late = "TimeoutError: the hook did not finish within 0.05 s"
    assert failed >= {
        ("exits", "start", "SystemExit: 3"),
        ("gives_up", "start", "CancelledError: "),
        ("hangs", "start", late),
        ("breaks", "error", "RuntimeError: a hook that fails"),
    }
    assert all(log.keys() >= NAMES for log in logs if log["event"] == "hook_failed")
    assert all(log["job_id"] == job.job_id for log in logs if log["event"] == "hook_failed")


async def test_a_lost_job_and_a_refused_one_are_told(
    fp: Fencepost, database: Database, probes: Probes, working: Working
) -> None:
    told = Told(fp)

    @fp.job("default")
    def slow(job: Job) -> None:
        with database.connect_admin() as admin:
            admin.execute(TAKEN_OVER)

    async with working(fp, lease_seconds=120, heartbeat_seconds=60):
        job = await slow.enqueue()
        await probes.until("it is told", lambda: bool(told.ends))
    [(_, ended)] = told.ends
    assert (told.states(job.job_id), ended.reason) == (["refused"], "stale_attempt")


async def test_async_middleware_wraps_coroutines_in_order_and_may_change_the_outcome(
    fp: Fencepost, working: Working
) -> None:
    order: list[str] = []

    @fp.middleware
    async def outer(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        order.append("outer in")
        try:
            return await call()
        except KeyError:
            return "mended"
        finally:
            order.append("outer out")

    @fp.middleware
    async def inner(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        order.append("inner in")
        if job.kind == "refused by the middleware":
            raise KeyError(job.kind)
        return f"{await call()}!"

    @fp.middleware
    def for_threads(job: Job, call: Callable[[], Any]) -> Any:
        order.append("never")
        return call()

    @fp.job("default", timeout=60)
    async def greet(job: Job, name: str) -> str:
        order.append("handler")
        return f"hello {name}"

    @fp.job("default", kind="refused by the middleware")
    async def never(job: Job) -> str:
        order.append("never")
        return "never"

    async with working(fp):
        assert await fp.jobs.result(await greet.enqueue("Ada"), within=60) == "hello Ada!"
        assert await fp.jobs.result(await never.enqueue(), within=60) == "mended"
    assert order == ["outer in", "inner in", "handler", "outer out", "outer in", "inner in", "outer out"]


async def test_plain_middleware_wraps_functions_in_their_thread(fp: Fencepost, working: Working) -> None:
    threads: list[str] = []

    @fp.middleware
    def doubled(job: Job, call: Callable[[], Any]) -> Any:
        threads.append(threading.current_thread().name)
        return call() * 2

    @fp.job("default")
    def add(job: Job, x: int, y: int) -> int:
        threads.append(threading.current_thread().name)
        return x + y

    async with working(fp):
        assert await fp.jobs.result(await add.enqueue(1, 2), within=60) == 6
    assert threads[0] == threads[1] == "fencepost-handler"


async def test_a_handler_that_fails_inside_middleware_fails_as_without_it(
    fp: Fencepost, working: Working
) -> None:
    told = Told(fp)

    @fp.middleware
    async def watching(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        return await call()

    @fp.job("default", tries=1)
    async def die(job: Job) -> None:
        raise ValueError("broken")

    async with working(fp):
        with pytest.raises(JobFailed, match="ValueError: broken"):
            await fp.jobs.result(await die.enqueue(), within=60)
    assert [str(error) for _, error in told.errors] == ["broken"]


def test_middleware_with_another_signature_is_refused_when_it_is_declared() -> None:
    fp = Fencepost("postgresql://localhost/never-opened")
    with pytest.raises(InvalidInput, match="called with the job and a function"):

        @fp.middleware  # type: ignore[type-var]
        def wrong(job: Job) -> None: ...


@pytest.fixture
async def processes(database: Database) -> AsyncIterator[Fencepost]:
    """A client with the handler of `hooked`, on the test's database."""
    async with Fencepost(database.url, job_settings=quick()) as fp:
        for handler in hooked.fp.handlers:
            fp.handlers.add(handler)
        yield fp


async def test_in_a_process_middleware_and_error_hooks_run_there(
    processes: Fencepost, working: Working, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    async with working(processes, processes=1):
        async with processes.transaction() as tx:
            good = await hooked.divide.submit(tx, note=str(note), by=2)
            bad = await hooked.divide.submit(tx, note=str(note), by=0)
        assert await processes.jobs.result(good, within=60) == 1.5
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            await processes.jobs.result(bad, within=60)
    pid, job_id, error, *more = note.read_text().split(maxsplit=3)
    assert int(pid) != os.getpid()
    assert (int(job_id), error, more) == (bad.job_id, "ZeroDivisionError", ["and a coroutine"])


async def test_every_form_of_a_handler_is_logged_from_its_start_to_its_death(
    processes: Fencepost, probes: Probes, working: Working, lines: Any, tmp_path: Path
) -> None:
    fp = processes

    @fp.job("default", kind="on the loop", tries=2, retry=at_once)
    async def on_loop(job: Job) -> None:
        raise ValueError("broken")

    @fp.job("default", kind="in a thread", tries=2, retry=at_once)
    def in_thread(job: Job) -> None:
        raise ValueError("broken")

    @fp.workflow("default", kind="workflow", tries=2, retry=at_once)
    async def flow(wf: Workflow) -> None:
        raise ValueError("broken")

    @fp.workflow("default", kind="sync-workflow", tries=2, retry=at_once)
    def sync_flow(wf: SyncWorkflow) -> None:
        raise ValueError("broken")

    async with working(fp, processes=1):
        async with fp.transaction() as tx:
            jobs = {
                "on the loop": await on_loop.submit(tx),
                "in a thread": await in_thread.submit(tx),
                "workflow@1": await flow.start(tx),
                "sync-workflow@1": await sync_flow.start(tx),
                "in a process": await hooked.divide.submit(tx, note=str(tmp_path / "note"), by=0),
            }
        for job in jobs.values():
            await probes.until_state(job.job_id, "dead")
    for kind, job in jobs.items():
        tries = [1] if kind == "in a process" else [1, 2]
        failed, started, ended = (
            [line for line in lines(event) if line["kind"] == kind]
            for event in ("job_failed", "job_started", "job_ended")
        )
        for found in (failed, started, ended):
            assert [line["try"] for line in found] == tries, kind
            assert all(line["job_id"] == job.job_id and line.keys() >= NAMES for line in found)
            assert len({line["trace_id"] for line in found}) == 1, "one trace for all tries"
        assert [line["level"] for line in failed] == ["warning", "error"][-len(tries) :]
        assert all("Error" in line["exception"] and "Error: " in line["error"] for line in failed)
        assert {line["level"] for line in started + ended} == {"debug"}
        assert [line["outcome"] for line in ended] == ["retry" for _ in tries]


@pytest.mark.parametrize(("slow_seconds", "lines"), [(1e-9, 1), (3600, 0)])
async def test_only_a_slow_job_is_in_the_log_at_info(
    fp: Fencepost, working: Working, slow_seconds: float, lines: int
) -> None:
    @fp.job("default")
    async def work(job: Job) -> None: ...

    with structlog.testing.capture_logs() as logs:
        async with working(fp, slow_seconds=slow_seconds):
            job = await work.enqueue()
            await fp.jobs.result(job, within=60)
    ended = [log for log in logs if log["event"] == "job_ended"]
    assert [(log["log_level"], log["job_id"], log["outcome"]) for log in ended] == [
        ("info", job.job_id, "finish")
    ] * lines
