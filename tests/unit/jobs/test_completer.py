"""The completer: PostgreSQL first, then the entries; and nothing ends it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import structlog
from redis.exceptions import ConnectionError as RedisConnectionError

from fencepost.errors import InvalidInput
from fencepost.jobs._completer import Completer
from fencepost.jobs._executor import Committed, HeldJob, Lost, Outcome, Refused, leave
from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import ACKNOWLEDGED, RECLAIM_DECISIONS
from fencepost.kernel.call import Call
from fencepost.kernel.job import Finish, Left, Unfinished
from fencepost.pool import CallLost
from tests.unit.jobs.fakes import Counted, FakeDatabase, FakeRedis, handler_of, held, held_jobs


async def passing(job: Job) -> None: ...


class CompleterHarness:
    """A completer between a database and streams that do what the test says."""

    def __init__(self, answer: Callable[[Call[Any]], Any], *, batch: int = 100) -> None:
        self.database = FakeDatabase(answer)
        self.redis = FakeRedis()
        self.counted = Counted()
        self.held = held_jobs()
        self.completer = Completer(
            self.held, "me", self.database, self.redis.health, self.counted.jobs, batch=batch
        )

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        task = asyncio.create_task(self.completer.run())
        yield
        await asyncio.wait_for(self.completer.drain(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def settle(self, *pairs: tuple[HeldJob, Outcome]) -> None:
        async with self.open():
            for active, outcome in pairs:
                self.held.add(active)
                self.completer.add(active, outcome)
        assert len(self.held) == 0


def finish(active: HeldJob, result: Any = None) -> tuple[HeldJob, Finish]:
    return active, Finish(active.running.job_id, active.running.attempt, "ok", result)


def accept(call: Call[Any]) -> Any:
    job_ids = call.arguments[0]
    if call.function == "job_finish_many":
        return []
    return [Left(job_id, "pending", None) for job_id in job_ids]


def refuse(reason: str) -> Callable[[Call[Any]], Any]:
    def answer(call: Call[Any]) -> Any:
        if call.function == "job_finish_many":
            return [Unfinished(job_id, reason) for job_id in call.arguments[0]]
        return [Left(job_id, None, reason) for job_id in call.arguments[0]]

    return answer


@pytest.mark.parametrize(("batch", "calls"), [(100, 1), (2, 2)])
async def test_while_handlers_begin_their_outcomes_are_waited_for_up_to_a_batch(
    batch: int, calls: int
) -> None:
    harness = CompleterHarness(accept, batch=batch)
    harness.held.unbegun.extend((held(job_id), handler_of(passing)) for job_id in (1, 2, 3))
    async with harness.open():
        while harness.held.unbegun:
            begun, _ = harness.held.unbegun.popleft()
            harness.completer.add(*finish(begun))
            for _ in range(5):
                await asyncio.sleep(0)
    assert harness.database.functions == ["job_finish_many"] * calls


async def test_a_batch_of_finishes_is_one_call_and_then_one_acknowledgement() -> None:
    harness = CompleterHarness(accept)
    await harness.settle(*(finish(held(n)) for n in range(1, 51)))
    assert harness.database.functions == ["job_finish_many"]
    assert len(harness.redis.fake.settled) == 50


async def test_nothing_is_acknowledged_before_the_database_has_answered() -> None:
    harness = CompleterHarness(accept)

    def answer(call: Call[Any]) -> Any:
        assert harness.redis.fake.settled == []
        return accept(call)

    harness.database.answer = answer
    await harness.settle(finish(held()))
    assert harness.redis.fake.settled == ["7-1"]


@pytest.mark.parametrize("reason", sorted(RECLAIM_DECISIONS))
async def test_a_refused_finish_is_acknowledged_exactly_when_its_entry_has_done_its_work(reason: str) -> None:
    harness = CompleterHarness(refuse(reason))
    await harness.settle(finish(held()))
    assert bool(harness.redis.fake.settled) == (reason in ACKNOWLEDGED)
    assert harness.counted.value("fencepost_jobs_outcomes_refused_total", reason=reason) >= 1


async def test_a_lost_lease_is_neither_written_nor_acknowledged() -> None:
    harness = CompleterHarness(accept)
    await harness.settle(
        (held(), Lost()), (held(8), Refused("lease_expired")), (held(9), Refused("not_owner"))
    )
    assert harness.database.functions == []
    assert harness.redis.fake.settled == []


async def test_what_the_handler_committed_itself_is_only_acknowledged() -> None:
    harness = CompleterHarness(accept)
    await harness.settle((held(), Committed()))
    assert (harness.database.functions, harness.redis.fake.settled) == ([], ["7-1"])


@pytest.mark.parametrize("by_handler", [True, False])
async def test_a_job_whose_finish_is_refused_as_cancelled_is_released_so_that_it_ends(
    by_handler: bool,
) -> None:
    def answer(call: Call[Any]) -> Any:
        if call.function == "job_finish_many":
            return [Unfinished(7, "cancelled")]
        return [Left(7, "cancelled", None)]

    harness = CompleterHarness(answer)
    await harness.settle((held(), Refused("cancelled")) if by_handler else finish(held()))
    assert harness.database.functions[-1] == "job_leave_many"
    assert harness.database.calls[-1].arguments[3] == ["release"]
    assert harness.redis.fake.settled == ["7-1"]


async def test_a_job_that_has_ended_as_cancelled_is_acknowledged() -> None:
    harness = CompleterHarness(refuse("cancelled"))
    await harness.settle(finish(held()))
    assert harness.redis.fake.settled == ["7-1"]


@pytest.mark.parametrize(
    "unwritable", [InvalidInput("result has 70000 bytes"), psycopg.DataError("no such json")]
)
async def test_one_result_that_cannot_be_stored_does_not_hurt_the_others(unwritable: Exception) -> None:
    def answer(call: Call[Any]) -> Any:
        if call.function == "job_finish_many" and 3 in call.arguments[0]:
            return unwritable
        return accept(call)

    harness = CompleterHarness(answer)
    await harness.settle(*(finish(held(n)) for n in range(1, 6)))
    assert sorted(harness.redis.fake.settled) == [f"{n}-1" for n in range(1, 6)]
    buried = harness.database.calls[-1]
    assert (buried.function, buried.arguments[0], buried.arguments[3]) == ("job_leave_many", [3], ["bury"])


async def test_a_database_that_does_not_answer_is_asked_again_and_a_repeat_is_no_refusal() -> None:
    answers: list[Any] = [
        CallLost("broken"),
        psycopg.OperationalError("down"),
        [Unfinished(7, "already_finished")],
    ]
    harness = CompleterHarness(lambda _call: answers.pop(0))
    await harness.settle(finish(held()))
    assert harness.redis.fake.settled == ["7-1"]
    assert harness.counted.value("fencepost_jobs_outcomes_total", status="ok") == 1
    assert harness.counted.value("fencepost_jobs_outcome_errors_total") == 2
    assert harness.counted.value("fencepost_jobs_outcomes_refused_total", reason="already_finished") == 0


async def test_whatever_happens_the_completer_goes_on_and_the_place_is_free() -> None:
    answers: list[Any] = [ValueError("a bug"), []]
    harness = CompleterHarness(lambda _call: answers.pop(0), batch=1)
    await harness.settle(finish(held(7)), finish(held(8)))
    assert harness.redis.fake.settled == ["8-1"]
    assert harness.counted.value("fencepost_jobs_loop_errors_total", loop="settle") == 1


async def test_a_caller_that_is_refused_among_many_is_told_apart_from_callers_that_are_done() -> None:
    harness = CompleterHarness(lambda _call: [Unfinished(8, "lease_expired")])
    await harness.settle(*(finish(held(job_id)) for job_id in (7, 8, 9)))
    assert harness.redis.fake.settled == ["7-1", "9-1"]
    assert harness.counted.value("fencepost_jobs_outcomes_total", status="ok") == 2
    assert harness.counted.value("fencepost_jobs_outcomes_refused_total", reason="lease_expired") == 1


async def test_two_attempts_at_one_job_are_not_settled_together() -> None:
    harness = CompleterHarness(accept)
    await harness.settle(finish(held(7, 1)), finish(held(7, 2)))
    assert [call.arguments[1] for call in harness.database.calls] == [[1], [2]]


async def test_an_acknowledgement_that_fails_is_tried_once_more() -> None:
    harness = CompleterHarness(accept)
    harness.redis.fake.failures = [RedisConnectionError("gone")]
    await harness.settle(finish(held()))
    assert harness.redis.fake.settled == ["7-1"]
    assert harness.counted.value("fencepost_jobs_acknowledge_errors_total", reason="xack_error") == 1
    assert harness.redis.failed_with == []


async def test_an_acknowledgement_that_fails_twice_is_left_to_the_reclaimer() -> None:
    harness = CompleterHarness(accept)
    harness.redis.fake.failures = [RedisConnectionError("gone"), RedisConnectionError("gone")]
    await harness.settle(finish(held()))
    assert harness.redis.fake.settled == []
    assert len(harness.redis.failed_with) == 1


async def test_how_a_job_left_is_counted() -> None:
    states = {7: "pending", 8: "dead", 9: "cancelled"}
    harness = CompleterHarness(
        lambda call: [Left(job_id, states[job_id], None) for job_id in call.arguments[0]]
    )
    await harness.settle(*((held(n), leave(held(n).running, "retry", "no")) for n in states))
    for status in ("retry", "dead", "cancelled"):
        assert harness.counted.value("fencepost_jobs_outcomes_total", status=status) == 1


@pytest.mark.parametrize(
    ("how", "answer", "level"),
    [
        ("retry", Left(7, "pending", None), "warning"),
        ("retry", Left(7, "dead", None), "error"),
        ("bury", Left(7, "dead", None), "error"),
        ("retry", Left(7, "cancelled", None), "warning"),
        ("retry", Left(7, None, "stale_attempt"), "warning"),
    ],
)
async def test_a_failure_is_one_line_and_a_death_is_an_error(how: Any, answer: Left, level: str) -> None:
    harness, active = CompleterHarness(lambda _call: [answer]), held(attempt=3)
    outcome = leave(active.running, how, "ValueError: broken", 5, traceback="Traceback: broken")
    with structlog.testing.capture_logs() as logs:
        await harness.settle((active, outcome))
    [line] = [log for log in logs if log["event"] == "job_failed"]
    assert line == {
        "event": "job_failed",
        "log_level": level,
        "job_id": 7,
        "kind": "work",
        "queue": "default",
        "attempt": 3,
        "try": 1,
        "trace_id": f"{7:032x}",
        "error": "ValueError: broken",
        "state": answer.state,
        "refused": answer.refusal,
        "retry_seconds": 5 if answer.state == "pending" else None,
        "exception": "Traceback: broken",
    }


async def test_a_job_that_is_given_back_has_not_failed() -> None:
    harness, active = CompleterHarness(accept), held()
    with structlog.testing.capture_logs() as logs:
        await harness.settle((active, leave(active.running, "release")))
    assert logs == []
