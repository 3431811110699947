"""A flow from its sources to PostgreSQL: each record once, whatever it is read from."""

from pathlib import Path
from typing import Any

import pytest

from fencepost.flows import Flow, IterableSource, Tumbling
from fencepost.flows.errors import SourceTrimmed
from fencepost.flows.graph import Stream
from fencepost.flows.sinks.postgres import OutboxSink, PostgresRows, PostgresUpsert
from fencepost.flows.sources.files import FileLines
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.scene import Scene

NUMBERS = list(range(1, 501))
TOTALS = {str(key): sum(n for n in NUMBERS if n % 7 == key) for key in range(7)}


def totals(stream: Stream[Any], groups: int | None = None) -> Flow:
    keyed = stream.key_by(lambda n: str(n % 7), groups=groups)
    return keyed.sum(lambda n: n).sink(PostgresUpsert("total", ["key"], ["value"]))


def numbers(name: str = "sums") -> Stream[Any]:
    return Flow(name).source(IterableSource({"0": NUMBERS[:200], "1": NUMBERS[200:]}))


async def test_a_keyed_sum_is_in_the_table(scene: Scene) -> None:
    await scene.run(totals(numbers()))

    assert dict(scene.rows("select * from total")) == TOTALS


async def test_a_flow_that_has_ended_does_nothing_more(scene: Scene) -> None:
    flow = numbers().sink(PostgresRows("line", ["value"]))
    await scene.run(flow)
    await scene.run(flow)

    assert sorted(row[0] for row in scene.rows("select value from line")) == NUMBERS


async def test_key_groups_are_fed_through_channels(scene: Scene) -> None:
    await scene.run(totals(numbers(), groups=4))

    assert dict(scene.rows("select * from total")) == TOTALS


async def test_two_workers_share_the_key_groups(scene: Scene) -> None:
    flow = totals(Flow("shared").source(RedisStreams(["a", "b"])).json(), groups=6)
    one, two = scene.worker(flow), scene.worker(flow)
    async with scene.running(one, two):
        await scene.until(lambda: len(one.holds) == 4 and len(two.holds) == 4)
        for n in NUMBERS:
            scene.redis.xadd("ab"[n % 2], {"data": str(n)})
        await scene.until(lambda: dict(scene.rows("select * from total")) == TOTALS)


async def test_a_worker_that_leaves_is_replaced(scene: Scene) -> None:
    flow = totals(Flow("left").source(RedisStreams("a")).json(), groups=3)
    one, two = scene.worker(flow), scene.worker(flow)
    async with scene.running(two):
        async with scene.running(one):
            for n in NUMBERS[:250]:
                scene.redis.xadd("a", {"data": str(n)})
            await scene.until(lambda: len(scene.rows("select * from total")) == 7)
        for n in NUMBERS[250:]:
            scene.redis.xadd("a", {"data": str(n)})
        await scene.until(lambda: dict(scene.rows("select * from total")) == TOTALS)


async def test_a_wiped_exchange_is_filled_again(scene: Scene) -> None:
    """The source is in PostgreSQL, so that everything in Redis may go."""
    flow = totals(Flow("wiped").source(PostgresTable("arrival")).map(lambda row: row["amount"]), groups=3)
    async with scene.running(scene.worker(flow)):
        async with scene.fp.transaction() as tx:
            await tx.execute("insert into arrival (amount) select * from generate_series(1, 250)")
        await scene.until(lambda: len(scene.rows("select * from total")) == 7)
        scene.wipe_redis()
        async with scene.fp.transaction() as tx:
            await tx.execute("insert into arrival (amount) select * from generate_series(251, 500)")
        await scene.until(lambda: dict(scene.rows("select * from total")) == TOTALS)


async def test_lines_of_files(scene: Scene, tmp_path: Path) -> None:
    for part in (0, 1):
        (tmp_path / f"{part}.txt").write_text("".join(f"{n}\n" for n in NUMBERS[part::2]))
    stream = Flow("lines").source(FileLines([tmp_path / "0.txt", tmp_path / "1.txt"])).json()

    await scene.run(stream.sink(PostgresRows("line", ["value"])))

    assert sorted(row[0] for row in scene.rows("select value from line")) == NUMBERS


async def test_windows_of_two_partitions(scene: Scene) -> None:
    events = {"0": [("a", 1), ("a", 12), ("b", 31)], "1": [("a", 3), ("b", 11), ("a", 15)]}
    timed = Flow("windows").source(IterableSource(events)).event_time(lambda r: r[1])
    counts = timed.key_by(lambda r: r[0], groups=2).window(Tumbling(10)).count()
    sink = PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))

    await scene.run(counts.sink(sink))

    found = scene.rows("select * from closed order by key, start")
    assert found == [("a", 0, 2), ("a", 10, 2), ("b", 10, 1), ("b", 30, 1)]


async def test_messages_go_to_the_outbox_with_the_frontier(scene: Scene) -> None:
    flow = numbers().filter(lambda n: n <= 3).map(lambda n: {"n": n}).sink(OutboxSink("numbers"))

    await scene.run(flow)

    payloads = scene.rows("select payload->>'n' from fencepost.outbox where channel = 'numbers'")
    assert sorted(payloads) == [("1",), ("2",), ("3",)]


async def test_a_source_that_was_trimmed_is_refused(scene: Scene) -> None:
    flow = Flow("trimmed").source(RedisStreams("a")).json().sink(PostgresRows("line", ["value"]))
    for n in range(10):
        scene.redis.xadd("a", {"data": str(n)})
    async with scene.running(scene.worker(flow)):
        await scene.until(lambda: len(scene.rows("select * from line")) == 10)
    for n in range(10):
        scene.redis.xadd("a", {"data": str(n)})
    scene.redis.xtrim("a", maxlen=3, approximate=False)

    with pytest.raises(SourceTrimmed, match="begins behind"):
        await scene.worker(flow).run()


async def test_a_stream_that_is_trimmed_ahead_of_its_reader_is_not_read_on(scene: Scene) -> None:
    """What was between would be passed by, and nobody would know."""
    for n in range(30):
        scene.redis.xadd("a", {"data": str(n)})
    reader = await RedisStreams("a").open(scene.place(), "a", None)
    assert list((await reader.read(5, 0)).values) == [b"0", b"1", b"2", b"3", b"4"]
    scene.redis.xtrim("a", maxlen=26, approximate=False)
    assert list((await reader.read(5, 0)).values) == [b"5", b"6", b"7", b"8", b"9"]

    scene.redis.xtrim("a", maxlen=10, approximate=False)

    with pytest.raises(SourceTrimmed, match="begins behind"):
        await reader.read(5, 0)
    await reader.close()
