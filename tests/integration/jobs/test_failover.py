"""A Sentinel promotes the replica while jobs run: none is lost, none takes effect twice."""

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.embedded import Database
from fencepost.testing import Signals
from tests.integration.jobs.scene import Scene, quick
from tests.integration.jobs.test_redis_outages import counting, once, submit
from tests.matrix.sentinel import Watched, watched

JOBS = 60


@pytest.fixture
def own_group() -> Iterator[Watched]:
    """A group that may be hurt."""
    with watched() as group:
        yield group


def entries_added(scene: Scene) -> int:
    """To the stream of the default queue, on whichever server is the primary: it may have none yet."""
    stream = scene.fp.job_settings.stream_key
    return int(scene.redis.xinfo_stream(stream)["entries-added"]) if scene.redis.exists(stream) else 0


async def test_a_primary_that_dies_in_the_middle_of_jobs(database: Database, own_group: Watched) -> None:
    with Signals() as signals:
        async with (
            counting(database, own_group.url) as (scene, ran),
            scene.working(quick(batch=5, concurrency=2)),
        ):
            await signals.wait("drive.up")
            await submit(scene, JOBS)
            await scene.until("some have run", lambda: len(ran) >= 5)
            own_group.primary.kill()
            await scene.until_all_ended(within=60)
            assert once(scene, JOBS)

            # The streams are on the other server now, and drive again.
            await asyncio.to_thread(own_group.await_promotion)
            await signals.wait("drive.up", count=2)
            before = entries_added(scene)
            await submit(scene, JOBS)
            await scene.until_all_ended(within=60)
            assert once(scene, 2 * JOBS)
            assert entries_added(scene) > before
            await scene.until_empty()
    assert own_group.replica.role == "master"
