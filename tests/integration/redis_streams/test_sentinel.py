"""Clients that ask a Sentinel where the primary is, and follow it when it moves."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from fencepost.cli.findings import FindingState
from fencepost.cli.probes._redis import probe_redis
from fencepost.embedded._deadline import Deadline
from fencepost.redis_streams.connection import connect, connect_sync
from fencepost.redis_streams.stream import Streams
from tests.matrix.sentinel import Watched, watched

SECONDS_MAX = 30


@pytest.fixture
def own_group() -> Iterator[Watched]:
    """A group that may be hurt."""
    with watched() as group:
        yield group


def lose_the_primary(group: Watched) -> None:
    group.primary.kill()
    group.await_promotion()


def move_the_primary(group: Watched) -> None:
    """The old one lives on as a replica, and takes no writes any more."""
    group.sentinel.fail_over()
    group.await_promotion()
    Deadline(SECONDS_MAX, "the old primary is a replica").wait(lambda: group.primary.role == "slave")


# A Sentinel looks only every ten seconds whether the old primary has understood.
@pytest.mark.parametrize("move", [lose_the_primary, pytest.param(move_the_primary, marks=pytest.mark.full)])
async def test_writes_go_to_the_new_primary(own_group: Watched, move: Any) -> None:
    client = connect(own_group.url, reply_seconds=1)
    streams = Streams(client, "workers")
    before = await streams.dispatch("jobs", 1, [1], 1000)
    # A replica that has not heard of it yet would be promoted without it.
    with contextlib.closing(connect_sync(own_group.replica.url, reply_seconds=5)) as replica:
        heard = Deadline(SECONDS_MAX, "the replica has what was written").wait
        await asyncio.to_thread(heard, lambda: entry_ids_of(replica) >= set(before.entry_ids))
    await asyncio.to_thread(move, own_group)

    async with asyncio.timeout(SECONDS_MAX):
        after = await first_success(streams)

    with contextlib.closing(connect_sync(own_group.replica.url, reply_seconds=5)) as new:
        assert entry_ids_of(new) >= set(after.entry_ids)
    # The same data, so the same incarnation: nothing is driven a second time.
    assert after.incarnation == before.incarnation
    await client.aclose()


async def first_success(streams: Streams) -> Any:
    """The client does not retry by itself; its callers do."""
    while True:
        try:
            return await streams.dispatch("jobs", 1, [2], 1000)
        except RedisConnectionError:
            await asyncio.sleep(0.05)  # A caller's own pace; a failover gives no signal.


def entry_ids_of(client: Any) -> set[str]:
    return {entry_id for entry_id, _ in client.xrange("jobs")}


def test_a_thread_follows_too(own_group: Watched) -> None:
    connection: Any = connect_sync(own_group.url, reply_seconds=1)
    with connection as client:
        client.set("word", "kept")
        # What was acknowledged and not yet copied may be lost with the primary; this is not about that.
        assert client.wait(1, 5000) == 1
        lose_the_primary(own_group)

        Deadline(SECONDS_MAX, "the client has followed").wait(lambda: answers(client))
        assert client.get("word") == "kept"


def answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except RedisConnectionError:
        return False


def test_the_doctor_finds_the_server_behind_the_sentinel(own_group: Watched) -> None:
    assert [finding.state for finding in probe_redis(own_group.url)] == [FindingState.OK, FindingState.OK]


async def test_a_service_that_the_sentinel_does_not_know_is_said_to_be_missing(own_group: Watched) -> None:
    client = connect(own_group.url.replace("/fencepost/", "/nobody/"), reply_seconds=1)
    with pytest.raises(RedisConnectionError, match="nobody"):
        await Streams(client, "workers").length("jobs")
    await client.aclose()
