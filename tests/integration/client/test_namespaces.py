"""The namespaces of the client, each test in both forms: `settled` awaits what has to be awaited."""

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
from fencepost.jobs._scheduler import declare
from fencepost.kernel import job as kernel_job
from fencepost.settings import Settings
from fencepost.testing import Clock

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
        lease = await inside(stack, fp.leases.hold("printer", ttl=60))
        await in_one(fp, lambda tx: fp.leases.fence(tx, lease), note("fenced"))
    assert await settled(fp.leases.acquire("printer", ttl=60, owner="another"))
    with pytest.raises(NotOwner):
        await in_one(fp, lambda tx: fp.leases.fence(tx, lease), note("late"))
    assert [word for (word,) in admin.execute("select word from public.note")] == ["fenced"]


async def test_two_blocks_of_one_process_do_not_hold_the_same_lease(fp: Any) -> None:
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        held = await inside(first, fp.leases.hold("printer", ttl=60))
        with pytest.raises(NotOwner) as refused:
            await inside(second, fp.leases.hold("printer", ttl=60))
        assert refused.value.seen["owner"] == held.owner
        assert held.owner.startswith(fp.owner)
    async with AsyncExitStack() as after:
        assert (await inside(after, fp.leases.hold("printer", ttl=60))).token > held.token


async def test_a_block_that_lost_its_lease_ends_without_harm(fp: Any, clock: Clock) -> None:
    async with AsyncExitStack() as stack:
        lease = await inside(stack, fp.leases.hold("printer", ttl=1))
        clock.advance(2)
        other = await settled(fp.leases.acquire("printer", ttl=60, owner="another"))
        with pytest.raises((NotOwner, LeaseExpired)):
            await settled(fp.leases.renew(lease, ttl=1))
    assert (await settled(fp.leases.renew(other, ttl=60))).token == other.token


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
