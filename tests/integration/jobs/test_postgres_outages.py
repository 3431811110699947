"""PostgreSQL is restarted in the middle: nothing is lost, nothing doubled."""

import asyncio
from collections.abc import Sequence

import pytest

from fencepost.embedded import Database
from fencepost.jobs._fetcher import Fetched, Fetcher
from fencepost.jobs.job import Job
from fencepost.redis_streams.stream import StreamEntry
from fencepost.testing import Proxy, Signals
from tests.integration.jobs.harness import JobHarness, open_harness, quick

BATCH = 2


async def test_a_restart_in_the_middle_loses_and_doubles_nothing(
    own_database: Database, redis_url: str
) -> None:
    async with open_harness(own_database, redis_url) as harness:
        calls = 0

        @harness.fp.job("default", kind="own", lease=5)
        async def own(job: Job, n: int) -> None:
            nonlocal calls
            calls += 1
            async with job.finish() as tx:
                await tx.execute(
                    "insert into effect (job_id, attempt) values (%s, %s)", (job.id, job.attempt)
                )

        @harness.fp.job("default", kind="bare", lease=5)
        async def bare(job: Job, n: int) -> int:
            nonlocal calls
            calls += 1
            return n

        async with harness.fp.transaction() as tx:
            for n in range(150):
                await own.submit(tx, n=n)
                await bare.submit(tx, n=n)
        async with harness.working(quick(concurrency=10, lease_seconds=5)):
            await harness.until("some have run", lambda: calls > 40)
            await asyncio.to_thread(own_database.server.kill)
            await asyncio.to_thread(own_database.server.start)
            await harness.until_all_ended(within=60)
            assert harness.metric("fencepost_jobs_held") <= 10
        assert harness.rows("select count(*), count(distinct job_id) from effect") == [(150, 150)]
        assert harness.rows("select state, count(*) from fencepost.jobs group by state") == [
            ("finished", 300)
        ]
        # The effect was written by the attempt that finished.
        assert not harness.rows(
            "select job_id from effect e join fencepost.jobs j using (job_id) where j.attempt <> e.attempt"
        )


async def test_a_finish_whose_reply_was_lost_is_settled_and_not_repeated(database: Database) -> None:
    # Without Redis, and after the first sweep, nothing else commits.
    with Proxy.for_postgres(database.url) as proxy, Signals() as signals:
        async with open_harness(database, None, through=proxy.url) as harness:

            @harness.fp.job("default", lease=5)
            async def own(job: Job) -> None:
                async with job.finish() as tx:
                    await tx.execute("insert into effect (job_id) values (%s)", (job.id,))
                    proxy.lose_commit_reply()

            async with harness.working(quick(sweep_interval_seconds=60)):
                await signals.wait("sweep.ticked")
                async with harness.fp.transaction() as tx:
                    submitted = await own.submit(tx)
                seen = await harness.until_state(submitted.job_id, "finished")
                await harness.until("it is settled", lambda: harness.metric("fencepost_jobs_held") == 0)
            assert seen.attempt == 1
            assert harness.value("select count(*) from effect") == 1
            # The handler heard of no success, and the truth told that there was one.
            assert harness.metric("fencepost_jobs_outcomes_refused_total", reason="already_finished") == 1


async def test_entries_that_were_read_while_a_claim_failed_are_claimed_too(
    harness: JobHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left pending, they would wait for the reclaimer, who leaves them alone here."""
    read, claim = Fetcher.read, Fetcher._claim  # pyright: ignore[reportPrivateUsage]
    read_again, claims = asyncio.Event(), 0

    async def reading(self: Fetcher, free: int) -> list[StreamEntry]:
        entries = await read(self, free)
        if claims and entries:
            read_again.set()
        return entries

    async def claiming(self: Fetcher, entries: Sequence[StreamEntry]) -> Fetched:
        nonlocal claims
        # Only whole batches are claimed beside the next read.
        claims += len(entries) == BATCH
        if claims == 1 and not read_again.is_set():
            async with asyncio.timeout(60):
                await read_again.wait()
            raise OSError("the database is away for a moment")
        return await claim(self, entries)

    def reading_on(_self: Fetcher) -> None:
        """A claim of what the streams do not hold yet has nothing to read."""

    monkeypatch.setattr(Fetcher, "read", reading)
    monkeypatch.setattr(Fetcher, "_claim", claiming)
    monkeypatch.setattr(Fetcher, "draw_on", reading_on)

    @harness.fp.job("default", lease=5)
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        await nothing.submit_many(tx, ({} for _ in range(40)))
    async with harness.working(quick(batch=BATCH, reclaim_grace_seconds=600)):
        await harness.until_all_ended()
    assert read_again.is_set()
