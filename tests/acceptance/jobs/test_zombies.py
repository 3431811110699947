"""A paused worker comes back after its job went on without it: all it does is refused, with the reason.

The zombie is a real process, stopped while its handler runs. While it stands still, the database's clock
passes the end of its lease, and the job gets into the situation that the zombie will find. Its handler runs
in a thread, where no cancellation reaches it, and does all that an owner may do.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.testing import Child, Clock
from tests.acceptance.jobs import worker_processes
from tests.acceptance.jobs.env import JobsEnv

OPERATIONS = ("renew", "progress", "finish", "release", "retry")


async def nothing_more(env: JobsEnv, job_id: int) -> None:
    """It has expired, and that was not noticed yet."""


async def put_back(env: JobsEnv, job_id: int) -> None:
    """It waits again."""
    with env.database.connect() as reclaimer:
        assert [job.job_id for job in run(reclaimer, kernel_job.reclaim(10))] == [job_id]


async def taken_over(env: JobsEnv, job_id: int) -> None:
    """Another worker holds it."""
    with env.database.connect() as successor:
        assert run(successor, kernel_job.claim(job_id, "successor", lease_seconds=3600)).attempt == 2


async def run_again(env: JobsEnv, job_id: int) -> None:
    """Another worker has finished it."""
    async with env.survivor():
        await env.until_nothing_is_left()


async def cancelled(env: JobsEnv, job_id: int) -> None:
    """An operator has cancelled it."""
    with env.database.connect() as operator:
        run(operator, kernel_job.reclaim(10))
        assert run(operator, kernel_job.cancel(job_id, "carol")) == "cancelled"


SITUATIONS = [
    (nothing_more, "lease_expired"),
    (put_back, "not_running"),
    (taken_over, "stale_attempt"),
    (run_again, "stale_attempt"),
    (cancelled, "cancelled"),
]


def holding(child: Child) -> None:
    """Wait until the handler runs, and freeze the process there."""
    assert child.line("holding") == "holding 1"
    child.stop()


@pytest.mark.parametrize(
    ("situation", "reason"), SITUATIONS, ids=lambda case: getattr(case, "__name__", case)
)
async def test_a_zombie_is_refused_whatever_it_does(
    situation: Callable[[JobsEnv, int], Awaitable[None]], reason: str, env: JobsEnv, clock: Clock
) -> None:
    [job_id] = env.ask("own", ["page"])
    with Child(worker_processes.zombie, env.database.url, env.redis_url, False) as child:
        await asyncio.to_thread(holding, child)
        clock.advance(worker_processes.LEASE_SECONDS + 1)
        await situation(env, job_id)
        child.say("go on")
        child.resume()
        answers = [await asyncio.to_thread(child.line, operation) for operation in OPERATIONS]
        assert env.value("select progress from fencepost.jobs") is None
        child.say("stop")
        await asyncio.to_thread(child.succeed)
    assert answers == [f"{operation} refused: {reason}" for operation in OPERATIONS]
    # Its own writes did not commit.
    assert not env.rows("select 1 from effect where attempt = 1")
    recorded = {(refused.reason, refused.attempted.get("op")) for refused in env.refusals()}
    assert {
        (reason, operation) for operation in ("renew", "progress", "fence", "release", "retry")
    } <= recorded
    assert all(refused.is_explained for refused in env.refusals())


async def test_a_zombies_bare_finish_is_refused_and_counted(env: JobsEnv, clock: Clock) -> None:
    """Its handler returns as if nothing had happened; the worker itself brings the finish."""
    [job_id] = env.ask("own", ["page"])
    with Child(worker_processes.zombie, env.database.url, env.redis_url, True) as child:
        await asyncio.to_thread(holding, child)
        clock.advance(worker_processes.LEASE_SECONDS + 1)
        await run_again(env, job_id)
        env.check()
        child.say("go on")
        child.resume()
        await asyncio.to_thread(child.line, "retry")
        child.say("stop")
        await asyncio.to_thread(child.succeed)
    env.check()
    assert env.rows("select attempt from finishing") == [(2,)]
