"""Entries of long jobs stay fresh."""

from typing import Any

from fencepost.redis_streams._entry_refresher import EntryRefresher
from fencepost.redis_streams.stream import StreamEntry, Streams


async def test_a_refreshed_entry_is_not_idle(streams: Streams, redis: Any, redis_url: str) -> None:
    [entry_id] = (await streams.dispatch("jobs", 1, [1], 1000)).entry_ids
    await streams.take({"jobs": 1}, 1, "me")
    # As if it had been delivered a minute ago.
    await redis.xclaim("jobs", "workers", "me", 0, [entry_id], idle=60_000)
    refresher = EntryRefresher(redis_url, "workers", "me", reply_seconds=5)
    refresher.refresh([StreamEntry("jobs", entry_id, None)])
    refresher.close()
    [pending] = await redis.xpending_range("jobs", "workers", "-", "+", 1)
    assert pending["time_since_delivered"] < 60_000
    assert (pending["times_delivered"], pending["consumer"]) == (2, "me")


async def test_what_is_acknowledged_does_not_come_back(streams: Streams, redis: Any, redis_url: str) -> None:
    [entry_id] = (await streams.dispatch("jobs", 1, [1], 1000)).entry_ids
    await streams.take({"jobs": 1}, 1, "me")
    await streams.settle("jobs", [entry_id])
    refresher = EntryRefresher(redis_url, "workers", "me", reply_seconds=5)
    refresher.refresh([StreamEntry("jobs", entry_id, None)])
    refresher.close()
    assert await redis.xpending_range("jobs", "workers", "-", "+", 1) == []
