"""How long the oldest record has waited, by what each look saw."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

from fencepost.flows._edge_stats import EdgeStats
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._reporter import Reporter, SourceView
from fencepost.flows._source_lag import LOOKS_KEPT, SourceLag
from fencepost.metrics import Metrics


def test_a_source_that_is_read_to_its_end_keeps_no_caller_waiting() -> None:
    look = SourceLag()

    assert [look.seconds(now, taken, 0) for now, taken in ((0.0, 0), (2.0, 50))] == [0.0, 0.0]


def test_a_record_waits_since_the_first_look_that_saw_it() -> None:
    look = SourceLag()

    assert look.seconds(0.0, 0, 10) == 0.0
    assert look.seconds(2.0, 0, 30) == 2.0
    assert look.seconds(4.0, 10, 25) == 2.0, "the first ten are taken: the next came with the second look"
    assert look.seconds(6.0, 34, 1) == 2.0
    assert look.seconds(8.0, 35, 0) == 0.0
    assert look.seconds(10.0, 35, 3) == 0.0


def test_a_partition_that_began_again_is_behind_since_it_is_looked_at() -> None:
    look = SourceLag()
    look.seconds(0.0, 100, 50)

    assert look.seconds(2.0, 0, 150) == 2.0


def test_a_wait_of_days_needs_little_memory_and_is_never_told_as_longer() -> None:
    look = SourceLag()

    told = [look.seconds(float(now), 0, now + 1) for now in range(4 * LOOKS_KEPT)]

    assert all(seconds <= now for now, seconds in enumerate(told))
    assert told[-1] > LOOKS_KEPT
    assert len(look._ends) <= LOOKS_KEPT  # pyright: ignore[reportPrivateUsage] - It is what must not grow.


class Slow:
    """Has read three records of a partition, while more and more wait."""

    waiting = 5

    async def edge_stats(self) -> EdgeStats:
        return EdgeStats({}, {"in": self.waiting, "idle": None}, 0.0, taken={"in": 3, "idle": 0})


async def test_the_worker_tells_how_much_waits_and_how_long() -> None:
    unit: Any = SimpleNamespace(kind="source", senders=[SimpleNamespace(source_name="in", stage=0)])
    client: Any = AsyncMock()
    lease: Any = SimpleNamespace(resource="flow:f/all", token=1)
    metrics, sights = Metrics(), [SourceView(unit, lease, Slow())]
    reporter = Reporter(client, "f", FlowMetrics.on(metrics), lambda: sights)

    def told(name: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"flow": "f"})

    await reporter.tick()
    assert (told("fencepost_flow_lag_records"), told("fencepost_flow_lag_seconds")) == (5, 0)
    await reporter.tick()
    assert (told("fencepost_flow_lag_seconds") or 0) > 0
