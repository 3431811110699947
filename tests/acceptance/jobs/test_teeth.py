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


async def an_entry_outlives_its_worker_until_the_commit(stage: JobsEnv, clock: Clock, mutant: str) -> None:
    """Killed when the handler has returned and nothing is written: the entry is still somebody's."""
    stage.ask("bare", ["page"])
    with stage.child(crash="jobs.settle.before_finish:kill", mutant=mutant) as child:
        await asyncio.to_thread(child.be_killed, within=60)
    with stage.redis() as redis:
        assert len(redis.xpending_range(STREAM, GROUP, "-", "+", 10)) == 1


async def a_zombie_does_not_finish_the_next_attempt(stage: JobsEnv, clock: Clock, mutant: str) -> None:
    """It wakes while its successor works, and brings the finish of an attempt that is over."""
    [job_id] = stage.ask("own", ["page"])
    with Child(worker_processes.zombie, stage.database.url, stage.redis_url, False) as child:
        await asyncio.to_thread(child.line, "holding 1")
        child.stop()
        clock.advance(worker_processes.LEASE_SECONDS + 1)
        with stage.database.connect() as successor:
            successor.execute("select * from fencepost.job_claim(%s, 'successor', '1 hour')", (job_id,))
        child.say("go on")
        child.resume()
        await asyncio.to_thread(child.line, "retry")
    assert stage.rows("select attempt from finishing") == []
    assert stage.rows("select attempt from effect") == []


async def a_job_that_somebody_runs_is_not_claimed_by_a_duplicate(
    stage: JobsEnv, clock: Clock, mutant: str
) -> None:
    """A second entry for a running job reaches another worker."""
    [job_id] = stage.ask("own", ["page"])
    with stage.database.connect() as holder:
        holder.execute("select * from fencepost.job_claim(%s, 'holder', '1 hour')", (job_id,))
    stage.entry_for(job_id)
    async with stage.survivor() as fp:
        await stage.until("it was refused", lambda: bool(stage.refusals()), within=SOON)
        assert _sample(fp, "fencepost_jobs_held") == 0
    assert stage.rows("select attempt, owner from fencepost.job_running") == [(1, "holder")]


async def a_late_entry_of_a_finished_job_runs_nothing(stage: JobsEnv, clock: Clock, mutant: str) -> None:
    [job_id] = stage.ask("own", ["page"])
    async with stage.survivor() as fp:
        await stage.until_nothing_is_left(within=SOON)
        for _ in range(3):
            stage.entry_for(job_id)
        await stage.until("the entries are gone", lambda: stage.entries() == 0, within=SOON)
        await stage.until("nothing runs", lambda: not _sample(fp, "fencepost_jobs_held"), within=SOON)
        assert not _sample(fp, "fencepost_jobs_outcomes_total", status="rejected")


async def the_end_of_a_long_list_is_reached(stage: JobsEnv, clock: Clock, mutant: str) -> None:
    """Behind many entries of living workers lies one that was abandoned; a scan looks at ten."""
    held = stage.ask("own", [f"held-{n}" for n in range(15)])
    with stage.database.connect() as holder:
        for job_id in held:
            holder.execute("select * from fencepost.job_claim(%s, 'holder', '1 hour')", (job_id,))
            stage.deliver(stage.entry_for(job_id), "alive")
    [last] = stage.ask("own", ["last"])
    stage.drive(last, "gone", idle_ms=3 * 3_600_000)
    async with stage.survivor(lease_seconds=3600, reclaim_count=1):
        await stage.until(
            "the last one has run", lambda: bool(stage.rows("select 1 from effect")), within=SOON
        )


async def a_wiped_redis_loses_nothing(stage: JobsEnv, clock: Clock, mutant: str) -> None:
    """FLUSHALL between the dispatch and the claim."""
    for job_id in stage.ask("own", [f"page-{n}" for n in range(5)]):
        stage.drive(job_id)
    with stage.redis() as redis:
        redis.flushall()
    async with stage.survivor():
        await stage.until_nothing_is_left(within=SOON)
    stage.check()


def _sample(fp: Fencepost, name: str, **labels: str) -> float:
    return fp.metrics.value(name, **labels)


FINISH = "fencepost._job_finish(bigint[],bigint[],text,text[],jsonb[])"
FENCE = "fencepost.job_fence(bigint,bigint,text)"
TAKE_OVER = "fencepost._job_take_over(bigint,text,interval)"


def finish_without_attempt(stage: JobsEnv) -> None:
    """Any owner, any attempt, at any time."""
    stage.mutate(FINISH, "and r.attempt = a.attempt and r.owner = p_owner", "")
    stage.mutate(FINISH, "((r.expires_at > v_now", "((true or r.expires_at > v_now")
    stage.mutate(
        FENCE, "r.job_id = p_id and r.attempt = p_attempt for key share", "r.job_id = p_id for key share"
    )
    stage.mutate(FENCE, "if not found or v_running.owner <> p_owner or", "if not found and")


def claim_without_gate(stage: JobsEnv) -> None:
    stage.mutate(TAKE_OVER, "and r.expires_at <= v_now for update", "for update")


STORIES: list[tuple[Story, str, Callable[[JobsEnv], None] | None]] = [
    (an_entry_outlives_its_worker_until_the_commit, "ack before commit", None),
    (a_zombie_does_not_finish_the_next_attempt, "", finish_without_attempt),
    (a_job_that_somebody_runs_is_not_claimed_by_a_duplicate, "", claim_without_gate),
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
    stage: JobsEnv,
    clock: Clock,
) -> None:
    if bug and plant is not None:
        plant(stage)
    ending: AbstractContextManager[object] = pytest.raises(BADLY) if bug else nullcontext()
    name = mutant if bug else ""
    with mutants.planted(name), ending:
        await story(stage, clock, name)


def test_every_mutant_has_a_story() -> None:
    assert {mutant for _, mutant, _ in STORIES if mutant} == set(mutants.MUTANTS)
