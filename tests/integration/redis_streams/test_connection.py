"""Connections that are cut, slow or given up: no reply reaches another caller, no entry is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fencepost.embedded import ValkeyServer
from fencepost.embedded._deadline import Deadline
from fencepost.redis_streams.connection import connect, connect_sync
from fencepost.redis_streams.stream import Streams
from fencepost.testing import Proxy


@pytest.fixture
async def proxied(valkey: ValkeyServer, redis_url: str) -> AsyncIterator[tuple[Proxy, Streams]]:
    with Proxy.for_redis(valkey.url) as proxy:
        client = connect(proxy.url, reply_seconds=1)
        yield proxy, Streams(client, "workers")
        await client.aclose()


async def test_the_reply_of_a_cancelled_read_reaches_no_other_caller(
    proxied: tuple[Proxy, Streams], redis_url: str
) -> None:
    proxy, streams = proxied
    await streams.dispatch("jobs", 1, [1, 2, 3], 1000)
    await streams.take({"jobs": 0}, 0, "me")
    proxy.delay(0.5)
    reading = asyncio.create_task(streams.take({"jobs": 2}, 2, "me"))
    # The command has arrived, and its reply is held by the proxy.
    await asyncio.to_thread(Deadline(60, "entries are pending").wait, lambda: _pending(redis_url) == 2)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    proxy.delay(0)
    for _ in range(10):
        assert await streams.length("jobs") == 3
    # What was delivered and never arrived is not lost: it is ours to ask for.
    assert len(await streams.held_by("me", "jobs", "0", 10)) == 2


def _pending(redis_url: str) -> int:
    redis: Any = connect_sync(redis_url, reply_seconds=5)
    with contextlib.closing(redis):
        return sum(int(group["pending"]) for group in redis.xinfo_groups("jobs"))


async def test_a_lost_reply_leaves_the_entries_to_be_found(proxied: tuple[Proxy, Streams]) -> None:
    proxy, streams = proxied
    await streams.dispatch("jobs", 1, [1], 1000)
    await streams.take({"jobs": 0}, 0, "me")
    proxy.lose_reply()
    with pytest.raises(RedisConnectionError):
        await streams.take({"jobs": 1}, 1, "me")
    assert len(await streams.held_by("me", "jobs", "0", 10)) == 1


async def test_a_command_is_not_repeated_behind_our_back(proxied: tuple[Proxy, Streams]) -> None:
    proxy, streams = proxied
    await streams.dispatch("jobs", 1, [1], 1000)
    proxy.lose_reply()
    with pytest.raises(RedisConnectionError):
        await streams.dispatch("jobs", 1, [2], 1000)
    assert await streams.length("jobs") == 2


async def test_a_silent_redis_is_given_up_in_time(proxied: tuple[Proxy, Streams]) -> None:
    proxy, streams = proxied
    await streams.length("jobs")
    proxy.swallow()
    with pytest.raises((RedisTimeoutError, RedisConnectionError)):
        await asyncio.wait_for(streams.length("jobs"), 60)
    proxy.heal()
    assert await streams.length("jobs") == 0
