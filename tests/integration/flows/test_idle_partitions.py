"""A partition that is silent holds no window back; the decision is stored with its effects."""

import json
from typing import Any

import pytest

from fencepost.flows import Flow, Tumbling
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import FlowHarness


def flow(groups: int | None, idle_after: float | None = 0.2) -> Flow:
    events = Flow("idle").source(RedisStreams(["quick", "slow"])).json()
    timed = events.event_time(lambda event: event[1], idle_after=idle_after)
    counts = timed.key_by(lambda event: event[0], groups=groups).window(Tumbling(10)).count()
    rows = PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))
    late = timed.late.map(lambda event: event[2]).sink(PostgresRows("line", ["value"]))
    return counts.sink(rows).also(late)


def send(harness: FlowHarness, stream: str, *events: Any) -> None:
    for event in events:
        harness.redis.xadd(stream, {"data": json.dumps(event)})


def closed(harness: FlowHarness) -> list[Any]:
    return sorted(harness.rows("select key, start, value from closed"))


def floors(harness: FlowHarness) -> list[Any]:
    """What every task has stored for the silent stream."""
    return harness.rows(
        "select (frontier -> s.sender ->> 'floor')::float8 from fencepost.flow_frontiers('idle'),"
        " lateral (select k as sender from jsonb_object_keys(frontier) k where right(k, 4) = 'slow') s"
    )


@pytest.mark.parametrize("groups", [None, 2])
async def test_windows_close_though_a_stream_is_silent_and_a_replay_knows_it(
    harness: FlowHarness, groups: int | None
) -> None:
    send(harness, "slow", ["a", 3, 1])
    send(harness, "quick", ["a", 1, 2], ["b", 2, 3], ["a", 25, 4])
    async with harness.running(harness.worker(flow(groups))):
        await harness.until(lambda: len(closed(harness)) == 2)
        await harness.until(lambda: set(floors(harness)) == {(25.0,)})
    assert closed(harness) == [("a", 0.0, 2), ("b", 0.0, 1)]

    # Another process, for which no partition is silent yet: the first window stays closed all the same.
    send(harness, "slow", ["a", 4, 5], ["b", 26, 6], ["a", 41, 7])
    send(harness, "quick", ["b", 42, 8])
    async with harness.running(harness.worker(flow(groups, idle_after=600))):
        await harness.until(lambda: len(closed(harness)) == 4)

    assert closed(harness) == [("a", 0.0, 2), ("a", 20.0, 1), ("b", 0.0, 1), ("b", 20.0, 1)]
    assert harness.rows("select value from line") == [(5,)]
    assert sum(count for (count,) in harness.rows("select records from fencepost.flow_lates('idle')")) == 1


async def test_notices_of_silence_fill_no_channel(harness: FlowHarness) -> None:
    """They are told again and again, and nothing is committed meanwhile."""
    send(harness, "slow", ["a", 3, 1])
    send(harness, "quick", ["a", 25, 2])
    client: Any = harness.redis

    def told() -> bool:
        streams = [key for key in client.keys("*") if ":channel:" in key]
        return any(client.xinfo_stream(key)["entries-added"] > 12 for key in streams)

    async with harness.running(harness.worker(flow(1, idle_after=0.01), channel_length=3)):
        await harness.until(told)
        send(harness, "slow", ["a", 31, 3])
        send(harness, "quick", ["a", 32, 4])
        await harness.until(lambda: len(closed(harness)) == 2)
