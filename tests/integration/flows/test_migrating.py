"""Keyed state of another version: migrated while the flow runs, with what was removed meanwhile."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fencepost.flows import Flow
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import FlowHarness

GROUPS = 3


def first(state: int | None, event: dict[str, Any]) -> Any:
    count = (state or 0) + 1
    return (None, [(event["key"], 0)]) if event["forget"] else (count, [(event["key"], count)])


def second(state: dict[str, int] | None, event: dict[str, Any]) -> Any:
    count = (state or {"count": 0})["count"] + 1
    return (None, [(event["key"], 0)]) if event["forget"] else ({"count": count}, [(event["key"], count)])


def migrated(version: int, pairs: list[Any]) -> list[Any]:
    assert version == 1
    return [[key, {"count": count}] for key, count in pairs]


def flow(version: int) -> Flow:
    migrations: Any = {"counts": migrated} if version == 2 else {}
    events = Flow("migrating", migrations=migrations).source(RedisStreams("in")).json()
    by_key = events.key_by(lambda event: event["key"], groups=GROUPS)
    counts = by_key.stateful(first if version == 1 else second, name="counts", version=version)
    return counts.sink(PostgresUpsert("total", ["key"], ["value"]))


@pytest.mark.parametrize("place", ["in memory", "on disk"])
async def test_state_is_migrated_while_the_flow_runs(
    harness: FlowHarness, tmp_path: Path, place: str
) -> None:
    settings = {"state_dir": str(tmp_path)} if place == "on disk" else {}
    expected: Counter[str] = Counter()

    def send(count: int) -> None:
        client: Any = harness.redis
        pipe = client.pipeline()
        for number in range(count):
            key, forget = f"k{number % 20}", number % 20 == 7 and number >= 20
            expected[key] = 0 if forget else expected[key] + 1
            pipe.xadd("in", {"data": json.dumps({"key": key, "forget": forget})})
        pipe.execute()

    def totals() -> dict[str, int]:
        return dict(harness.rows("select key, value from total"))

    stop = asyncio.Event()
    old = asyncio.create_task(harness.worker(flow(1), **settings).run(stop))
    send(40)
    await harness.until(lambda: totals() == expected)
    # Changes with removals behind the whole state.
    send(40)
    await harness.until(lambda: totals() == expected)
    async with harness.running(harness.worker(flow(2), **settings)):
        send(40)
        stop.set()
        await old
        send(20)
        await harness.until(lambda: totals() == expected)
    async with harness.running(harness.worker(flow(2), **settings)):
        send(20)
        await harness.until(lambda: totals() == expected)
