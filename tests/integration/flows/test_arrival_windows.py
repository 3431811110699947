"""Windows in processing time close by the clock while nothing comes, and do not open again elsewhere."""

from typing import Any

import pytest

from fencepost.flows import Flow, Tumbling
from fencepost.flows import _task as task_module
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import FlowHarness


class WallClock:
    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


def flow(groups: int | None) -> Flow:
    words = Flow("arrivals").source(RedisStreams("in")).json()
    counts = words.key_by(str, groups=groups).window(Tumbling(10), by="arrival").count()
    row = PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))
    return counts.sink(row)


@pytest.mark.parametrize("groups", [None, 2])
async def test_a_window_closes_by_the_clock_and_once(
    harness: FlowHarness, groups: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = WallClock(1_000_003.0)
    monkeypatch.setattr(task_module, "wall_clock", clock.time)

    def closed() -> list[Any]:
        return sorted(harness.rows("select key, start, value from closed"))

    def taken() -> int:
        found = harness.rows(
            "select coalesce(sum((frontier -> 'in:in' ->> 'count')::int), 0)::int"
            " from fencepost.flow_frontiers('arrivals')"
        )
        return int(found[0][0])

    for word in ("1", "1", "2"):
        harness.redis.xadd("in", {"data": word})
    async with harness.running(harness.worker(flow(groups))):
        await harness.until(lambda: taken() == 3 * (groups or 1))
        assert closed() == []
        clock.now += 10
        await harness.until(lambda: len(closed()) == 2)

    # A machine whose clock is behind: what comes counts in the window that is open, and no closed one opens.
    clock.now -= 9
    harness.redis.xadd("in", {"data": "1"})
    async with harness.running(harness.worker(flow(groups))):
        await harness.until(lambda: taken() == 4 * (groups or 1))
        clock.now += 30
        await harness.until(lambda: len(closed()) == 3)

    assert closed() == [("1", 1_000_000.0, 2), ("1", 1_000_010.0, 1), ("2", 1_000_000.0, 1)]
