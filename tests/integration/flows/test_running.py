"""A flow from its sources to PostgreSQL: each record once, whatever it is read from."""

from pathlib import Path
from typing import Any

import pytest

from fencepost.flows import Flow, IterableSource, Tumbling
from fencepost.flows._errors import SourceTrimmed
from fencepost.flows._graph import Stream
from fencepost.flows.sinks.postgres import OutboxSink, PostgresRows, PostgresUpsert
from fencepost.flows.sources.files import FileLines
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import FlowHarness

NUMBERS = list(range(1, 501))
TOTALS = {str(key): sum(n for n in NUMBERS if n % 7 == key) for key in range(7)}


def totals(stream: Stream[Any], groups: int | None = None) -> Flow:
    keyed = stream.key_by(lambda n: str(n % 7), groups=groups)
    return keyed.sum(lambda n: n).sink(PostgresUpsert("total", ["key"], ["value"]))


def numbers(name: str = "sums") -> Stream[Any]:
    return Flow(name).source(IterableSource({"0": NUMBERS[:200], "1": NUMBERS[200:]}))


async def test_a_keyed_sum_is_in_the_table(harness: FlowHarness) -> None:
    await harness.run(totals(numbers()))

    assert dict(harness.rows("select * from total")) == TOTALS


async def test_a_flow_that_has_ended_does_nothing_more(harness: FlowHarness) -> None:
    flow = numbers().sink(PostgresRows("line", ["value"]))
    await harness.run(flow)
    await harness.run(flow)

    assert sorted(row[0] for row in harness.rows("select value from line")) == NUMBERS


async def test_key_groups_are_fed_through_channels(harness: FlowHarness) -> None:
    await harness.run(totals(numbers(), groups=4))

    assert dict(harness.rows("select * from total")) == TOTALS


async def test_two_workers_share_the_key_groups(harness: FlowHarness) -> None:
    flow = totals(Flow("shared").source(RedisStreams(["a", "b"])).json(), groups=6)
    one, two = harness.worker(flow), harness.worker(flow)
    async with harness.running(one, two):
        await harness.until(lambda: len(one.holds) == 4 and len(two.holds) == 4)
        for n in NUMBERS:
            harness.redis.xadd("ab"[n % 2], {"data": str(n)})
        await harness.until(lambda: dict(harness.rows("select * from total")) == TOTALS)


async def test_a_worker_that_leaves_is_replaced(harness: FlowHarness) -> None:
    flow = totals(Flow("left").source(RedisStreams("a")).json(), groups=3)
    one, two = harness.worker(flow), harness.worker(flow)
    async with harness.running(two):
        async with harness.running(one):
            for n in NUMBERS[:250]:
                harness.redis.xadd("a", {"data": str(n)})
            await harness.until(lambda: len(harness.rows("select * from total")) == 7)
        for n in NUMBERS[250:]:
            harness.redis.xadd("a", {"data": str(n)})
        await harness.until(lambda: dict(harness.rows("select * from total")) == TOTALS)


async def test_a_wiped_exchange_is_filled_again(harness: FlowHarness) -> None:
    """The source is in PostgreSQL, so that everything in Redis may go."""
    flow = totals(Flow("wiped").source(PostgresTable("arrival")).map(lambda row: row["amount"]), groups=3)
    async with harness.running(harness.worker(flow)):
        async with harness.fp.transaction() as tx:
            await tx.execute("insert into arrival (amount) select * from generate_series(1, 250)")
        await harness.until(lambda: len(harness.rows("select * from total")) == 7)
        harness.wipe_redis()
        async with harness.fp.transaction() as tx:
            await tx.execute("insert into arrival (amount) select * from generate_series(251, 500)")
        await harness.until(lambda: dict(harness.rows("select * from total")) == TOTALS)


async def test_lines_of_files(harness: FlowHarness, tmp_path: Path) -> None:
    for part in (0, 1):
        (tmp_path / f"{part}.txt").write_text("".join(f"{n}\n" for n in NUMBERS[part::2]))
    stream = Flow("lines").source(FileLines([tmp_path / "0.txt", tmp_path / "1.txt"])).json()

    await harness.run(stream.sink(PostgresRows("line", ["value"])))

    assert sorted(row[0] for row in harness.rows("select value from line")) == NUMBERS


async def test_windows_of_two_partitions(harness: FlowHarness) -> None:
    events = {"0": [("a", 1), ("a", 12), ("b", 31)], "1": [("a", 3), ("b", 11), ("a", 15)]}
    timed = Flow("windows").source(IterableSource(events)).event_time(lambda r: r[1])
    counts = timed.key_by(lambda r: r[0], groups=2).window(Tumbling(10)).count()
    sink = PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))

    await harness.run(counts.sink(sink))

    found = harness.rows("select * from closed order by key, start")
    assert found == [("a", 0, 2), ("a", 10, 2), ("b", 10, 1), ("b", 30, 1)]


async def test_messages_go_to_the_outbox_with_the_frontier(harness: FlowHarness) -> None:
    flow = numbers().filter(lambda n: n <= 3).map(lambda n: {"n": n}).sink(OutboxSink("numbers"))

    await harness.run(flow)

    payloads = harness.rows("select payload->>'n' from fencepost.outbox where channel = 'numbers'")
    assert sorted(payloads) == [("1",), ("2",), ("3",)]


async def test_a_source_that_was_trimmed_is_refused(harness: FlowHarness) -> None:
    flow = Flow("trimmed").source(RedisStreams("a")).json().sink(PostgresRows("line", ["value"]))
    for n in range(10):
        harness.redis.xadd("a", {"data": str(n)})
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: len(harness.rows("select * from line")) == 10)
    for n in range(10):
        harness.redis.xadd("a", {"data": str(n)})
    harness.redis.xtrim("a", maxlen=3, approximate=False)

    with pytest.raises(SourceTrimmed, match="begins behind"):
        await harness.worker(flow).run()


async def test_a_stream_that_is_trimmed_ahead_of_its_reader_is_not_read_on(harness: FlowHarness) -> None:
    """What was between would be skipped, and that would not be noticed."""
    for n in range(30):
        harness.redis.xadd("a", {"data": str(n)})
    reader = await RedisStreams("a").open(harness.context(), "a", None)
    assert list((await reader.read(5, 0)).values) == [b"0", b"1", b"2", b"3", b"4"]
    harness.redis.xtrim("a", maxlen=26, approximate=False)
    assert list((await reader.read(5, 0)).values) == [b"5", b"6", b"7", b"8", b"9"]

    harness.redis.xtrim("a", maxlen=10, approximate=False)

    with pytest.raises(SourceTrimmed, match="begins behind"):
        await reader.read(5, 0)
    await reader.close()
