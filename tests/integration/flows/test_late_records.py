"""Late records are counted with the commit that passes them by, told in the log, and shown."""

import json
from typing import Any

import pytest

from fencepost.flows import Flow, IterableSource, Session, Tumbling
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.metrics import Metrics
from fencepost.testing import PlannedCrash, crash_at
from tests.integration.flows.harness import HURRY, Command, FlowHarness

EVENTS = [["a", 1, 1], ["a", 25, 2], ["a", 21, 3], ["a", 3, 4], ["b", 4, 5], ["b", 26, 6]]
"""The fourth and the fifth come when the first window is closed; the third is behind the watermark only."""


def flow(window: Any, groups: int | None, *, with_late: bool = True) -> Flow:
    timed = Flow("lately").source(IterableSource(EVENTS)).event_time(lambda event: event[1])
    counts = timed.key_by(lambda event: event[0], groups=groups).window(window).count()
    sink = PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))
    counted = counts.sink(sink)
    late = timed.late.map(lambda event: event[2]).sink(PostgresRows("line", ["value"]))
    return counted.also(late) if with_late else counted


def kept(harness: FlowHarness) -> list[Any]:
    return harness.rows("select records, samples from fencepost.flow_lates('lately')")


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("window", [Tumbling(10), Session(5)], ids=["tumbling", "session"])
async def test_late_records_go_to_late_and_are_counted_once(
    harness: FlowHarness, window: Any, groups: int | None
) -> None:
    for point in ("flows.commit.before_commit", "flows.commit.after_commit"):
        with pytest.raises(PlannedCrash), crash_at(point):
            await harness.run(flow(window, groups), batch=2, records_max=2)
    await harness.run(flow(window, groups), batch=2, records_max=2)

    assert sorted(harness.rows("select value from line")) == [(4,), (5,)]
    assert sum(records for records, _ in kept(harness)) == 2
    samples = [sample for _, each in kept(harness) for sample in each]
    assert sorted(sample["record"] for sample in samples) == ['["a",3,4]', '["b",4,5]']


async def test_what_is_dropped_is_counted_logged_and_shown(
    harness: FlowHarness, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    worker = FlowWorker(
        harness.fp,
        flow(Tumbling(10), None, with_late=False),
        settings=HURRY,
        metrics=FlowMetrics.on(metrics),
    )
    await worker.run(until_done=True)

    assert metrics.registry.get_sample_value("fencepost_flow_late_records_total", {"flow": "lately"}) == 2
    [line] = [record.getMessage() for record in caplog.records if "flow_records_late" in record.getMessage()]
    assert '["a",3,4]' in line
    shown = command("flows", "show", "lately")[1]
    assert "late" in shown
    assert '["b",4,5]' in shown
    [task] = json.loads(command("flows", "show", "lately", "--json")[1])["tasks"]
    assert task["late"] == 2


async def test_a_zombie_counts_nothing(harness: FlowHarness) -> None:
    from fencepost.errors import Refusal
    from fencepost.flows import _flow_store as flow_store
    from fencepost.kernel import lease

    held = await harness.fp.run(lease.acquire("flow:lately/all", "a/boot-1", 60))
    await harness.fp.run(flow_store.count_late("flow:lately/all", held.token, 3, [{"record": "x"}]))
    harness.lose_units()

    with pytest.raises(Refusal):
        await harness.fp.run(flow_store.count_late("flow:lately/all", held.token, 3, []))
    assert kept(harness) == [(3, [{"record": "x"}])]
