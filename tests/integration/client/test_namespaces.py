"""The namespaces of the client, each test in both forms: `settled` awaits what has to be awaited."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from fencepost import (
    Backpressure,
    Cancelled,
    Fencepost,
    InvalidInput,
    Job,
    Lease,
    LeaseExpired,
    Mismatch,
    NotFound,
    NotOwner,
    Submission,
)
from fencepost._sync_form import settled
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.jobs._scheduler import declare
from fencepost.kernel import job as kernel_job
from fencepost.kernel import lease as kernel_lease
from fencepost.kernel.drivers import run
from fencepost.lease_keeper import LeaseKeeper
from fencepost.settings import Settings
from fencepost.testing import Clock, Signals

WAITS = Submission(queue="mail", kind="send", payload={"to": "ann"})


@pytest.fixture
async def declared(database: Database, small_pool: Settings) -> AsyncIterator[Fencepost]:
    async with Fencepost(database.url, settings=small_pool) as opened:
        yield opened


@pytest.fixture(params=["async", "sync"])
async def fp(request: pytest.FixtureRequest, declared: Fencepost) -> AsyncIterator[Any]:
    if request.param == "async":
        yield declared
    else:
        with declared.sync() as sync_fp:
            yield sync_fp


async def inside(stack: AsyncExitStack, context: Any) -> Any:
    """Enter a context of either form."""
    if hasattr(context, "__aenter__"):
        return await stack.enter_async_context(context)
    return stack.enter_context(context)


async def in_one(fp: Any, *steps: Callable[[Any], Any]) -> list[Any]:
    """What each step answers, all in one transaction."""
    async with AsyncExitStack() as stack:
        tx = await inside(stack, fp.transaction())
        return [await settled(step(tx)) for step in steps]


def note(word: str) -> Callable[[Any], Any]:
    return lambda tx: tx.execute("insert into public.note values (%s)", (word,))


def taken_over(admin: psycopg.Connection, clock: Clock) -> Lease:
    """Another owner's lease on the printer. No renewal comes between its expiry and the takeover."""
    with admin.transaction():
        admin.execute("select from fencepost.lease where resource = 'printer' for update")
        clock.advance(4)
        return run(admin, kernel_lease.acquire("printer", "another", 60))


async def until_cancelled() -> None:
    async with asyncio.timeout(60):
        await asyncio.Event().wait()


async def test_a_lease_is_acquired_renewed_and_released(fp: Any, clock: Clock) -> None:
    first: Lease = await settled(fp.leases.acquire("printer", ttl=timedelta(minutes=1)))
    assert (first.owner, first.expires_at - first.renewed_at) == (fp.owner, timedelta(minutes=1))
    with pytest.raises(NotOwner):
        await settled(fp.leases.acquire("printer", ttl=60, owner="another"))
    clock.advance(30)
    renewed = await settled(fp.leases.renew(first, ttl=60))
    assert renewed.token == first.token
    assert renewed.expires_at - first.expires_at >= timedelta(seconds=30)
    await settled(fp.leases.release(renewed))
    second = await settled(fp.leases.acquire("printer", ttl=60, owner="another"))
    assert second.token > first.token
    with pytest.raises(InvalidInput, match="ttl is -1"):
        await settled(fp.leases.acquire("printer", ttl=-1))


async def test_many_leases_with_one_statement_each(fp: Any) -> None:
    await settled(fp.leases.acquire("b", ttl=60, owner="another"))
    answers = await settled(fp.leases.acquire_many(["a", "b", "c"], ttl=60))
    assert [answer.acquired for answer in answers] == [True, False, True]
    leases = [await settled(fp.leases.acquire(name, ttl=60)) for name in "ac"]
    assert [r.refusal for r in await settled(fp.leases.renew_many(leases, ttl=60))] == [None, None]
    assert [r.refusal for r in await settled(fp.leases.release_many(leases))] == [None, None]


async def test_a_lease_is_held_for_a_block_and_fences_its_writes(fp: Any, admin: psycopg.Connection) -> None:
    async with AsyncExitStack() as stack:
        held = await inside(stack, fp.lease("printer", ttl=60))
        assert held.is_valid
        await in_one(fp, held.fence, note("fenced"))
    assert await settled(fp.leases.acquire("printer", ttl=60, owner="another"))
    with pytest.raises(NotOwner):
        await in_one(fp, held.fence, note("late"))
    assert [word for (word,) in admin.execute("select word from public.note")] == ["fenced"]


async def test_two_blocks_of_one_process_do_not_hold_the_same_lease(fp: Any) -> None:
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        held = await inside(first, fp.lease("printer", ttl=60))
        with pytest.raises(NotOwner) as refused:
            await inside(second, fp.lease("printer", ttl=60))
        assert refused.value.seen["owner"] == held.lease.owner
        assert held.lease.owner.startswith(fp.owner)
    async with AsyncExitStack() as after:
        assert (await inside(after, fp.lease("printer", ttl=60))).lease.token > held.lease.token


async def test_a_block_longer_than_its_lease_keeps_it(fp: Any, clock: Clock) -> None:
    async with AsyncExitStack() as stack:
        # Only the test moves the database's clock; the thread renews every second.
        clock.freeze(clock.now())
        held = await inside(stack, fp.lease("printer", ttl=3))
        for _ in range(2):
            clock.advance(2)
            with Signals() as signals:
                # The first may have begun before the clock was moved.
                await signals.wait("lease.renewed", count=2)
        with pytest.raises(NotOwner):
            await settled(fp.leases.acquire("printer", ttl=60, owner="another"))
        await in_one(fp, held.fence)


async def test_losing_the_lease_cancels_the_block(declared: Fencepost, clock: Clock) -> None:
    reached: list[bool] = []

    async def hold() -> None:
        async with declared.lease("printer", ttl=3) as held:
            clock.advance(4)
            try:
                await until_cancelled()
            finally:
                reached.append(held.is_valid)

    with pytest.raises(LeaseExpired, match="printer was lost") as lost:
        await hold()
    task = asyncio.current_task()
    assert task is not None
    assert (reached, lost.value.subject, task.cancelling()) == ([False], "printer", 0)


async def test_a_block_whose_lease_was_taken_over_raises_not_owner(
    declared: Fencepost, admin: psycopg.Connection, clock: Clock
) -> None:
    taken: list[Lease] = []

    async def hold() -> None:
        async with declared.lease("printer", ttl=3):
            taken.append(await asyncio.to_thread(taken_over, admin, clock))
            await until_cancelled()

    with pytest.raises(NotOwner, match="printer was lost"):
        await hold()
    assert (await declared.leases.renew(taken[0], ttl=60)).token == taken[0].token


async def test_a_block_is_cancelled_though_its_thread_hears_nothing(
    declared: Fencepost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server hangs: the renewal is not refused, and the time of the lease passes."""
    let_go = threading.Event()

    def hang(_: LeaseKeeper) -> None:
        let_go.wait(60)

    monkeypatch.setattr(LeaseKeeper, "renew", hang)

    async def hold() -> None:
        async with declared.lease("printer", ttl=0.3):
            try:
                await until_cancelled()
            finally:
                let_go.set()

    with pytest.raises(LeaseExpired):
        await hold()


async def test_a_cancel_from_outside_stays_one(declared: Fencepost) -> None:
    entered = asyncio.Event()

    async def hold() -> None:
        async with declared.lease("printer", ttl=60):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await declared.leases.acquire("printer", ttl=60, owner="another")).token == 2


def test_a_block_without_a_loop_is_told_by_is_valid_and_the_fence(
    database: Database, small_pool: Settings, clock: Clock
) -> None:
    with Fencepost(database.url, settings=small_pool).sync() as fp:
        with fp.lease("printer", ttl=3) as held:
            clock.advance(4)
            Deadline(60, "the loss is known").wait(lambda: not held.is_valid)
            other = fp.leases.acquire("printer", ttl=60, owner="another")
            with pytest.raises(NotOwner), fp.transaction() as tx:
                held.fence(tx)
        assert fp.leases.renew(other, ttl=60).token == other.token


async def test_a_request_is_claimed_completed_and_replayed(fp: Any, admin: psycopg.Connection) -> None:
    def claimed(digest: str) -> Callable[[Any], Any]:
        return lambda tx: fp.idempotency.claim(tx, "player:7", "one", digest=digest)

    def completed(tx: Any) -> Any:
        return fp.idempotency.complete(tx, "player:7", "one", {"gold": 3})

    claim, _ = await in_one(fp, claimed("a"), completed)
    assert claim.claimed
    again, _ = await in_one(fp, claimed("a"), note("not committed"))
    assert (again.replayed, again.response) == (True, {"gold": 3})
    with pytest.raises(Mismatch):
        await in_one(fp, claimed("b"))
    keys, digests = ["one", "two"], ["a", "a"]
    [many] = await in_one(fp, lambda tx: fp.idempotency.claim_many(tx, "player:7", keys, digests=digests))
    assert [each.claim.outcome for each in many] == ["replay", "claimed"]
    assert admin.execute("select count(*) from public.note").fetchone() == (0,)


async def test_on_a_connection_of_the_user_the_outcome_is_in_the_answer(fp: Any, database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        assert fp.idempotency.claim(connection, "player:7", "one", digest="a").claimed
        connection.commit()
        assert fp.idempotency.claim(connection, "player:7", "one", digest="b").outcome == "mismatch"


async def test_messages_commit_with_the_rows_of_the_user(fp: Any, admin: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        await in_one(fp, lambda tx: fp.outbox.put(tx, "mail", {}), lambda tx: tx.execute("table nowhere"))
    first, others = await in_one(
        fp,
        lambda tx: fp.outbox.put(tx, "mail", {"to": "ann"}, key="7", headers={"a": 1}),
        lambda tx: fp.outbox.put_many(tx, "mail", [1, 2], keys=["7", None]),
    )
    sent = admin.execute("select id, key, payload from fencepost.outbox where channel = 'mail' order by id")
    assert sent.fetchall() == [(first, "7", {"to": "ann"}), (others[0], "7", 1), (others[1], None, 2)]
    with pytest.raises(NotFound):
        await settled(fp.outbox.resolve(10**9, "sent", expected="parked", note="seen in the mailbox"))


async def test_a_job_is_submitted_looked_at_cancelled_and_retried(fp: Any) -> None:
    job = await settled(fp.jobs.submit(WAITS))
    assert (await settled(fp.jobs.get(job))).state == "pending"
    assert await settled(fp.jobs.cancel(job)) == "cancelled"
    with pytest.raises(Cancelled):
        await settled(fp.jobs.result(job, within=timedelta(seconds=1)))
    await settled(fp.jobs.retry(job, actor="alice"))
    assert (await settled(fp.jobs.get(job.job_id))).state == "pending"
    assert await settled(fp.jobs.get(10**9)) is None
    with pytest.raises(NotFound):
        await settled(fp.jobs.retry(10**9))


async def test_a_dead_job_is_retried_or_discarded(fp: Any) -> None:
    options = kernel_job.SubmitOptions(delay_seconds=3600)
    later = await settled(fp.jobs.submit(Submission(queue="mail", kind="send", payload={}, options=options)))
    await settled(fp.jobs.retry(later))
    running = await settled(fp.run(kernel_job.claim(later.job_id, "me")))
    await settled(fp.run(kernel_job.bury(running.job_id, running.attempt, "me", "no such address")))
    assert (await settled(fp.jobs.get(later))).error == "no such address"
    await settled(fp.jobs.discard(later))
    assert (await settled(fp.jobs.get(later))).state == "cancelled"


async def test_the_result_of_a_job_is_waited_for_at_most_so_long(fp: Any) -> None:
    job = await settled(fp.jobs.submit(WAITS))
    with pytest.raises(TimeoutError, match=r"had not ended after 0\.05 s"):
        await settled(fp.jobs.result(job, within=timedelta(milliseconds=50)))
    running = await settled(fp.run(kernel_job.claim(job.job_id, "me")))
    done = kernel_job.Finish(running.job_id, running.attempt, "ok", {"sent": True})
    await settled(fp.run(kernel_job.finish(done, "me")))
    assert await settled(fp.jobs.result(job)) == {"sent": True}


async def test_a_queue_is_paused_resumed_and_bounded(fp: Any, admin: psycopg.Connection) -> None:
    job = await settled(fp.jobs.submit(WAITS))
    await settled(fp.jobs.pause("mail", actor="alice"))
    assert await settled(fp.run(kernel_job.claim_next("mail", 1, "me", 1))) == []
    await settled(fp.jobs.resume("mail"))
    [answer] = await settled(fp.run(kernel_job.claim_next("mail", 1, "me", 1)))
    assert answer.job_id == job.job_id
    await settled(fp.jobs.bound("mail", 1))
    await settled(fp.jobs.submit(WAITS))
    with pytest.raises(Backpressure):
        await settled(fp.jobs.submit(WAITS))
    with pytest.raises(Backpressure):
        await settled(fp.jobs.submit(WAITS, within=timedelta(milliseconds=20)))
    await settled(fp.jobs.bound("mail", None))
    await settled(fp.jobs.submit(WAITS))


async def test_a_batch_is_made_in_a_transaction_of_either_form(fp: Any) -> None:
    async with AsyncExitStack() as stack:
        tx = await inside(stack, fp.transaction())
        jobs = await settled(tx.run(kernel_job.submit_many("mail", "send", [1, 2])))
        then = await settled(tx.run(WAITS.call()))
        assert await settled(fp.jobs.batch(tx, jobs, then=then, name="letters")) > 0
    assert (await settled(fp.jobs.get(then))).state == "pending"


async def test_a_schedule_is_paused_and_resumed(
    declared: Fencepost, fp: Any, admin: psycopg.Connection
) -> None:
    @declared.every(timedelta(minutes=5))
    @declared.job("mail")
    async def beat(job: Job) -> None: ...

    assert [each.name for each in fp.schedules.declared] == ["beat"]
    with pytest.raises(NotFound):
        await settled(fp.schedules.pause("beat"))

    await declare(declared, declared.handlers, declared.schedules.declared, "worker")
    await settled(fp.schedules.pause("beat", actor="alice"))
    paused = "select paused_by from fencepost.schedules where name = 'beat'"
    assert admin.execute(paused).fetchone() == ("alice",)
    await settled(fp.schedules.resume("beat"))
    assert admin.execute(paused).fetchone() == (None,)
