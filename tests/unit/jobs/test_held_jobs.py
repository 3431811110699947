"""The jobs that a worker holds, and its places for more."""

import asyncio
import threading

from fencepost.jobs._executor import HeldJobs, ThreadPool
from tests.unit.jobs.fakes import Counted, held, held_jobs


def test_a_place_that_one_loop_has_reserved_is_not_available_to_the_other() -> None:
    jobs = held_jobs(10)
    with jobs.reserved(6) as first, jobs.reserved(100) as second:
        assert (first, second, jobs.free) == (6, 4, 0)
    assert jobs.free == 10


def test_a_job_that_is_held_inside_the_reservation_is_not_counted_twice_afterwards() -> None:
    jobs = held_jobs(3)
    with jobs.reserved(2):
        jobs.add(held(1))
        jobs.add(held(2))
        assert jobs.free == 0
    assert jobs.free == 1


def test_the_number_of_free_places_is_never_negative() -> None:
    jobs = held_jobs(1)
    for job_id in range(5):
        jobs.add(held(job_id))
    assert jobs.free == 0


def test_a_loop_that_waits_for_room_is_woken_when_a_reservation_ends() -> None:
    """The reservation may have come to nothing: no job ends, and nothing else would wake the loop."""
    jobs = held_jobs(1)
    with jobs.reserved(1):
        assert not jobs.room.is_set()
    assert jobs.room.is_set()
    assert jobs.free == 1


def test_a_loop_that_waits_for_room_is_woken_when_a_job_is_settled() -> None:
    jobs, one = held_jobs(1), held(1)
    jobs.add(one)
    assert (jobs.free, jobs.room.is_set()) == (0, False)
    jobs.remove([one])
    assert (jobs.free, jobs.room.is_set(), jobs.all()) == (1, True, ())


async def test_a_thread_that_was_left_behind_keeps_its_place() -> None:
    room, go_on, started = asyncio.Event(), threading.Event(), threading.Event()
    threads = ThreadPool(room.set)
    jobs = HeldJobs(2, threads, room, Counted().jobs)

    def slow() -> None:
        started.set()
        go_on.wait(60)

    call = asyncio.create_task(threads.call(slow))
    await asyncio.to_thread(started.wait, 60)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (jobs.free, room.is_set()) == (1, False)
    go_on.set()
    await asyncio.wait_for(room.wait(), 60)
    assert jobs.free == 2
    threads.close()


def test_an_older_attempt_that_still_runs_here_is_reported_and_an_ended_one_is_not() -> None:
    jobs = held_jobs()
    first, second, third = held(7, 1), held(7, 2), held(7, 3)
    assert jobs.add(first) is None
    assert jobs.add(held(8, 1)) is None
    assert jobs.add(second) is first
    second.outcome_known = True
    assert jobs.add(third) is None


def test_the_settled_outcome_of_an_older_attempt_leaves_the_newer_one_held() -> None:
    jobs = held_jobs()
    first, second = held(7, 1), held(7, 2)
    jobs.add(first)
    jobs.add(second)
    jobs.remove([first])
    assert jobs.all() == (second,)
    assert jobs.add(held(7, 3)) is second
