"""Backpressure: whatever a source has and however slow a sink is, only so much is read, held and sent."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fencepost.flows import CheckpointId, Flow, IterableSource
from fencepost.flows import _steps as steps
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._redis_client import connect_bytes
from fencepost.flows._shuffle import ChannelKeys, ChannelSender
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.metrics import Metrics
from fencepost.testing import Signals
from fencepost.transaction import Transaction
from tests.integration.flows.harness import HURRY, FlowHarness

COUNT = 5_000


class Gate(PostgresRows):
    """Holds every commit up while it is shut, and remembers how many values each had."""

    def __init__(self, *, shut: bool = False) -> None:
        super().__init__("line", ["value"])
        self.opened = asyncio.Event()
        self.sizes: list[int] = []
        if not shut:
            self.opened.set()

    async def write(self, tx: Transaction, checkpoint: CheckpointId, values: Sequence[Any]) -> None:
        self.sizes.append(len(values))
        await self.opened.wait()
        await super().write(tx, checkpoint, values)


class Counted:
    """Numbers that know how many of them were asked for."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self) -> Iterator[int]:
        for number in range(COUNT):
            self.taken = max(self.taken, number + 1)
            yield number


def lines(harness: FlowHarness) -> list[int]:
    return [row[0] for row in harness.rows("select value from line order by value")]


async def beats(signals: Signals, count: int) -> None:
    """So many heartbeats from now: time in which a reader that is not held up reads everything."""
    await signals.wait("flows.renewed", count=signals.heard("flows.renewed") + count)


async def test_a_sink_that_stands_still_holds_the_source_up(harness: FlowHarness) -> None:
    numbers, sink = Counted(), Gate(shut=True)
    flow = Flow("held").source(IterableSource(numbers)).sink(sink)
    with Signals() as signals:
        async with harness.running(harness.worker(flow, records_max=100, batch=50)):
            await harness.until(lambda: numbers.taken >= 100)
            await beats(signals, 2)
            # What is being committed, what was worked on before that, and the chunk that was read ahead.
            assert numbers.taken <= 100 + 2 * 50
            sink.opened.set()
            await harness.until(lambda: len(lines(harness)) == COUNT)

    assert lines(harness) == list(range(COUNT))


async def test_a_key_group_that_stands_still_holds_the_source_up(harness: FlowHarness) -> None:
    """Its channel is full, and the sender waits; so does the source, for the other groups too."""
    numbers, sink = Counted(), Gate(shut=True)
    keyed = Flow("channels").source(IterableSource(numbers)).key_by(lambda n: n % 7, groups=2)
    flow = keyed.stateful(lambda state, n: (None, [n])).sink(sink)
    client: Any = harness.redis
    length, batch = 3, 50

    def longest() -> int:
        keys = [ChannelKeys("channels", group, "values:0").stream for group in range(2)]
        return max(int(client.xlen(key)) for key in keys)

    with Signals() as signals:
        async with harness.running(harness.worker(flow, channel_length=length, batch=batch, records_max=100)):
            await harness.until(lambda: longest() == length)
            await beats(signals, 2)
            assert longest() == length
            # What the channel holds was not acknowledged; behind it one chunk waits, and none is read.
            assert numbers.taken <= (length + 2) * batch
            sink.opened.set()
            await harness.until(lambda: len(lines(harness)) == COUNT)

    assert lines(harness) == list(range(COUNT))


async def test_a_full_channel_says_so_and_takes_again_what_fits(harness: FlowHarness) -> None:
    client = connect_bytes(harness.redis_url, "the test")
    sender = ChannelSender(client, "f", "in:0", range(2), 2)
    await sender.begin()
    both = {0: [b"h", b"x"], 1: [b"h", b"y"]}

    answers = [await sender.send(both) for _ in range(3)]
    stream = ChannelKeys("f", 1, "in:0").stream
    [[first, _], *_] = await client.xrange(stream)
    await client.xdel(stream, first)

    assert answers == [[], [], [0, 1]]
    assert await sender.send(both) == [0]
    assert await sender.send(both) == [0, 1]
    await client.aclose()


async def test_a_partition_that_is_ahead_is_not_read_while_too_much_waits_for_the_others(
    harness: FlowHarness,
) -> None:
    client: Any = harness.redis
    for n in range(1_000):
        client.xadd("ahead", {"data": str(n)})
    client.xadd("behind", {"data": "0"})
    metrics = Metrics()
    timed = Flow("apart").source(RedisStreams(["ahead", "behind"])).json().event_time(float)
    flow = timed.key_by(lambda n: n % 3).stateful(lambda state, n: (None, [n])).sink(Gate())
    worker = FlowWorker(
        harness.fp,
        flow,
        redis_url=harness.redis_url,
        settings=HURRY.model_copy(update={"records_max": 100, "batch": 20}),
        metrics=FlowMetrics.on(metrics),
    )

    def taken() -> float:
        return metrics.registry.get_sample_value("fencepost_flow_records_total", {"flow": "apart"}) or 0

    with Signals() as signals:
        async with harness.running(worker):
            await harness.until(lambda: taken() >= 100)
            await beats(signals, 2)
            assert taken() <= 100 + 3 * 20
            client.xadd("behind", {"data": "1000"})
            # Everything before the 999th second has its turn, and the one of the partition behind.
            await harness.until(lambda: len(lines(harness)) == 1_000)

    assert lines(harness) == sorted([*range(999), 0])


async def test_a_step_that_makes_many_of_one_commits_before_they_pile_up(harness: FlowHarness) -> None:
    """The interval is long and the records are few: it is their values that are too many."""
    sink = Gate()
    numbers = Flow("many").source(IterableSource(list(range(200))))
    flow = numbers.flat_map(lambda n: [n] * 50).sink(sink)

    await harness.run(flow, records_max=500, batch=10, interval_seconds=30, lease_seconds=90)

    assert sum(sink.sizes) == 10_000
    assert max(sink.sizes) <= 500 + 10 * 50


class SlowClock:
    """By which every call of `Slow` takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Slow:
    """A step that keeps the event loop; knows how often it was called before anybody else had a turn."""

    def __init__(self, clock: SlowClock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._run = 0
        self.longest = 0

    def __call__(self, value: int) -> int:
        self._clock.now += 1
        self._run += 1
        self.longest = max(self.longest, self._run)
        self._loop.call_soon(self._turn)
        return value

    def _turn(self) -> None:
        self._run = 0


@pytest.mark.parametrize("groups", [None, 2])
async def test_a_slow_step_leaves_others_their_turns(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch, groups: int | None
) -> None:
    """A commit that was under way would stand still, and the database would end its transaction."""
    clock = SlowClock()
    monkeypatch.setattr(steps, "time", clock)
    head, body = Slow(clock), Slow(clock)
    keyed = Flow("slow").source(IterableSource(range(60))).map(head).key_by(lambda n: n % 2, groups=groups)
    flow = keyed.sum(body).sink(PostgresUpsert("total", ["key"], ["value"]))

    await harness.run(flow)

    assert (head.longest, body.longest) == (1, 1)
    assert dict(harness.rows("select * from total")) == {"0": 870, "1": 900}
