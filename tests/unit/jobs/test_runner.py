"""What came of a handler is handed on once, also of one that never began."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.jobs.execution import Active, Lost, Outcome
from fencepost.jobs.job import Job
from fencepost.jobs.runner import AT_ONCE, Runner
from fencepost.jobs.threads import HandlerThreads
from fencepost.kernel.job import Finish, Leave
from tests.unit.jobs.stand_ins import handler_of, held

RELEASED = Leave(7, 1, "release", None, 0.0)
Handed = list[tuple[Active, Outcome]]


async def passing(job: Job) -> None: ...


async def waiting(job: Job) -> None:
    await asyncio.Event().wait()


async def crashing(job: Job) -> None:
    raise PlannedCrash


@asynccontextmanager
async def runner() -> AsyncGenerator[tuple[Runner, Handed]]:
    threads = HandlerThreads(lambda: None)
    handed: Handed = []
    try:
        yield Runner(threads, None, lambda active, outcome: handed.append((active, outcome))), handed
    finally:
        threads.close()


async def ended(active: Active) -> None:
    # It begins with the next turn of the loop.
    await asyncio.sleep(0)
    assert active.task is not None
    await asyncio.wait([active.task])
    # What a task tells when it has ended is told in the next turn of the loop.
    await asyncio.sleep(0)


async def test_what_came_of_it_is_handed_on() -> None:
    active = held()
    async with runner() as (running, handed):
        running.start([(active, handler_of(passing))])
        await ended(active)
    assert handed == [(active, Finish(7, 1, "ok", None))]
    assert active.outcome_known


@pytest.mark.parametrize(("lost", "outcome"), [(True, Lost()), (False, RELEASED)])
@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize("function", [passing, waiting])
async def test_one_that_is_cancelled_is_handed_on_once_begun_or_not(
    function: Callable[[Job], Awaitable[None]], turns: int, lost: bool, outcome: Outcome
) -> None:
    """None of a task's code runs if it has not begun: without an outcome the job would be held for ever."""
    active = held()
    active.lost = lost
    async with runner() as (running, handed):
        running.start([(active, handler_of(function))])
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel(active)
        running.cancel(active)
        await ended(active)
    done = function is passing and turns == 2
    assert handed == [(active, Finish(7, 1, "ok", None) if done else outcome)]


async def test_one_that_was_stopped_before_its_start_does_not_begin() -> None:
    active = held()
    active.job.stop()
    async with runner() as (running, handed):
        running.start([(active, handler_of(passing))])
        await ended(active)
    assert handed == [(active, RELEASED)]


async def test_an_execution_that_breaks_leaves_its_job_to_the_lease() -> None:
    active = held()
    async with runner() as (running, handed):
        running.start([(active, handler_of(crashing))])
        await ended(active)
    assert handed == [(active, Lost())]
    assert active.task is not None
    assert isinstance(active.task.exception(), PlannedCrash)


async def test_so_many_that_they_would_keep_the_loop_are_begun_in_turns() -> None:
    began: list[int] = []

    async def counting(job: Job) -> None:
        began.append(job.id)

    claimed = [held(job_id) for job_id in range(AT_ONCE * 2 + 1)]
    seen: list[int] = []
    async with runner() as (running, handed):
        running.start([(active, handler_of(counting)) for active in claimed])
        while running.is_starting or len(handed) < len(claimed):
            await asyncio.sleep(0)
            seen.append(len(began))
    assert began == [active.running.job_id for active in claimed]
    assert all(later - sooner <= AT_ONCE for sooner, later in pairwise(seen))
