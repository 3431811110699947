"""Workflows on a worker: every step happens once, whatever the worker does in between."""

import asyncio
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from fencepost import Job, JobFailed, Mismatch, Transaction
from fencepost.cli._status_metrics import StatusCollector
from fencepost.cli._status_snapshot import read_board
from fencepost.jobs.retry_policy import Retry, Verdict
from fencepost.testing import Clock
from fencepost.workflows._child_job import ChildJob
from fencepost.workflows._errors import ChildJobFailed, EventTimeout, StepNameTaken
from fencepost.workflows._sync_workflow import SyncWorkflow
from fencepost.workflows._workflow import Workflow
from tests.integration.jobs.harness import JobHarness, quick


def at_once(tries: int, error: Exception) -> Verdict:
    return Retry(0)


@dataclass
class Quote:
    order_id: int
    cents: int


async def start(harness: JobHarness, handler: Any, **arguments: Any) -> int:
    async with harness.fp.transaction() as tx:
        submitted = await handler.start(tx, **arguments)
    return int(submitted.job_id)


async def write(tx: Transaction, note: str) -> str:
    await tx.execute("insert into effect (note) values (%s)", (note,))
    return note


def notes(harness: JobHarness) -> list[str]:
    return [note for (note,) in harness.rows("select note from effect order by id")]


async def test_a_workflow_runs_its_steps_and_returns_a_typed_result(redis_harness: JobHarness) -> None:
    fp = redis_harness.fp

    async def price(order_id: int) -> Quote:
        return Quote(order_id, 500)

    @fp.workflow("orders")
    async def fulfil(wf: Workflow, order_id: int) -> Quote:
        quote = await wf.step(price, order_id)
        assert isinstance(quote, Quote)
        await wf.transaction(write, f"reserved {quote.order_id}")
        return quote

    async with redis_harness.working():
        job_id = await start(redis_harness, fulfil, order_id=7)
        assert await fulfil.result(job_id) == Quote(7, 500)

    assert notes(redis_harness) == ["reserved 7"]
    steps = redis_harness.rows("select name, result from fencepost.workflow_steps order by step_id")
    assert steps == [("price", {"order_id": 7, "cents": 500}), ("write", "reserved 7")]


async def test_a_later_attempt_goes_on_after_the_recorded_steps(harness: JobHarness) -> None:
    calls: list[str] = []

    async def first() -> str:
        calls.append("first")
        return "one"

    async def second(given: str) -> str:
        calls.append("second")
        if len(calls) < 4:
            raise RuntimeError("not yet")
        return given + " two"

    @harness.fp.workflow("orders", retry=at_once)
    async def two(wf: Workflow) -> str:
        given = await wf.step(first)
        await wf.transaction(write, given)
        return await wf.step(second, given)

    async with harness.working():
        job_id = await start(harness, two)
        assert await two.result(job_id) == "one two"

    assert calls == ["first", "second", "second", "second"]
    assert notes(harness) == ["one"]
    assert harness.job(job_id).attempt == 3


async def test_recorded_steps_that_the_code_does_not_request_any_more_are_listed(harness: JobHarness) -> None:
    listed: list[list[str]] = []

    async def step() -> None: ...

    @harness.fp.workflow("orders", retry=at_once)
    async def changed(wf: Workflow) -> None:
        await wf.options(name="stays").step(step)
        if not listed:
            await wf.options(name="goes").step(step)
            listed.append(wf.unrequested_steps)
            raise RuntimeError("a release that drops a step")
        listed.append(wf.unrequested_steps)

    async with harness.working():
        await changed.result(await start(harness, changed))

    assert listed == [[], ["goes"]]


async def test_a_step_whose_writes_fail_is_not_recorded(harness: JobHarness) -> None:
    tries = 0

    async def fail_once(tx: Transaction) -> None:
        nonlocal tries
        tries += 1
        await write(tx, f"try {tries}")
        if tries == 1:
            raise RuntimeError("after the write")

    @harness.fp.workflow("orders", retry=at_once)
    async def one(wf: Workflow) -> None:
        await wf.transaction(fail_once)

    async with harness.working():
        await one.result(await start(harness, one))

    assert notes(harness) == ["try 2"]


INSERT = "insert into effect (note) values (%s)"


async def test_a_step_of_statements_happens_once_and_shares_its_commit(harness: JobHarness) -> None:
    tries = 0

    @harness.fp.workflow("orders", retry=at_once)
    async def writes(wf: Workflow, number: int) -> None:
        nonlocal tries
        await wf.write((INSERT, (f"{number} reserved",)), (INSERT, (f"{number} noted",)))
        if number == 0 and (tries := tries + 1) < 3:
            raise RuntimeError("not yet")
        await wf.options(durable=False).step(nothing)
        await wf.options(name="last").write((INSERT, (f"{number} ended",)))

    async with harness.working():
        started = [await start(harness, writes, number=number) for number in range(20)]
        for job_id in started:
            await writes.result(job_id)

    steps = ["reserved", "noted", "ended"]
    assert sorted(notes(harness)) == sorted(f"{number} {step}" for number in range(20) for step in steps)
    assert harness.job(started[0]).attempt == 3
    names = harness.rows("select name from fencepost.workflow_steps where job_id = %s", (started[1],))
    assert [name for (name,) in names] == ["write", "nothing", "last"]


async def nothing() -> None: ...


async def test_a_statement_that_fails_fails_its_own_workflow_alone(harness: JobHarness) -> None:
    @harness.fp.workflow("orders", tries=1)
    async def writes(wf: Workflow, number: int) -> None:
        await wf.options(name="ready").step(nothing)
        await wf.write(("insert into effect (job_id) values (100 / %s)", (number,)))

    async with harness.working():
        started = [await start(harness, writes, number=number) for number in range(6)]
        for job_id in started[1:]:
            await writes.result(job_id)
        with pytest.raises(JobFailed, match="division by zero"):
            await writes.result(started[0])

    assert harness.value("select count(*) from effect") == 5
    assert harness.rows("select name from fencepost.workflow_steps where job_id = %s", (started[0],)) == [
        ("ready",)
    ]


async def test_a_step_of_statements_with_other_parameters_is_refused(harness: JobHarness) -> None:
    tries = 0
    seen: list[BaseException] = []

    @harness.fp.workflow("orders", retry=at_once)
    async def writes(wf: Workflow) -> None:
        nonlocal tries
        tries += 1
        try:
            await wf.write((INSERT, (f"try {tries}",)))
        except Mismatch as error:
            seen.append(error)
            return
        raise RuntimeError("again")

    async with harness.working():
        await writes.result(await start(harness, writes))

    assert notes(harness) == ["try 1"]
    assert len(seen) == 1


@pytest.mark.parametrize("statements", [(), (("commit", ()),)])
async def test_what_is_no_statement_of_a_step_is_refused_before_anything_is_written(
    harness: JobHarness, statements: tuple[Any, ...]
) -> None:
    @harness.fp.workflow("orders", tries=1)
    async def writes(wf: Workflow) -> None:
        await wf.write(*statements)

    async with harness.working():
        with pytest.raises(JobFailed, match=r"statement|no insert"):
            await writes.result(await start(harness, writes))


async def test_a_step_that_is_not_durable_rides_with_the_next(harness: JobHarness) -> None:
    seen: list[int] = []

    def count() -> int:
        return harness.value("select count(*) from fencepost.workflow_step")  # type: ignore[no-any-return]

    async def pure() -> int:
        return 5

    @harness.fp.workflow("orders")
    async def ride(wf: Workflow) -> int:
        five = await wf.options(durable=False).step(pure)
        seen.append(await asyncio.to_thread(count))
        await wf.options(name="next").step(pure)
        seen.append(await asyncio.to_thread(count))
        await wf.options(name="rider", durable=False).step(pure)
        await wf.transaction(write, "x")
        seen.append(await asyncio.to_thread(count))
        return five

    async with harness.working():
        await ride.result(await start(harness, ride))

    assert seen == [0, 2, 4]


async def test_other_arguments_under_the_same_name_are_refused(harness: JobHarness) -> None:
    given = 1

    async def price(number: int) -> int:
        return number

    @harness.fp.workflow("orders", tries=2, retry=at_once)
    async def changed(wf: Workflow) -> int:
        nonlocal given
        await wf.step(price, given)
        given += 1
        raise RuntimeError("again")

    async with harness.working():
        job_id = await start(harness, changed)
        seen = await harness.until_state(job_id, "dead")

    assert (seen.error or "").startswith(Mismatch.__name__)
    # It is recorded in the background, after the transaction that it rolled back.
    await harness.until("the refusal is recorded", lambda: ("mismatch", "step") in harness.refusals())


async def test_a_name_that_is_used_twice_in_one_run_is_an_error(harness: JobHarness) -> None:
    async def price(number: int) -> int:
        return number

    @harness.fp.workflow("orders", tries=1)
    async def twice(wf: Workflow) -> None:
        await wf.options(key="a").step(price, 1)
        await wf.options(key="b").step(price, 1)
        await wf.step(price, 1)
        await wf.step(price, 1)

    async with harness.working():
        job_id = await start(harness, twice)
        seen = await harness.until_state(job_id, "dead")

    assert (seen.error or "").startswith(StepNameTaken.__name__)


async def test_a_sleeping_workflow_wakes_when_its_time_has_come(harness: JobHarness, clock: Clock) -> None:
    @harness.fp.workflow("orders", concurrency_key="one", concurrency_limit=1)
    async def nap(wf: Workflow, number: int) -> int:
        await wf.sleep(timedelta(hours=1))
        return number

    async with harness.working():
        jobs = [await start(harness, nap, number=number) for number in (1, 2)]
        # The second gets the slot while the first sleeps.
        await harness.until(
            "both sleep",
            lambda: (
                harness.value("select count(*) from fencepost.workflow_waits") == 2 and running(harness) == 0
            ),
        )
        assert [harness.job(job_id).tries for job_id in jobs] == [0, 0]
        clock.advance(3601)
        assert [await nap.result(job_id) for job_id in jobs] == [1, 2]


async def test_workflows_that_wait_hold_neither_a_place_nor_a_connection(harness: JobHarness) -> None:
    """A worker with one place parks them all, and has it free for others."""

    @harness.fp.job("mail")
    async def send(job: Job) -> str:
        return "sent"

    @harness.fp.job("never")
    async def never(job: Job) -> None: ...

    @harness.fp.workflow("orders")
    async def waits(wf: Workflow, what: str) -> None:
        if what == "event":
            await wf.event("never")
        elif what == "sleep":
            await wf.sleep(timedelta(days=1))
        else:
            await wf.gather(ChildJob.of(never.submission()))

    async with harness.working(quick(concurrency=1), queues=["orders", "mail"]):
        for what in ("event", "sleep", "child") * 3:
            await start(harness, waits, what=what)
        await harness.until(
            "all are parked",
            lambda: (
                harness.value(
                    "select count(*) from fencepost.jobs where queue = 'orders/waits@1' and attempt > 0"
                )
                == 9
                and running(harness) == 0
            ),
        )
        assert await harness.fp.jobs.result(await send.enqueue()) == "sent"
        in_transaction = (
            "select count(*) from pg_stat_activity where datname = current_database() and state like %s"
        )
        # The worker's own loops have short transactions; one that a parked workflow held would never end.
        await harness.until(
            "no transaction is open", lambda: harness.value(in_transaction, ("idle in%",)) == 0
        )


def running(harness: JobHarness) -> int:
    return int(harness.value("select count(*) from fencepost.job_running"))


async def test_an_event_wakes_the_workflow_that_waits_for_it(redis_harness: JobHarness) -> None:
    harness = redis_harness

    @harness.fp.workflow("orders")
    async def approved(wf: Workflow, order_id: int) -> str:
        quote = await wf.event(f"approve:{order_id}", Quote)
        again = await wf.options(name="again").event(f"approve:{order_id}")
        assert again == {"order_id": quote.order_id, "cents": quote.cents}
        return f"{quote.cents} cents"

    async with harness.working():
        job_id = await start(harness, approved, order_id=7)
        await harness.until("it waits", lambda: bool(harness.rows("select 1 from fencepost.workflow_waits")))
        async with harness.fp.transaction() as tx:
            assert await harness.fp.events.emit(tx, "approve:7", {"order_id": 7, "cents": 9}, actor="carol")
            assert not await harness.fp.events.emit(tx, "approve:7", {"order_id": 7, "cents": 1})
        assert await approved.result(job_id) == "9 cents"


async def test_an_event_that_does_not_come_times_out_for_good(harness: JobHarness, clock: Clock) -> None:
    failures = 0

    @harness.fp.workflow("orders", retry=at_once)
    async def waits(wf: Workflow) -> str:
        nonlocal failures
        try:
            await wf.event("never", timeout=timedelta(days=2))
        except EventTimeout:
            failures += 1
            if failures == 1:
                raise RuntimeError("once more") from None
            return "timed out"
        return "came"

    async with harness.working():
        job_id = await start(harness, waits)
        await harness.until("it waits", lambda: bool(harness.rows("select 1 from fencepost.workflow_waits")))
        clock.advance(2 * 86_400 + 1)
        await harness.until("it has failed once", lambda: failures >= 1)
        assert await waits.result(job_id) == "timed out"


async def test_several_waits_at_once_end_with_the_last(harness: JobHarness, clock: Clock) -> None:
    @harness.fp.workflow("orders")
    async def both(wf: Workflow) -> list[Any]:
        slept, one, two = await asyncio.gather(wf.sleep(60), wf.event("one"), wf.event("two"))
        return [slept, one, two]

    async with harness.working():
        job_id = await start(harness, both)
        await harness.until(
            "it waits for three", lambda: len(harness.rows("select 1 from fencepost.workflow_waits")) == 3
        )
        async with harness.fp.transaction() as tx:
            await harness.fp.events.emit(tx, "two", 2)
        await harness.until(
            "one came",
            lambda: bool(harness.rows("select 1 from fencepost.workflow_steps where name = 'two'")),
        )
        clock.advance(61)
        async with harness.fp.transaction() as tx:
            await harness.fp.events.emit(tx, "one", 1)
        assert await both.result(job_id) == [None, 1, 2]


async def test_children_run_and_their_results_come_back_in_order(redis_harness: JobHarness) -> None:
    harness = redis_harness

    @harness.fp.workflow("packing")
    async def pack(wf: Workflow, line: int) -> Quote:
        return Quote(line, line * 100)

    @harness.fp.job("plain")
    async def plain(job: Job, number: int) -> int:
        return number + 1

    @harness.fp.workflow("orders")
    async def fulfil(wf: Workflow) -> int:
        spawned = await wf.spawn(ChildJob.of(plain.submission(number=1)))
        quotes = await wf.gather(*(pack.child(line) for line in range(150)))
        assert [quote.order_id for quote in quotes] == list(range(150))
        return sum(quote.cents for quote in quotes) + int(await wf.result(spawned))

    async with harness.working():
        job_id = await start(harness, fulfil)
        assert await fulfil.result(job_id) == 100 * sum(range(150)) + 2


async def test_a_failed_child_is_named_after_all_have_ended(harness: JobHarness) -> None:
    @harness.fp.job("plain", tries=1)
    async def fails(job: Job, number: int) -> int:
        if number == 1:
            raise RuntimeError("no")
        return number

    @harness.fp.workflow("orders")
    async def parent(wf: Workflow) -> list[Any]:
        wanted = [ChildJob.of(fails.submission(number=number)) for number in (0, 1, 2)]
        with pytest.raises(ChildJobFailed, match="RuntimeError: no"):
            await wf.gather(*wanted)
        settled = await wf.options(name="again").gather_settled(*wanted)
        return [None if isinstance(one, ChildJobFailed) else one for one in settled]

    async with harness.working():
        job_id = await start(harness, parent)
        assert await parent.result(job_id) == [0, None, 2]


async def test_a_restart_begins_again_with_other_arguments(harness: JobHarness) -> None:
    keys: list[str] = []

    async def look(number: int) -> int:
        return number

    @harness.fp.workflow("orders")
    async def loop(wf: Workflow, number: int) -> int:
        keys.append(wf.idempotency_key("look"))
        seen = await wf.step(look, number)
        if seen < 3:
            await wf.restart(number=seen + 1)
        assert wf.round == 3
        return seen

    async with harness.working():
        job_id = await start(harness, loop, number=0)
        assert await loop.result(job_id) == 3

    assert keys == [f"loop:{job_id}:{round_}:look" for round_ in range(4)]
    assert len(harness.rows("select 1 from fencepost.workflow_steps")) == 1


async def test_time_and_chance_are_recorded(harness: JobHarness) -> None:
    seen: list[tuple[datetime, float, uuid.UUID, str]] = []

    @harness.fp.workflow("orders", retry=at_once)
    async def chance(wf: Workflow) -> None:
        key = wf.idempotency_key("ship")
        seen.append((await wf.now(), await wf.random(), await wf.uuid(), key))
        if len(seen) < 2:
            raise RuntimeError("again")

    async with harness.working():
        await chance.result(await start(harness, chance))

    assert seen[0] == seen[1]


async def test_a_worker_never_takes_a_version_that_it_does_not_accept(harness: JobHarness) -> None:
    @harness.fp.workflow("orders", kind="fulfil", version=2, accepts={1, 2})
    async def fulfil(wf: Workflow) -> list[Any]:
        return [wf.version, wf.since(2)]

    def start_version(version: int) -> int:
        return int(
            harness.value(
                "select job_id from fencepost.workflow_start('orders', 'fulfil', %s, '{}')", (version,)
            )
        )

    async with harness.working():
        newer, older = start_version(3), start_version(1)
        assert await fulfil.result(older) == [1, False]
        assert await fulfil.result(await start(harness, fulfil)) == [2, True]

    assert harness.job(newer)[:3] == ("pending", None, 0)


async def test_one_live_workflow_for_a_unique_key_whatever_its_version(harness: JobHarness) -> None:
    def declare(version: int) -> Any:
        @harness.fp.workflow("orders", kind="fulfil", version=version, unique="{order_id}")
        async def fulfil(wf: Workflow, order_id: int) -> None: ...

        return fulfil

    async with harness.fp.transaction() as tx:
        first = await declare(1).start(tx, order_id=7)
        second = await declare(2).start(tx, order_id=7)

    assert (second.job_id, second.created) == (first.job_id, False)


async def test_a_cancelled_workflow_is_undone_and_its_next_step_refused(harness: JobHarness) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()
    undone: list[str] = []

    @harness.fp.job("undo")
    async def unreserve(job: Job, what: str) -> None:
        undone.append(what)

    async def hold(tx: Transaction) -> None:
        await write(tx, "held")

    async def slow() -> None:
        entered.set()
        await go_on.wait()

    @harness.fp.workflow("orders")
    async def reserve(wf: Workflow) -> None:
        for what in ("a", "b"):
            await wf.options(key=what, undo=unreserve.submission(what=what)).transaction(write, what)
        await wf.step(slow)
        await wf.transaction(hold)

    async with harness.working():
        job_id = await start(harness, reserve)
        await entered.wait()
        harness.rows("select fencepost.job_cancel(%s, 'carol')", (job_id,))
        go_on.set()
        await harness.until_state(job_id, "cancelled")
        await harness.until("both are undone", lambda: len(undone) == 2)

    assert undone == ["b", "a"]
    assert notes(harness) == ["a", "b"]


async def test_a_scrape_counts_undos_that_died(harness: JobHarness) -> None:
    @harness.fp.job("undo", tries=1)
    async def unreserve(job: Job, what: str) -> None:
        raise RuntimeError("the warehouse is closed")

    @harness.fp.workflow("orders", tries=1)
    async def reserve(wf: Workflow) -> None:
        await wf.options(undo=unreserve.submission(what="a")).transaction(write, "a")
        raise RuntimeError("out of stock")

    def dead_undos() -> float:
        with harness.database.connect() as connection:
            families = {one.name: one for one in StatusCollector(lambda: read_board(connection)).collect()}
        [sample] = families["fencepost_workflow_dead_undos"].samples
        return sample.value

    assert dead_undos() == 0
    async with harness.working():
        await harness.until_state(await start(harness, reserve), "dead")
        await harness.until("the undo is dead", lambda: dead_undos() == 1)
    assert len(harness.rows("select from fencepost.dead_letters")) == 2, "the workflow itself is no undo"


async def test_runs_and_steps_are_counted_and_a_failed_step_is_named(harness: JobHarness) -> None:
    failures = [ValueError("no stock")]

    async def price() -> int:
        return 5

    async def reserve() -> int:
        if failures:
            raise failures.pop()
        return 1

    @harness.fp.workflow("orders", retry=at_once)
    async def buy(wf: Workflow) -> int:
        await wf.step(price)
        await wf.options(key=1).sleep(0)
        reserved = await wf.step(reserve)
        await wf.options(key=2).sleep(0)
        return reserved + await wf.options(key="after").step(price)

    async with harness.working():
        job_id = await start(harness, buy)
        await harness.until_state(job_id, "finished")

    def counted(name: str, **labels: str) -> float:
        return harness.fp.metrics.registry.get_sample_value(name, {"kind": "buy@1", **labels}) or 0

    assert counted("fencepost_workflow_started_total") == 1
    runs = {
        outcome: counted("fencepost_workflow_runs_total", outcome=outcome)
        for outcome in ("finished", "parked", "failed")
    }
    assert runs == {"finished": 1, "parked": 2, "failed": 1}
    assert counted("fencepost_workflow_steps_recorded_total") == 3
    assert counted("fencepost_workflow_steps_failed_total") == 1
    assert counted("fencepost_workflow_steps_repeated_total") == 1, "not the one after the second sleep"
    [(traceback,)] = harness.rows(
        "select detail ->> 'traceback' from fencepost.explain(%s) where detail ? 'traceback'",
        (f"job:{job_id}",),
    )
    assert traceback.endswith(f"ValueError: no stock\nIn the step 'reserve' of workflow {job_id}.")


async def test_a_scrape_counts_workflows_that_are_parked_and_stuck(harness: JobHarness, clock: Clock) -> None:
    @harness.fp.workflow("orders")
    async def wait(wf: Workflow, number: int, seconds: float | None) -> None:
        await wf.event(f"approve:{number}", timeout=seconds)

    def scraped() -> dict[str, list[tuple[dict[str, str], float]]]:
        with harness.database.connect() as connection:
            families = list(StatusCollector(lambda: read_board(connection)).collect())
        return {
            one.name: [(sample.labels, sample.value) for sample in one.samples]
            for one in families
            if one.name.startswith("fencepost_workflow_")
        }

    async with harness.working():
        for number, timeout in ((1, None), (2, 30 * 86_400)):
            await start(harness, wait, number=number, seconds=timeout)
        await harness.until(
            "both are parked", lambda: len(harness.rows("select from fencepost.workflow_waits")) == 2
        )
    queue = {"queue": "orders/wait@1"}
    now = scraped()
    assert now["fencepost_workflow_parked"] == [(queue, 2)]
    assert now["fencepost_workflow_event_waits"] == [({}, 2)]
    assert now["fencepost_workflow_stuck"] == []
    clock.advance(8 * 86_400)
    assert scraped()["fencepost_workflow_stuck"] == [({**queue, "reason": "event"}, 1)]


async def test_a_sync_workflow_does_the_same_in_a_thread(harness: JobHarness, clock: Clock) -> None:
    calls: list[str] = []

    @harness.fp.job("plain")
    async def plain(job: Job, number: int) -> int:
        return number + 1

    def price(order_id: int) -> Quote:
        calls.append("price")
        return Quote(order_id, 500)

    def store(tx: Any, note: str) -> str:
        tx.execute("insert into effect (note) values (%s)", (note,))
        return note

    @harness.fp.workflow("orders", retry=at_once)
    def fulfil(wf: SyncWorkflow, order_id: int, round_: int = 0) -> list[Any]:
        quote = wf.options(durable=False).step(price, order_id)
        wf.transaction(store, f"stored {quote.order_id}")
        wf.write((INSERT, (f"written {quote.order_id}",)))
        calls.append(str(wf.random()))
        wf.sleep(60)
        event = wf.event("go", Quote)
        children = wf.gather(*(ChildJob.of(plain.submission(number=number)) for number in range(3)))
        spawned = wf.spawn(ChildJob.of(plain.submission(number=9)))
        last = wf.result(spawned)
        if not round_:
            wf.restart(order_id=order_id, round_=1)
        return [event.cents, children, last, wf.round]

    async with harness.working():
        job_id = await start(harness, fulfil, order_id=7)
        await harness.until("it sleeps", lambda: bool(harness.rows("select 1 from fencepost.workflow_waits")))
        async with harness.fp.transaction() as tx:
            await harness.fp.events.emit(tx, "go", {"order_id": 7, "cents": 3})
        clock.advance(61)
        await harness.until(
            "it begins again",
            lambda: (
                harness.value(
                    "select headers -> 'workflow' -> 'round' from fencepost.jobs where job_id = %s", (job_id,)
                )
                == 1
            ),
        )
        await harness.until("it sleeps", lambda: bool(harness.rows("select 1 from fencepost.workflow_waits")))
        clock.advance(61)
        assert await fulfil.result(job_id) == [3, [1, 2, 3], 10, 1]

    assert calls.count("price") == 2
    assert notes(harness) == ["stored 7", "written 7"] * 2
