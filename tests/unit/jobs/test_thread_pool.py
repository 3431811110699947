"""Threads for handlers without an event loop."""

import asyncio
import contextvars
import threading

import pytest

from fencepost.jobs._executor import ThreadPool


async def test_a_function_answers_from_a_thread_with_the_callers_context() -> None:
    threads = ThreadPool(lambda: None)
    mark = contextvars.ContextVar("mark", default="none")
    mark.set("callers")
    assert await threads.call(lambda: (mark.get(), threading.current_thread().name)) == (
        "callers",
        "fencepost-handler",
    )
    threads.close()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyError("y")])
async def test_what_it_raises_is_raised_here(error: BaseException) -> None:
    threads = ThreadPool(lambda: None)

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await threads.call(fail)
    threads.close()


async def test_a_stop_iteration_does_not_hang_the_caller() -> None:
    threads = ThreadPool(lambda: None)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(threads.call(lambda: next(iter(()))), 60)
    threads.close()


async def test_a_caller_that_gives_up_leaves_the_thread_behind_until_it_returns() -> None:
    returned = asyncio.Event()
    threads = ThreadPool(returned.set)
    started, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        go_on.wait(60)

    task = asyncio.create_task(threads.call(slow))
    await asyncio.to_thread(started.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threads.left_behind == 1
    # The next one does not wait for it.
    assert await asyncio.wait_for(threads.call(lambda: "next"), 60) == "next"
    returned.clear()
    go_on.set()
    await asyncio.wait_for(returned.wait(), 60)
    assert threads.left_behind == 0
    threads.close()


async def test_idle_threads_are_used_again() -> None:
    threads = ThreadPool(lambda: None)
    names = {await threads.call(threading.get_ident) for _ in range(20)}
    assert len(names) == 1
    threads.close()


async def test_threads_do_not_keep_the_process_alive() -> None:
    threads = ThreadPool(lambda: None)
    assert await threads.call(lambda: threading.current_thread().daemon)
    threads.close()
