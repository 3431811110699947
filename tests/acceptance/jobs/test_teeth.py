"""Planted bugs: each makes the story that guards against it end badly.

A story is told once with the runtime as it is, and once with a bug in it. A story that ends well both times
would prove nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from fencepost.client import Fencepost
from fencepost.testing import Child, Clock
from tests.acceptance.jobs import mutants, worker_processes
from tests.acceptance.jobs.env import GROUP, STREAM, JobsEnv

SOON = 6.0
Story = Callable[[JobsEnv, Clock, str], Awaitable[None]]
BADLY = (AssertionError, TimeoutError)


async def an_entry_outlives_its_worker_until_the_commit(env: JobsEnv, clock: Clock, mutant: str) -> None:
    """Killed when the handler has returned and nothing is written: the entry is still that worker's."""
    env.ask("bare", ["page"])
    with env.child(crash="jobs.settle.before_finish:kill", mutant=mutant) as child:
        await asyncio.to_thread(child.be_killed, within=60)
    with env.redis() as redis:
        assert len(redis.xpending_range(STREAM, GROUP, "-", "+", 10)) == 1


async def a_zombie_does_not_finish_the_next_attempt(env: JobsEnv, clock: Clock, mutant: str) -> None:
    """It wakes while its successor works, and brings the finish of an attempt that is over."""
    [job_id] = env.ask("own", ["page"])
    with Child(worker_processes.zombie, env.database.url, env.redis_url, False) as child:
        await asyncio.to_thread(child.line, "holding 1")
        child.stop()
        clock.advance(worker_processes.LEASE_SECONDS + 1)
        with env.database.connect() as successor:
            successor.execute("select * from fencepost.job_claim(%s, 'successor', '1 hour')", (job_id,))
        child.say("go on")
        child.resume()
        await asyncio.to_thread(child.line, "retry")
    assert env.rows("select attempt from finishing") == []
    assert env.rows("select attempt from effect") == []


async def a_job_that_somebody_runs_is_not_claimed_by_a_duplicate(
    env: JobsEnv, clock: Clock, mutant: str
) -> None:
    """A second entry for a running job reaches another worker."""
    [job_id] = env.ask("own", ["page"])
    with env.database.connect() as holder:
        holder.execute("select * from fencepost.job_claim(%s, 'holder', '1 hour')", (job_id,))
    env.entry_for(job_id)
    async with env.survivor() as fp:
        await env.until("it was refused", lambda: bool(env.refusals()), within=SOON)
        assert _sample(fp, "fencepost_jobs_held") == 0
    assert env.rows("select attempt, owner from fencepost.job_running") == [(1, "holder")]


async def a_late_entry_of_a_finished_job_runs_nothing(env: JobsEnv, clock: Clock, mutant: str) -> None:
    [job_id] = env.ask("own", ["page"])
    async with env.survivor() as fp:
        await env.until_nothing_is_left(within=SOON)
        for _ in range(3):
            env.entry_for(job_id)
        await env.until("the entries are gone", lambda: env.entries() == 0, within=SOON)
        await env.until("nothing runs", lambda: not _sample(fp, "fencepost_jobs_held"), within=SOON)
        assert not _sample(fp, "fencepost_jobs_outcomes_total", status="rejected")


async def the_end_of_a_long_list_is_reached(env: JobsEnv, clock: Clock, mutant: str) -> None:
    """Behind many entries of living workers lies one that was abandoned; a scan looks at ten."""
    held = env.ask("own", [f"held-{n}" for n in range(15)])
    with env.database.connect() as holder:
        for job_id in held:
            holder.execute("select * from fencepost.job_claim(%s, 'holder', '1 hour')", (job_id,))
            env.deliver(env.entry_for(job_id), "alive")
    [last] = env.ask("own", ["last"])
    env.drive(last, "gone", idle_ms=3 * 3_600_000)
    async with env.survivor(lease_seconds=3600, reclaim_count=1):
        await env.until("the last one has run", lambda: bool(env.rows("select 1 from effect")), within=SOON)


async def a_wiped_redis_loses_nothing(env: JobsEnv, clock: Clock, mutant: str) -> None:
    """FLUSHALL between the dispatch and the claim."""
    for job_id in env.ask("own", [f"page-{n}" for n in range(5)]):
        env.drive(job_id)
    with env.redis() as redis:
        redis.flushall()
    async with env.survivor():
        await env.until_nothing_is_left(within=SOON)
    env.check()


def _sample(fp: Fencepost, name: str, **labels: str) -> float:
    return fp.metrics.value(name, **labels)


FINISH = "fencepost._job_finish(bigint[],bigint[],text,text[],jsonb[])"
FINISH_ONE = "fencepost.job_finish(bigint,bigint,text,text,jsonb)"
FENCE = "fencepost.job_fence(bigint,bigint,text)"
TAKE_OVER = "fencepost._job_take_over(bigint,text,interval)"


def finish_without_attempt(env: JobsEnv) -> None:
    """Any owner, any attempt, at any time."""
    env.mutate(FINISH, "and r.attempt = a.attempt and r.owner = p_owner", "")
    env.mutate(FINISH_ONE, "and r.attempt = p_attempt and r.owner = p_owner", "")
    for function in (FINISH, FINISH_ONE):
        env.mutate(function, "((r.expires_at > v_now", "((true or r.expires_at > v_now")
    env.mutate(
        FENCE, "r.job_id = p_id and r.attempt = p_attempt for key share", "r.job_id = p_id for key share"
    )
    env.mutate(FENCE, "if v_holds is not true then", "if v_holds is null then")


def claim_without_condition(env: JobsEnv) -> None:
    env.mutate(TAKE_OVER, "and r.expires_at <= v_now for update", "for update")


STORIES: list[tuple[Story, str, Callable[[JobsEnv], None] | None]] = [
    (an_entry_outlives_its_worker_until_the_commit, "ack before commit", None),
    (a_zombie_does_not_finish_the_next_attempt, "", finish_without_attempt),
    (a_job_that_somebody_runs_is_not_claimed_by_a_duplicate, "", claim_without_condition),
    (a_late_entry_of_a_finished_job_runs_nothing, "run without claim", None),
    (the_end_of_a_long_list_is_reached, "cursor always from 0-0", None),
    (a_wiped_redis_loses_nothing, "reconciler that never recalls", None),
]


def name_of(case: object) -> str:
    return getattr(case, "__name__", "")


@pytest.mark.parametrize("bug", [False, True], ids=["as it is", "with the bug"])
@pytest.mark.parametrize(("story", "mutant", "plant"), STORIES, ids=name_of)
async def test_the_story_ends_well_exactly_without_the_bug(
    story: Story,
    mutant: str,
    plant: Callable[[JobsEnv], None] | None,
    bug: bool,
    env: JobsEnv,
    clock: Clock,
) -> None:
    if bug and plant is not None:
        plant(env)
    ending: AbstractContextManager[object] = pytest.raises(BADLY) if bug else nullcontext()
    name = mutant if bug else ""
    with mutants.planted(name), ending:
        await story(env, clock, name)


def test_every_mutant_has_a_story() -> None:
    assert {mutant for _, mutant, _ in STORIES if mutant} == set(mutants.MUTANTS)
