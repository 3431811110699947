"""What comes of a handler, whatever it does."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencepost.errors import Cancelled, Duplicate, LeaseExpired, Refusal, ServerUnavailable
from fencepost.jobs._executor import (
    Committed,
    HeldJob,
    Lost,
    Outcome,
    Refused,
    ThreadPool,
    describe,
    execute,
)
from fencepost.jobs._failure_text import TRACEBACK_CHARACTERS_MAX
from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import Bury, PermanentError, Retry, RetryPolicy, Verdict
from fencepost.kernel.job import Finish, Leave
from tests.unit.jobs.fakes import handler_of, held


async def ran(function: Callable[..., Any], active: HeldJob | None = None, **options: Any) -> Outcome:
    threads = ThreadPool(lambda: None)
    try:
        return await execute(active or held(), handler_of(function, **options), threads)
    finally:
        threads.close()


async def leave_of(function: Callable[..., Any], active: HeldJob | None = None, **options: Any) -> Leave:
    outcome = await ran(function, active, **options)
    assert isinstance(outcome, Leave)
    return outcome


def raising(error: BaseException) -> Callable[..., Awaitable[None]]:
    async def handler(job: Job) -> None:
        raise error

    return handler


async def test_the_result_of_the_handler_is_the_result_of_the_job() -> None:
    async def handler(job: Job, x: int) -> dict[str, int]:
        return {"doubled": x * 2}

    assert await ran(handler, held(payload={"x": 21})) == Finish(7, 1, "ok", {"doubled": 42})


async def test_a_payload_that_does_not_fit_is_buried_with_its_cause() -> None:
    async def handler(job: Job, x: int) -> None: ...

    left = await leave_of(handler, held(payload={"x": "many"}))
    assert left.how == "bury"
    assert left.error is not None
    assert left.error.startswith("payload_missing_or_invalid")


@pytest.mark.parametrize("payload", [{"x": 1}, ["x"], 7])
async def test_a_handler_without_arguments_takes_an_empty_payload_only(payload: Any) -> None:
    async def handler(job: Job) -> None: ...

    assert (await leave_of(handler, held(payload=payload))).how == "bury"
    assert await ran(handler, held(payload={})) == Finish(7, 1, "ok", None)


async def test_an_error_is_tried_again_and_a_permanent_one_is_not() -> None:
    failed = await leave_of(raising(ValueError("no")))
    assert (failed.how, failed.error) == ("retry", "ValueError: no")
    assert (await leave_of(raising(PermanentError("never")))).how == "bury"


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), TimeoutError(), StopIteration()])
async def test_no_exception_of_a_handler_ends_the_worker_or_hangs_it(error: BaseException) -> None:
    assert (await leave_of(raising(error))).how == "retry"


async def test_a_handler_that_cancels_itself_is_not_given_back_for_ever() -> None:
    """Given back, its tries would not be counted, and it would never end."""
    left = await leave_of(raising(asyncio.CancelledError()))
    assert left.how == "retry"


async def test_a_text_that_postgresql_cannot_store_is_made_storable() -> None:
    left = await leave_of(raising(ValueError("nul \0 and surrogate \udc80")))
    assert left.error == "ValueError: nul  and surrogate ?"

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(Mute()) == "Mute, whose message cannot be read"


def always(verdict: Verdict) -> RetryPolicy:
    def policy(_tries: int, _error: Exception) -> Verdict:
        return verdict

    return policy


def _broken_policy(_tries: int, _error: Exception) -> Any:
    raise RuntimeError("broken")


def _silent_policy(_tries: int, _error: Exception) -> Any:
    return None


@pytest.mark.parametrize("policy", [_broken_policy, _silent_policy])
async def test_a_retry_policy_that_fails_gets_the_default(policy: Any) -> None:
    left = await leave_of(raising(ValueError()), retry=policy)
    assert left.how == "retry"
    assert left.delay_seconds == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize(
    ("asked", "given"), [(-5.0, 0.0), (float("nan"), 31_536_000.0), (1e300, 31_536_000.0)]
)
async def test_a_delay_that_means_nothing_is_bounded(asked: float, given: float) -> None:
    left = await leave_of(raising(ValueError()), retry=always(Retry(asked)))
    assert left.delay_seconds == given


async def test_a_policy_may_look_at_the_error() -> None:
    left = await leave_of(raising(KeyError("x")), retry=always(Bury()))
    assert (left.how, left.error) == ("bury", "KeyError: 'x'")


async def test_a_result_that_is_no_json_buries_the_job() -> None:
    async def handler(job: Job) -> object:
        return object()

    left = await leave_of(handler)
    assert left.how == "bury"
    assert "cannot be stored" in (left.error or "")


async def test_past_its_time_a_handler_is_stopped_and_tried_again() -> None:
    active = held()

    async def handler(job: Job) -> None:
        await asyncio.Event().wait()

    left = await leave_of(handler, active, timeout_seconds=0.01)
    assert (left.how, left.error) == ("retry", "TimeoutError: the handler did not finish within 0.01 s")
    assert "await asyncio.Event().wait()" in (left.traceback or ""), "it shows where the handler was"


async def test_a_timeout_of_the_handlers_own_keeps_its_text() -> None:
    left = await leave_of(raising(TimeoutError("the printer")), timeout_seconds=60)
    assert left.error == "TimeoutError: the printer"


@pytest.mark.parametrize("error", [ValueError("broken"), PermanentError("broken"), SystemExit("broken")])
async def test_a_failure_has_the_traceback_of_the_handler_without_our_frames(error: BaseException) -> None:
    left = await leave_of(raising(error))
    lines = (left.traceback or "").splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith("in handler")
    assert lines[-1].endswith(f"{type(error).__name__}: broken")
    assert "in execute" not in (left.traceback or "")


async def test_a_thread_has_its_traceback_too() -> None:
    def handler(job: Job) -> None:
        raise ValueError("broken")

    traceback = (await leave_of(handler)).traceback or ""
    assert traceback.splitlines()[1].endswith("in handler")


async def test_a_traceback_is_bounded_and_keeps_its_end() -> None:
    left = await leave_of(raising(ValueError("x" * 100_000 + "the end")))
    assert left.traceback is not None
    assert len(left.traceback) == TRACEBACK_CHARACTERS_MAX
    assert left.traceback.endswith("the end")


async def test_what_is_stored_of_a_failure_has_no_secrets_and_no_nul() -> None:
    left = await leave_of(raising(ValueError("postgresql://me:hush@db/app password=hush \0\ud800")))
    for text in (left.error, left.traceback):
        assert text is not None
        assert "hush" not in text
        assert "\0" not in text
        assert text.encode()


async def test_a_secret_that_the_bound_cuts_is_hidden_too() -> None:
    left = await leave_of(raising(ValueError("password=" + "h" * TRACEBACK_CHARACTERS_MAX)))
    assert "hhh" not in (left.traceback or "")


async def test_an_error_without_a_text_still_has_an_outcome() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    left = await leave_of(raising(Mute()))
    assert left.how == "retry"
    assert "in handler" in (left.traceback or "")


async def test_a_sync_handler_past_its_time_is_told_to_stop() -> None:
    active, stopped = held(), threading.Event()

    def handler(job: Job) -> None:
        while not job.stopped:
            pass
        stopped.set()

    assert (await leave_of(handler, active, timeout_seconds=0.05)).how == "retry"
    assert await asyncio.to_thread(stopped.wait, 5)


async def cancelled(active: HeldJob, handler: Callable[..., Any]) -> Outcome:
    """Run the handler until it waits, then cancel it as the worker does."""
    threads = ThreadPool(lambda: None)
    task = asyncio.create_task(execute(active, handler_of(handler), threads))
    await asyncio.sleep(0)
    active.job.stop()
    task.cancel()
    return await task


async def wait_for_ever(job: Job) -> None:
    await asyncio.Event().wait()


async def test_a_stopped_handler_is_given_back_and_its_try_not_counted() -> None:
    assert await cancelled(held(), wait_for_ever) == Leave(7, 1, "release", None, 0.0)


async def test_a_lost_handler_writes_nothing() -> None:
    active = held()
    active.lost = True
    assert await cancelled(active, wait_for_ever) == Lost()


async def test_a_handler_that_ends_well_although_it_was_cancelled_has_its_result() -> None:
    async def stubborn(job: Job) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done all the same"

    assert await cancelled(held(), stubborn) == Finish(7, 1, "ok", "done all the same")


def refusal(kind: type[Refusal], noun: str, subject: str) -> Refusal:
    return kind("no", noun=noun, subject=subject)


async def test_a_refusal_of_this_attempt_is_its_end() -> None:
    assert await ran(raising(refusal(LeaseExpired, "job", "7"))) == Refused("lease_expired")
    assert await ran(raising(refusal(Cancelled, "job", "7"))) == Refused("cancelled")
    saw = Cancelled("no", noun="job", subject="7", seen={"owner": "another"})
    assert await ran(raising(saw)) == Refused("cancelled", {"owner": "another"})


async def test_a_server_that_is_away_is_not_the_jobs_fault() -> None:
    left = await leave_of(raising(ServerUnavailable("PostgreSQL is away")))
    assert (left.how, left.error, left.traceback) == (
        "release",
        "ServerUnavailable: PostgreSQL is away",
        None,
    )
    assert left.delay_seconds == pytest.approx(1, rel=0.2)


async def test_a_server_that_stays_away_makes_the_waits_longer_and_then_costs_tries() -> None:
    """The fakes' job is in its first try: each earlier attempt was given back without a charge."""
    waits: list[float] = []
    for attempt in range(1, 11):
        left = await leave_of(raising(ServerUnavailable("away")), held(attempt=attempt))
        assert left.how == "release"
        waits.append(left.delay_seconds or 0)
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60, 60], rel=0.11)
    charged = await leave_of(raising(ServerUnavailable("away")), held(attempt=11))
    assert (charged.how, bool(charged.traceback)) == ("retry", True)


async def test_a_refusal_about_something_else_is_an_error_like_any_other() -> None:
    for other in (refusal(Duplicate, "request", "orders/7"), refusal(Cancelled, "job", "8")):
        assert (await leave_of(raising(other))).how == "retry"


@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError(), refusal(LeaseExpired, "job", "7")])
async def test_what_fails_after_the_finish_does_not_undo_it(error: BaseException) -> None:
    active = held()

    async def handler(job: Job) -> None:
        job.finished = True
        raise error

    assert await ran(handler, active) == Committed()
