"""Jobs on a Redis Cluster, where one command may touch the keys of one slot only."""

from collections.abc import Iterator

import pytest

from fencepost.embedded import Database
from fencepost.jobs.job import Job
from tests.integration.jobs.harness import open_harness, quick
from tests.matrix.cluster_node import ClusterNode
from tests.tmp_dirs import server_directory

KEY = "deepoj:jobs"
TAGGED = "{deepoj:jobs}"


@pytest.fixture
def node() -> Iterator[ClusterNode]:
    with ClusterNode(server_directory(), ephemeral=True) as node:
        yield node


@pytest.mark.parametrize("key", [KEY, TAGGED])
async def test_all_queues_and_priorities_lie_in_one_slot(
    database: Database, node: ClusterNode, key: str
) -> None:
    async with open_harness(database, node.url) as harness:

        @harness.fp.job("default")
        async def one(job: Job, n: int) -> None: ...

        @harness.fp.job("mail", priority="urgent")
        async def two(job: Job, n: int) -> None: ...

        async with harness.fp.transaction() as tx:
            for n in range(20):
                await one.submit(tx, n=n)
                await two.submit(tx, n=n)
        async with harness.working(quick(stream_key=key)):
            await harness.until_all_ended(within=60)
            await harness.until_empty(within=60)

        # They came through the streams, and not past a Redis that refused.
        for stream in (key, f"{TAGGED}:urgent:q:mail"):
            assert harness.redis.xinfo_stream(stream)["entries-added"] == 20
