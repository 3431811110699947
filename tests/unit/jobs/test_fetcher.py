"""What is claimed straight from PostgreSQL: how long, and from where on."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.jobs import _fetcher as module
from fencepost.jobs._completer import Completer
from fencepost.jobs._executor import Executor, ThreadPool
from fencepost.jobs._fetcher import DRAWING_SECONDS, SLACK, Fetcher
from fencepost.jobs._handler import Handler, Handlers
from fencepost.jobs.job import Job
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call
from tests.unit.jobs.fakes import Counted, FakeDatabase, FakeRedis, held_jobs, running


def claims(count: int) -> list[kernel_job.ClaimAnswer]:
    jobs = [running(job_id) for job_id in range(count)]
    return [kernel_job.ClaimAnswer(job.job_id, "claimed", None, job) for job in jobs]


class Watch:
    """The steady clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


async def send(job: Job) -> None: ...


def fetcher_on(database: FakeDatabase) -> Fetcher:
    alone = FakeRedis(failed_with=[ConnectionError()]).health
    handlers, held, metrics, settings = Handlers(), held_jobs(), Counted().jobs, JobSettings()
    handlers.add(Handler(send, "mail", "send"))
    completer = Completer(held, "me", database, alone, metrics, batch=settings.batch)
    executor = Executor(held, ThreadPool(held.room.set), None, completer.add)
    return Fetcher(
        handlers,
        held,
        executor,
        completer,
        "me",
        database,
        cast("Any", None),
        alone,
        metrics,
        settings,
        handlers.serves(),
        connections=10,
    )


async def test_a_caller_that_waits_long_for_an_answer_draws_behind_it_for_as_long_as_before(
    watch: Watch,
) -> None:
    during: list[bool] = []

    def answer(_call: Call[Any]) -> list[kernel_job.ClaimAnswer]:
        watch.now += 10
        during.append(drawing.draws())
        return claims(1)

    drawing = fetcher_on(FakeDatabase(answer))
    drawing.draw_on()
    watch.now += DRAWING_SECONDS / 2
    await drawing.claim_next(10)
    assert during == [True]
    assert drawing.draws()
    watch.now += DRAWING_SECONDS
    assert not drawing.draws()


async def test_a_worker_that_draws_a_quarter_of_a_batch_goes_on(watch: Watch) -> None:
    few, enough = 10, JobSettings().batch // 4
    answers = [claims(few), claims(enough - few), claims(few)]
    drawing = fetcher_on(FakeDatabase(lambda call: answers.pop(0)))
    drawing.draw_on()
    for goes_on in (False, True, False):
        watch.now += DRAWING_SECONDS / 2
        await drawing.claim_next(enough)
        watch.now += DRAWING_SECONDS * 0.6
        assert drawing.draws() == goes_on
        drawing._draws_until = watch.now + DRAWING_SECONDS  # pyright: ignore[reportPrivateUsage]


async def test_a_draw_that_returns_fewer_than_it_asked_for_leaves_none() -> None:
    answers = [claims(4), claims(3)]
    drawing = fetcher_on(FakeDatabase(lambda call: answers.pop(0)))
    await drawing.claim_next(4)
    assert drawing.leaves_some()
    await drawing.claim_next(4)
    assert not drawing.leaves_some()


async def test_a_worker_waits_longer_after_each_draw_that_returned_nothing() -> None:
    answers = [claims(0), claims(0), claims(0), claims(0), claims(0), claims(1), claims(0)]
    drawing = fetcher_on(FakeDatabase(lambda call: answers.pop(0)))
    waits: list[int] = []
    for _ in range(7):
        await drawing.claim_next(1)
        waits.append(drawing._drawing_block_ms)  # pyright: ignore[reportPrivateUsage]
    assert waits[:5] == [3, 6, 12, 24, 24]
    assert waits[6] == 3


async def test_a_claim_on_a_notification_scans_everything() -> None:
    """What was committed just now may have been submitted before what was claimed last."""
    answers = [claims(2), []]
    database = FakeDatabase(lambda call: answers.pop(0))
    noticing = fetcher_on(database)
    await noticing.claim_next(2)
    assert await noticing.claim_on_notice("mail") == (0, JobSettings().notice_claims)
    assert [call.arguments[-2] for call in database.calls] == [None, None]


async def test_a_worker_that_draws_claims_nothing_on_a_notification() -> None:
    database = FakeDatabase(lambda call: claims(2))
    drawing = fetcher_on(database)
    drawing.draw_on()
    assert await drawing.claim_on_notice("mail") == (0, 0)
    assert database.calls == []


async def test_a_caller_that_does_not_draw_does_not_begin_to_by_waiting(watch: Watch) -> None:
    def answer(_call: Call[Any]) -> list[kernel_job.ClaimAnswer]:
        watch.now += 10
        return claims(1)

    drawing = fetcher_on(FakeDatabase(answer))
    await drawing.claim_next(10)
    assert not drawing.draws()


async def test_the_next_claim_begins_where_the_last_one_did_and_at_times_at_the_beginning(
    watch: Watch,
) -> None:
    answered = claims(2)
    database = FakeDatabase(lambda call: answered)
    drawing = fetcher_on(database)
    await drawing.claim_next(2)
    oldest = min(answer.running.submitted_at for answer in answered if answer.running)
    await drawing.claim_next(2)
    watch.now += 60
    await drawing.claim_next(2)
    first, second, third = (call.arguments[-2] for call in database.calls)
    assert (first, third) == (None, None)
    assert second == [None, oldest - SLACK, None, None]
