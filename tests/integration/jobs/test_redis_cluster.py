"""A node of a Redis Cluster is killed, and the slot of the streams moves, while jobs run."""

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.embedded import Database
from fencepost.redis_streams._slots import slot_of
from fencepost.testing import Signals
from tests.integration.jobs.harness import quick
from tests.integration.jobs.test_redis_outages import counting, once, submit
from tests.matrix.redis_cluster import RedisCluster, redis_cluster

JOBS = 60


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    """One that may be hurt."""
    with redis_cluster() as cluster:
        yield cluster


async def test_jobs_outlive_a_moved_slot_and_a_killed_node(database: Database, cluster: RedisCluster) -> None:
    with Signals() as signals:
        async with (
            counting(database, cluster.url) as (harness, ran),
            harness.working(quick(batch=5, concurrency=2)),
        ):
            slot = slot_of(harness.fp.job_settings.stream_key)
            await signals.wait("drive.up")
            await submit(harness, JOBS)
            await harness.until("some have run", lambda: len(ran) >= 5)
            target = await asyncio.to_thread(cluster.move, slot)
            await harness.until_all_ended(within=60)
            assert once(harness, JOBS)
            assert cluster.primary_of(slot) is target

            await submit(harness, JOBS)
            await asyncio.to_thread(cluster.kill_primary_of, slot)
            await harness.until_all_ended(within=60)
            assert once(harness, 2 * JOBS)
            await harness.until_empty()
