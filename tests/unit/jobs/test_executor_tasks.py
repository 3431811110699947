"""What came of a handler is handed on once, also of one that never began."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from itertools import pairwise

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.jobs._executor import AT_ONCE, Executor, HeldJob, Lost, Outcome, ThreadPool
from fencepost.jobs.job import Job
from fencepost.kernel.job import Finish, Leave
from tests.unit.jobs.fakes import handler_of, held, held_jobs

RELEASED = Leave(7, 1, "release", None, 0.0)
Handed = list[tuple[HeldJob, Outcome]]


async def passing(job: Job) -> None: ...


async def waiting(job: Job) -> None:
    await asyncio.Event().wait()


async def crashing(job: Job) -> None:
    raise PlannedCrash


@asynccontextmanager
async def executor() -> AsyncGenerator[tuple[Executor, Handed]]:
    held, handed = held_jobs(), Handed()
    starting = Executor(
        held, ThreadPool(held.room.set), None, lambda active, outcome: handed.append((active, outcome))
    )
    try:
        yield starting, handed
    finally:
        starting.close()


async def ended(active: HeldJob) -> None:
    while not active.outcome_known:  # noqa: ASYNC110 - Each turn of the loop is what is waited for.
        await asyncio.sleep(0)


async def test_what_came_of_it_is_handed_on() -> None:
    active = held()
    async with executor() as (running, handed):
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
    async with executor() as (running, handed):
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
    async with executor() as (running, handed):
        running.start([(active, handler_of(passing))])
        await ended(active)
    assert handed == [(active, RELEASED)]


async def test_an_execution_that_breaks_leaves_its_job_to_the_lease() -> None:
    active = held()
    async with executor() as (running, handed):
        running.start([(active, handler_of(crashing))])
        await ended(active)
    assert handed == [(active, Lost())]
    assert active.task is not None
    assert isinstance(active.task.exception(), PlannedCrash)


async def test_handlers_that_end_at_once_share_a_task_and_those_that_wait_do_not() -> None:
    tasks: dict[int, object] = {}

    async def noting(job: Job) -> None:
        tasks[job.id] = asyncio.current_task()
        if job.id >= 10:
            await asyncio.sleep(0)

    claimed = [held(job_id) for job_id in range(20)]
    async with executor() as (running, handed):
        running.start([(active, handler_of(noting)) for active in claimed])
        await asyncio.gather(*map(ended, claimed))
    assert len(handed) == 20
    assert len({tasks[n] for n in range(10)}) == 1
    # The one that was at hand, and one for each of the others.
    assert len({tasks[n] for n in range(10, 20)}) == 10


async def test_a_task_whose_handler_has_waited_takes_no_other_when_it_goes_on() -> None:
    tasks: list[object] = []
    going_on = asyncio.Event()

    async def noting(job: Job) -> None:
        tasks.append(asyncio.current_task())
        await going_on.wait()

    async with executor() as (running, _handed):
        first, second = held(1), held(2)
        running.start([(first, handler_of(noting))])
        while not tasks:  # noqa: ASYNC110 - The same.
            await asyncio.sleep(0)
        # Its task wakes before the second was begun.
        going_on.set()
        running.start([(second, handler_of(noting))])
        await ended(second)
    assert len(set(tasks)) == 2


async def test_what_one_handler_leaves_in_its_context_no_other_sees() -> None:
    seen: list[str] = []
    colour = ContextVar("colour", default="none")

    async def painting(job: Job) -> None:
        seen.append(colour.get())
        colour.set(f"of {job.id}")

    claimed = [held(job_id) for job_id in range(5)]
    async with executor() as (running, _handed):
        running.start([(active, handler_of(painting)) for active in claimed])
        await asyncio.gather(*map(ended, claimed))
    assert seen == ["none"] * 5


async def test_a_handler_that_cancels_its_own_task_ends_no_other() -> None:
    async def leaving(job: Job) -> None:
        task = asyncio.current_task()
        assert task is not None
        if job.id == 0:
            task.cancel()
        else:
            await asyncio.sleep(0)

    claimed = [held(job_id) for job_id in range(3)]
    async with executor() as (running, handed):
        running.start([(active, handler_of(leaving)) for active in claimed])
        await asyncio.gather(*map(ended, claimed))
    assert [outcome for _, outcome in handed] == [Finish(n, 1, "ok", None) for n in range(3)]


async def test_to_cancel_one_that_has_ended_stops_no_caller_in_its_task() -> None:
    first, second = held(1), held(2)

    async with executor() as (running, handed):

        async def one_by_one(job: Job) -> None:
            if job.id == 2:
                assert first.task is asyncio.current_task()
                running.cancel(first)
                await asyncio.sleep(0)

        running.start([(first, handler_of(one_by_one)), (second, handler_of(one_by_one))])
        await asyncio.gather(ended(first), ended(second))
    assert [outcome for _, outcome in handed] == [Finish(1, 1, "ok", None), Finish(2, 1, "ok", None)]


async def test_one_that_breaks_leaves_the_others_to_another_task() -> None:
    claimed = [held(1), held(2), held(3)]
    async with executor() as (running, handed):
        handlers = [handler_of(crashing), handler_of(passing), handler_of(passing)]
        running.start(zip(claimed, handlers, strict=True))
        await asyncio.gather(*map(ended, claimed))
    assert [outcome for _, outcome in handed] == [Lost(), *(Finish(n, 1, "ok", None) for n in (2, 3))]
    assert claimed[0].task is not None
    claimed[0].task.exception()


async def test_so_many_that_they_would_keep_the_loop_are_begun_in_turns() -> None:
    began: list[int] = []

    async def counting(job: Job) -> None:
        began.append(job.id)

    claimed = [held(job_id) for job_id in range(AT_ONCE * 2 + 1)]
    seen: list[int] = []
    async with executor() as (running, handed):
        running.start([(active, handler_of(counting)) for active in claimed])
        while len(handed) < len(claimed):
            await asyncio.sleep(0)
            seen.append(len(began))
    assert began == [active.running.job_id for active in claimed]
    assert all(later - sooner <= AT_ONCE for sooner, later in pairwise(seen))
