"""A handler that cannot reach PostgreSQL is given back: the server's fault costs the job no try."""

from collections.abc import AsyncIterator, Callable

import pytest
import structlog

from fencepost import Fencepost, Handler, Job, ServerUnavailable, SyncWorkflow, Workflow
from fencepost.backoff import Backoff
from fencepost.embedded import Database
from fencepost.jobs import retry_policy
from tests.integration.job_features import computing
from tests.integration.job_features.conftest import Working, quick


@pytest.fixture
async def fp(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fencepost]:
    monkeypatch.setattr(retry_policy, "SERVER_WAITS", Backoff(0.05, 0.05, jitter=0))
    async with Fencepost(database.url, job_settings=quick()) as fp:
        fp.handlers.add(computing.reach_once_away)
        yield fp


def on_the_loop(fp: Fencepost) -> Handler[[]]:
    @fp.job("default", tries=1)
    async def reach(job: Job) -> int:
        if job.attempt == 1:
            raise ServerUnavailable("PostgreSQL is away")
        return job.tries

    return reach


def in_a_thread(fp: Fencepost) -> Handler[[]]:
    @fp.job("default", tries=1)
    def reach(job: Job) -> int:
        if job.attempt == 1:
            raise ServerUnavailable("PostgreSQL is away")
        return job.tries

    return reach


def in_a_process(fp: Fencepost) -> Handler[[]]:
    return computing.reach_once_away


@pytest.mark.parametrize("form", [on_the_loop, in_a_thread, in_a_process])
async def test_a_job_with_one_try_survives_a_server_that_was_away(
    fp: Fencepost, working: Working, form: Callable[[Fencepost], Handler[[]]]
) -> None:
    handler = form(fp)
    with structlog.testing.capture_logs() as logs:
        async with working(fp, processes=1):
            async with fp.transaction() as tx:
                job = await handler.submit(tx)
            assert await fp.jobs.result(job, within=60) == 1, "its first try"
    [line] = [log for log in logs if log["event"] == "server_unavailable"]
    assert (line["job_id"], line["attempt"], line["try"], line["retry_seconds"]) == (job.job_id, 1, 1, 0.05)
    assert "PostgreSQL is away" in line["error"]
    assert [log for log in logs if log["event"] == "job_failed"] == []


async def test_workflows_are_given_back_too(fp: Fencepost, working: Working) -> None:
    @fp.workflow("default", tries=1)
    async def reach(wf: Workflow) -> int:
        if wf.job.attempt == 1:
            raise ServerUnavailable("PostgreSQL is away")
        return wf.job.tries

    @fp.workflow("default", tries=1)
    def reach_sync(wf: SyncWorkflow) -> int:
        if wf.job.attempt == 1:
            raise ServerUnavailable("PostgreSQL is away")
        return wf.job.tries

    async with working(fp):
        async with fp.transaction() as tx:
            jobs = [await reach.start(tx), await reach_sync.start(tx)]
        assert [await fp.jobs.result(job, within=60) for job in jobs] == [1, 1]


async def test_a_server_that_never_comes_back_ends_the_job(fp: Fencepost, working: Working) -> None:
    attempts: list[int] = []

    @fp.job("default", tries=1)
    async def reach(job: Job) -> None:
        attempts.append(job.attempt)
        raise ServerUnavailable("PostgreSQL is away")

    async with working(fp):
        async with fp.transaction() as tx:
            job = await reach.submit(tx)
        with pytest.raises(Exception, match="PostgreSQL is away"):
            await fp.jobs.result(job, within=60)
    assert attempts == list(range(1, retry_policy.SERVER_WAITS_MAX + 2))
