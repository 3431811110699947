"""A Sentinel promotes the replica while jobs run: none is lost, none takes effect twice."""

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.embedded import Database
from fencepost.testing import Signals
from tests.integration.jobs.harness import JobHarness, quick
from tests.integration.jobs.test_redis_outages import counting, once, submit
from tests.matrix.sentinel import Watched, watched

JOBS = 60


@pytest.fixture
def own_group() -> Iterator[Watched]:
    """A group that may be hurt."""
    with watched() as group:
        yield group


def entries_added(harness: JobHarness) -> int:
    """To the stream of the default queue, on whichever server is the primary: it may have none yet."""
    stream = harness.fp.job_settings.stream_key
    return int(harness.redis.xinfo_stream(stream)["entries-added"]) if harness.redis.exists(stream) else 0


async def test_a_primary_that_dies_in_the_middle_of_jobs(database: Database, own_group: Watched) -> None:
    with Signals() as signals:
        async with (
            counting(database, own_group.url) as (harness, ran),
            harness.working(quick(batch=5, concurrency=2)),
        ):
            await signals.wait("drive.up")
            await submit(harness, JOBS)
            await harness.until("some have run", lambda: len(ran) >= 5)
            own_group.primary.kill()
            await harness.until_all_ended(within=60)
            assert once(harness, JOBS)

            # The streams are on the other server now, and drive again.
            await asyncio.to_thread(own_group.await_promotion)
            await signals.wait("drive.up", count=2)
            before = entries_added(harness)
            await submit(harness, JOBS)
            await harness.until_all_ended(within=60)
            assert once(harness, 2 * JOBS)
            assert entries_added(harness) > before
            await harness.until_empty()
    assert own_group.replica.role == "master"
