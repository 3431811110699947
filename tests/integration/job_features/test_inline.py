"""Jobs without a worker: `fp.testing.drain` runs what is due, `fp.testing.inline` runs it at each commit."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from fencepost import Cancel, Fencepost, InvalidInput, Job, PermanentError, Snooze, SyncFencepost
from tests.integration.job_features.probes import Probes


@pytest.fixture
def sync_fp(fp: Fencepost) -> Iterator[SyncFencepost]:
    with fp.sync() as sync_fp:
        yield sync_fp


async def test_a_drain_runs_what_is_due_and_what_that_submits(fp: Fencepost, probes: Probes) -> None:
    seen: list[str] = []

    @fp.job("mail")
    async def first(job: Job, n: int) -> int:
        seen.append(f"first {n}")
        async with fp.transaction() as tx:
            await second.submit(tx, n=n)
        return n * 2

    @fp.job("post")
    def second(job: Job, n: int) -> None:
        with job.finish_sync({"n": n}) as tx:
            tx.execute("select 1")
        seen.append(f"second {n}")

    submitted = await first.enqueue(n=1)
    await first.options(priority="urgent").enqueue(n=2)
    drained = await fp.testing.drain()

    assert seen[:2] == ["first 2", "first 1"], "the urgent one first"
    assert sorted(seen[2:]) == ["second 1", "second 2"]
    assert (drained.finished, len(drained.jobs)) == (4, 4)
    assert await fp.jobs.result(submitted, within=0) == 2
    assert (await fp.testing.drain()).jobs == []


async def test_a_drain_leaves_jobs_in_the_states_that_a_worker_would(fp: Fencepost) -> None:
    tries: list[str] = []

    @fp.job("mail", tries=2)
    async def fails(job: Job) -> None:
        tries.append("fails")
        raise ValueError("not yet")

    @fp.job("mail")
    async def buried(job: Job) -> None:
        raise PermanentError("never")

    @fp.job("mail")
    async def cancelled(job: Job) -> None:
        raise Cancel("no longer wanted")

    @fp.job("mail")
    async def snoozes(job: Job) -> None:
        if job.attempt == 1:
            raise Snooze(3600)

    jobs = {handler.kind: await handler.enqueue() for handler in (fails, buried, cancelled, snoozes)}
    drained = await fp.testing.drain()

    assert {job.kind: job.state for job in drained.jobs} == {
        "fails": "pending",
        "buried": "dead",
        "cancelled": "cancelled",
        "snoozes": "pending",
    }
    assert (drained.pending, drained.dead, drained.cancelled, drained.finished) == (2, 1, 1, 0)
    assert [job.error for job in drained.jobs if job.kind == "fails"] == ["ValueError: not yet"]

    later = await fp.testing.drain(later=True)
    assert sorted((job.kind, job.state) for job in later.jobs) == [("fails", "dead"), ("snoozes", "finished")]
    assert tries == ["fails", "fails"]
    ends = {kind: await fp.jobs.wait(job, within=0) for kind, job in jobs.items()}
    assert {kind: end.state for kind, end in ends.items()} == {
        "fails": "dead",
        "buried": "dead",
        "cancelled": "cancelled",
        "snoozes": "finished",
    }


async def test_a_drain_of_some_queues_leaves_the_others(fp: Fencepost) -> None:
    @fp.job("mail")
    async def one(job: Job) -> None: ...

    @fp.job("post")
    async def other(job: Job) -> None: ...

    await one.enqueue()
    await other.enqueue()
    assert [job.kind for job in (await fp.testing.drain(["post"])).jobs] == ["other"]
    assert [job.kind for job in (await fp.testing.drain()).jobs] == ["one"]


async def test_a_drain_that_does_not_end_says_so(fp: Fencepost) -> None:
    @fp.job("mail")
    async def again(job: Job) -> None:
        await again.enqueue()

    await again.enqueue()
    with pytest.raises(InvalidInput, match="3 tries have run and jobs are still due"):
        await fp.testing.drain(limit=3)


async def test_a_drain_keeps_limits(fp: Fencepost) -> None:
    """A rate and a concurrency key are decided at the claim, here as in a worker."""

    @fp.job("mail")
    async def one(job: Job) -> None: ...

    await one.enqueue()
    await fp.jobs.pause("mail")
    assert (await fp.testing.drain()).jobs == []
    await fp.jobs.resume("mail")
    assert (await fp.testing.drain()).finished == 1


async def test_inline_jobs_have_run_when_the_commit_returns(fp: Fencepost) -> None:
    seen: list[int] = []

    @fp.job("mail")
    async def one(job: Job, n: int) -> int:
        seen.append(n)
        if n == 1:
            await one.enqueue(n=10)
        return n

    async with fp.testing.inline() as ran:
        job = await one.enqueue(n=1)
        assert seen == [1, 10]
        async with fp.transaction() as tx:
            await one.submit(tx, n=2)
            assert seen == [1, 10], "not before the commit"
        assert seen == [1, 10, 2]
        assert await fp.jobs.result(job, within=0) == 1
        with suppress(ZeroDivisionError):
            async with fp.transaction() as tx:
                await one.submit(tx, n=3)
                raise ZeroDivisionError
        await one.options(delay=60).enqueue(n=4)
        assert seen == [1, 10, 2], "neither what was rolled back, nor what is not due"
        assert ran.finished == 3
    await one.enqueue(n=5)
    assert seen == [1, 10, 2], "the block is over"


async def test_an_inline_failure_is_in_the_value_and_not_raised(fp: Fencepost) -> None:
    @fp.job("mail", tries=1)
    async def fails(job: Job) -> None:
        raise ValueError("why")

    async with fp.testing.inline() as ran:
        job = await fails.enqueue()
        assert [(one.job_id, one.state, one.error) for one in ran.jobs] == [
            (job.job_id, "dead", "ValueError: why")
        ]
        with pytest.raises(InvalidInput, match="inline already"):
            async with fp.testing.inline():
                pass


async def test_the_sync_form_runs_functions(fp: Fencepost, sync_fp: SyncFencepost) -> None:
    seen: list[int] = []

    @fp.job("mail", timeout=5)
    def one(job: Job, n: int) -> None:
        with job.finish_sync() as tx:
            tx.execute("select 1")
        seen.append(n)
        if n == 1:
            one.enqueue_sync(n=10)

    @fp.job("loop")
    async def coroutine(job: Job) -> None: ...

    one.enqueue_sync(n=1)
    assert sync_fp.testing.drain(["mail"]).finished == 2
    with sync_fp.testing.inline(["mail"]) as ran:
        one.enqueue_sync(n=2)
        with sync_fp.transaction() as tx:
            one.submit(tx, n=3)
    assert (seen, ran.finished) == ([1, 10, 2, 3], 2)

    await coroutine.enqueue()
    with pytest.raises(InvalidInput, match="run it with `await"):
        sync_fp.testing.drain()
    assert (await fp.testing.drain()).finished == 1, "it was given back"


async def test_a_callback_gets_the_results_of_its_batch_inline(fp: Fencepost) -> None:
    @fp.job("pages")
    async def fetch(job: Job, page: int) -> dict[str, int]:
        if page == 13:
            raise PermanentError("there is no page 13")
        return {"page": page}

    @fp.job("pages")
    async def publish(job: Job) -> list[int | None]:
        return [one.result and one.result["page"] for one in await job.batch_results()]

    async with fp.transaction() as tx:
        pages = await fetch.submit_many(tx, [{"page": page} for page in (12, 13, 14)])
        after = await publish.submit(tx)
        await fp.jobs.batch(tx, pages, then=after)
    drained = await fp.testing.drain(later=True)
    assert (drained.finished, drained.dead) == (3, 1)
    assert await fp.jobs.result(after, within=0) == [12, None, 14]
