"""What a worker counts, in a run in which it happens."""

import asyncio
import time
from typing import Any

from fencepost.cli._status_metrics import StatusCollector
from fencepost.cli._status_snapshot import read_board
from fencepost.flows import DeadLetters, Flow, IterableSource
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.metrics import Metrics
from fencepost.testing import at_crash_point
from tests.integration.flows.harness import HURRY, FlowHarness


class Counting:
    """A worker whose figures can be read."""

    def __init__(self, harness: FlowHarness, flow: Flow, **changes: Any) -> None:
        self._metrics = Metrics()
        self._flow = flow.name
        self.worker = FlowWorker(
            harness.fp,
            flow,
            redis_url=harness.redis_url,
            settings=HURRY.model_copy(update=changes),
            metrics=FlowMetrics.on(self._metrics),
        )

    def of(self, name: str, **labels: str) -> float:
        found = self._metrics.registry.get_sample_value(
            f"fencepost_flow_{name}", {"flow": self._flow, **labels}
        )
        return found or 0.0


def into_lines(flow: Any) -> Flow:
    return flow.sink(PostgresRows("line", ["value"]))  # type: ignore[no-any-return]


async def test_the_watermark_and_how_far_it_is_behind_the_clock(harness: FlowHarness) -> None:
    client: Any = harness.redis
    now = time.time()
    for seconds_ago in (300, 200, 100):
        client.xadd("moments", {"data": str(round(now - seconds_ago))})
    timed = Flow("clocked").source(RedisStreams("moments")).json().event_time(float, allowed_lateness=20)
    counting = Counting(harness, into_lines(timed))

    async with harness.running(counting.worker):
        await harness.until(lambda: counting.of("committed_records_total") == 3)

    assert counting.of("watermark_seconds") == round(now - 100) - 20
    # It was looked at after `now`, and by the same clock.
    assert 119 <= counting.of("watermark_lag_seconds") <= 121 + time.time() - now


async def test_commits_their_time_and_what_they_wrote(harness: FlowHarness) -> None:
    flow = into_lines(Flow("counted").source(IterableSource(list(range(300)))).flat_map(lambda n: [n, n]))
    counting = Counting(harness, flow, records_max=100, batch=100)
    began = time.monotonic()

    await counting.worker.run(until_done=True)

    took = time.monotonic() - began
    assert counting.of("records_total") == counting.of("committed_records_total") == 300
    assert counting.of("sink_values_total") == 600
    commits = counting.of("commits_total")
    assert commits >= 3
    assert counting.of("commit_seconds_count") == counting.of("checkpoint_bytes_count") == commits
    assert 0 < counting.of("commit_seconds_sum") < took


async def test_a_commit_that_the_database_refuses(harness: FlowHarness) -> None:
    flow = into_lines(Flow("refused").source(IterableSource(list(range(300)))))
    # The heartbeat is not the first to hear of it.
    counting = Counting(harness, flow, lease_seconds=180, heartbeat_seconds=60)

    with at_crash_point("flows.commit.before_fence", harness.lose_units):
        await counting.worker.run(until_done=True)

    assert counting.of("refusals_total", reason="not_owner") == 1
    assert len(harness.rows("select value from line")) == 300


async def test_a_task_that_fails_and_begins_again(harness: FlowHarness) -> None:
    def fail() -> None:
        raise ConnectionError("away")

    counting = Counting(harness, into_lines(Flow("errors").source(IterableSource([1, 2]))))

    with at_crash_point("flows.commit.before_fence", fail):
        await counting.worker.run(until_done=True)

    assert counting.of("errors_total") == 1
    assert counting.of("rewinds_total") == 0


async def test_a_channel_that_is_lost_and_sent_again(harness: FlowHarness) -> None:
    client: Any = harness.redis
    client.xadd("numbers", {"data": "1"})
    keyed = Flow("lost").source(RedisStreams("numbers")).json().key_by(lambda n: n, groups=2)
    counting = Counting(harness, into_lines(keyed.stateful(lambda state, n: (None, [n]))))

    def lose_the_channels() -> None:
        for key in client.keys("fencepost:{flow:*"):
            client.delete(key)

    async with harness.running(counting.worker):
        with at_crash_point("flows.forward.before_send", lose_the_channels):
            await harness.until(lambda: len(harness.rows("select value from line")) == 1)

    assert counting.of("rewinds_total") == 1


async def test_dead_letters_by_what_made_them(harness: FlowHarness) -> None:
    words = Flow("words").source(IterableSource([b"1", b"two", b"-3"])).map(int).dead_letters("unread")
    with harness.database.connect_admin() as connection:
        connection.execute("alter table line add check (value > 0)")
    refused = DeadLetters("refused")
    counting = Counting(harness, words.sink(PostgresRows("line", ["value"], on_reject=refused)))

    await counting.worker.run(until_done=True)

    assert counting.of("dead_letters_total", reason="step_failed") == 1
    assert counting.of("dead_letters_total", reason="sink_rejected") == 1
    assert len(harness.rows("select value from line")) == 1


async def test_how_long_a_record_waits_for_a_commit_that_does_not_end(harness: FlowHarness) -> None:
    client: Any = harness.redis
    client.xadd("slow", {"data": "1"})
    counting = Counting(harness, into_lines(Flow("hung").source(RedisStreams("slow")).json()))
    with harness.database.connect_admin() as blocker:
        async with harness.running(counting.worker):
            with blocker.transaction():
                blocker.execute("lock table line")
                await harness.until(lambda: counting.of("uncommitted_seconds") > 0)
                assert counting.of("commits_total") == 0
            await harness.until(lambda: counting.of("commits_total") > 0)
            await harness.until(lambda: counting.of("uncommitted_seconds") == 0)


def held(harness: FlowHarness) -> dict[str, float]:
    """What a scrape says of the flows in the database, by flow."""
    with harness.database.connect() as connection:
        families = {one.name: one for one in StatusCollector(lambda: read_board(connection)).collect()}
    samples = families["fencepost_flow_held_tasks"].samples
    return {sample.labels["flow"]: sample.value for sample in samples}


async def test_a_flow_without_a_worker_is_told_until_it_is_drained(harness: FlowHarness) -> None:
    client: Any = harness.redis
    client.xadd("lonely", {"data": "1"})
    counting = Counting(harness, into_lines(Flow("lonely").source(RedisStreams("lonely")).json()))
    assert held(harness) == {}

    async with harness.running(counting.worker):
        await harness.until(lambda: counting.of("commits_total") > 0)
        assert await asyncio.to_thread(held, harness) == {"lonely": 1}
    assert held(harness) == {"lonely": 0}, "its worker has left, and its source goes on"

    await harness.fp.run(flow_store.drain("lonely", draining=True))
    assert held(harness) == {}


async def test_a_flow_at_the_end_of_its_sources_needs_no_worker(harness: FlowHarness) -> None:
    await harness.run(into_lines(Flow("bounded").source(IterableSource([1, 2]))))

    assert held(harness) == {}
