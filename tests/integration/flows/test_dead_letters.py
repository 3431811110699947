"""Records that a step cannot take: kept with the commit that passes them by, given back when asked for."""

import asyncio
import json
from collections import Counter
from typing import Any, LiteralString

import pytest

from fencepost.errors import NotOwner
from fencepost.flows import (
    Flow,
    GraphRefused,
    IterableSource,
    ListSink,
    SourceTrimmed,
    Tumbling,
)
from fencepost.flows import (
    _dead_letters as dead_letters,
)
from fencepost.flows import (
    _flow_store as flow_store,
)
from fencepost.flows._plan import FlowPlan
from fencepost.flows._record import Failure
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.kernel import lease
from fencepost.testing import PlannedCrash, crash_at
from tests.integration.flows.harness import Command, FlowHarness

WORDS = [b"1", b"2", b"three", b"4", b"five"]


class Reader:
    """Reads numbers, and words only when it has learned them."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}

    def __call__(self, word: bytes) -> int:
        return self.known[word] if word in self.known else int(word)


def numbers(read: Reader, name: str = "letters") -> Flow:
    stream = Flow(name).source(IterableSource(WORDS)).map(read).dead_letters("unreadable")
    return stream.sink(PostgresRows("line", ["value"]))


def lines(harness: FlowHarness) -> list[int]:
    return sorted(row[0] for row in harness.rows("select value from line"))


def dead(harness: FlowHarness) -> list[Any]:
    return harness.rows(
        "select preview, error from fencepost.flow_dead_letters where replay is null order by id"
    )


async def ask(harness: FlowHarness, name: str = "letters") -> int:
    return await harness.fp.run(dead_letters.replay(name, "unreadable", ids=None, limit=100, by="test"))


async def test_what_a_step_cannot_take_is_kept_and_the_rest_goes_on(harness: FlowHarness) -> None:
    await harness.run(numbers(Reader()))

    assert lines(harness) == [1, 2, 4]
    assert dead(harness) == [
        ("three", "ValueError: invalid literal for int() with base 10: b'three'"),
        ("five", "ValueError: invalid literal for int() with base 10: b'five'"),
    ]


async def test_what_is_asked_for_comes_back_once(harness: FlowHarness) -> None:
    read = Reader()
    await harness.run(numbers(read))
    read.known = {b"three": 3, b"five": 5}
    assert await ask(harness) == 2
    assert await ask(harness) == 0

    await harness.run(numbers(read))
    await harness.run(numbers(read))

    assert lines(harness) == [1, 2, 3, 4, 5]
    assert dead(harness) == []


async def test_what_fails_again_is_dead_again(harness: FlowHarness) -> None:
    read = Reader()
    await harness.run(numbers(read))
    read.known = {b"three": 3}
    await ask(harness)

    await harness.run(numbers(read))

    assert lines(harness) == [1, 2, 3, 4]
    assert [row[0] for row in dead(harness)] == ["five"]


@pytest.mark.parametrize("point", ["flows.commit.before_commit", "flows.commit.after_commit"])
async def test_a_crash_neither_loses_nor_doubles_a_dead_letter(harness: FlowHarness, point: str) -> None:
    read = Reader()
    with pytest.raises(PlannedCrash), crash_at(point):
        await harness.run(numbers(read))
    await harness.run(numbers(read))
    assert len(dead(harness)) == 2
    read.known = {b"three": 3, b"five": 5}
    await ask(harness)
    with pytest.raises(PlannedCrash), crash_at(point):
        await harness.run(numbers(read))

    await harness.run(numbers(read))

    assert lines(harness) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("groups", [None, 3])
async def test_behind_a_key_they_come_back_under_it(harness: FlowHarness, groups: int | None) -> None:
    broken = [True]

    def add(total: int | None, value: int) -> tuple[int, list[Any]]:
        if value == 7 and broken[0]:
            raise ValueError("not this one")
        new = (total or 0) + value
        return new, [(str(value % 3), new)]

    numbered = Flow("keyed").source(IterableSource(list(range(10)))).key_by(lambda n: n % 3, groups=groups)
    flow = numbered.stateful(add).dead_letters("odd").sink(PostgresUpsert("total", ["key"], ["value"]))
    await harness.run(flow)
    assert dict(harness.rows("select * from total")) == {"0": 18, "1": 5, "2": 15}
    broken[0] = False
    await harness.fp.run(dead_letters.replay("keyed", "odd", ids=None, limit=100, by="test"))

    await harness.run(flow)

    assert dict(harness.rows("select * from total")) == {"0": 18, "1": 12, "2": 15}


async def test_in_event_time_one_comes_back_as_late_when_its_window_is_closed(harness: FlowHarness) -> None:
    broken = [True]

    def read(record: Any) -> Any:
        if record["n"] in (2, 4) and broken[0]:
            raise ValueError("not yet")
        return record

    stream = Flow("timed").source(RedisStreams("in")).json().map(read).dead_letters("unread")
    timed = stream.event_time(lambda r: r["t"])
    counts = timed.key_by(lambda r: "all").window(Tumbling(10)).count()
    sink = PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))
    late = timed.late.map(lambda r: r["n"]).sink(PostgresRows("line", ["value"]))
    flow = counts.sink(sink).also(late)
    for n, t in enumerate((1, 12, 3, 25, 26), start=1):
        harness.redis.xadd("in", {"data": json.dumps({"n": n, "t": t})})

    async with harness.running(harness.worker(flow)):
        # 2 at 12 s and 4 at 25 s were not read; 5 at 26 s has closed the first two windows.
        await harness.until(lambda: lines(harness) == [] and len(dead(harness)) == 2)
        broken[0] = False
        await harness.fp.run(dead_letters.replay("timed", "unread", ids=None, limit=100, by="test"))
        await harness.until(lambda: len(lines(harness)) == 1)
        harness.redis.xadd("in", {"data": json.dumps({"n": 6, "t": 41})})
        await harness.until(lambda: len(harness.rows("select * from closed")) == 2)

    # The window of 4 is open until 30 s.
    assert harness.rows("select start, value from closed order by start") == [(0, 2), (20, 2)]
    assert lines(harness) == [2]


def test_where_a_dead_letter_could_not_come_back_is_refused() -> None:
    timed = Flow("grouped").source(IterableSource([])).map(len).dead_letters("x").event_time(float)
    with pytest.raises(GraphRefused, match="without key groups"):
        FlowPlan(timed.key_by(str, groups=2).window(Tumbling(1)).count().sink(ListSink()))

    keyed = Flow("keyed").source(IterableSource([])).event_time(float).key_by(str)
    with pytest.raises(GraphRefused, match="before key_by"):
        keyed.stateful(lambda state, value: (state, [value])).dead_letters("x")


async def test_a_zombie_buries_nothing(harness: FlowHarness) -> None:
    held = await harness.fp.run(lease.acquire("flow:letters/all", "a", 60))
    letters = [Failure(b"x", "broken", "map-1")]

    with pytest.raises(NotOwner):
        await harness.fp.run(
            dead_letters.bury("letters", "unreadable", held.resource, held.token + 1, letters)
        )

    assert dead(harness) == []


async def test_an_operator_sees_replays_and_discards_them(harness: FlowHarness, command: Command) -> None:
    await harness.run(numbers(Reader()))

    code, said = await asyncio.to_thread(command, "flows", "dead", "letters", "--json")
    first, second = json.loads(said)["dead"]
    assert (code, first["step"], first["preview"]) == (0, "unreadable", "three")
    _, said = await asyncio.to_thread(command, "flows", "replay", "letters", "unreadable", str(first["id"]))
    assert said == "1 dead letters go back to unreadable of letters.\n"
    _, said = await asyncio.to_thread(command, "flows", "discard", "letters", "unreadable", "--all")
    assert said == "1 dead letters of unreadable of letters are gone.\n"
    code, _ = await asyncio.to_thread(command, "flows", "replay", "letters", "unreadable")
    assert code == 2
    assert Counter(row[0] for row in harness.rows("select id from fencepost.flow_dead")) == {first["id"]: 1}
    assert second["preview"] == "five"


AGE: LiteralString = (
    "update fencepost.flow_dead set replay_at = replay_at - interval '2 days' where replay > 0 returning id"
)
# A savepoint that was made when they were asked for and not taken, and one of days before.
BETWEEN: LiteralString = """
    update fencepost.flow_savepoint set frontier = jsonb_set(frontier, '{dead-unreadable:0,at}', 'null')
    where frontier ? 'dead-unreadable:0' returning resource
"""
BEFORE: LiteralString = """
    update fencepost.flow_savepoint
    set frontier = frontier - 'dead-unreadable:0', made_at = made_at - interval '9 days'
    where frontier ? 'dead-unreadable:0' returning resource
"""
# One that was made when they were asked for, and before the task that reads them had committed anything.
LACKING: LiteralString = """
    delete from fencepost.flow_savepoint where frontier ? 'dead-unreadable:0' returning resource
"""


async def came_back(harness: FlowHarness) -> Flow:
    """Two letters that were asked for two days ago, and taken."""
    read = Reader()
    flow = numbers(read)
    await harness.run(flow)
    read.known = {b"three": 3, b"five": 5, b"six": 6}
    assert await ask(harness) == 2
    harness.rows(AGE)
    await harness.run(flow)
    assert lines(harness) == [1, 2, 3, 4, 5]
    return flow


def asked_for(harness: FlowHarness) -> list[int]:
    found = "select replay from fencepost.flow_dead where replay is not null order by replay"
    return [row[0] for row in harness.rows(found)]


async def test_what_came_back_long_ago_is_forgotten_and_numbers_go_on(harness: FlowHarness) -> None:
    flow = await came_back(harness)
    await harness.run(flow)
    assert asked_for(harness) == [2], "the next number is counted from it"

    held = await harness.fp.run(lease.acquire("flow:letters/part/values:0", "a/boot-1", 60))
    letters = [Failure(b"six", "ValueError: no number", "map-1")]
    await harness.fp.run(dead_letters.bury("letters", "unreadable", held.resource, held.token, letters))
    await harness.fp.run(lease.release(held))
    assert await ask(harness) == 1
    await harness.run(flow)

    assert lines(harness) == [1, 2, 3, 4, 5, 6]
    assert asked_for(harness) == [3]


async def test_what_may_be_read_again_is_not_forgotten(harness: FlowHarness) -> None:
    """What is young, what was not taken, and what a savepoint does not have."""
    await came_back(harness)

    async def forget(taken: int, keep_seconds: float) -> int:
        call = dead_letters.forget("letters", "unreadable", taken, keep_seconds, 100)
        return await harness.fp.run(call)

    assert await forget(2, 3 * 86_400) == 0
    assert await forget(0, 3_600) == 0
    changes: dict[str, LiteralString] = {"between": BETWEEN, "before": BEFORE, "lacking": LACKING}
    for name, change in changes.items():
        await harness.fp.run(flow_store.save("letters", name))
        assert harness.rows(change), "the savepoint has not read dead letters"
        assert await forget(2, 3_600) == 0
        await harness.fp.run(flow_store.drop("letters", name))
    assert await forget(2, 3_600) == 1


async def test_a_reader_that_was_put_back_since_forgets_nothing(harness: FlowHarness) -> None:
    """It may have stood still, and says what it had taken before."""
    await came_back(harness)
    await harness.fp.run(flow_store.save("letters", "between"))
    assert harness.rows(BETWEEN), "the savepoint has not read dead letters"
    await harness.fp.run(flow_store.restore("letters", "between"))
    await harness.fp.run(flow_store.drop("letters", "between"))

    assert await harness.fp.run(dead_letters.forget("letters", "unreadable", 2, 3_600, 100)) == 0
    assert asked_for(harness) == [1, 2]


async def test_a_flow_does_not_pass_by_what_was_forgotten(harness: FlowHarness) -> None:
    await came_back(harness)
    harness.rows(
        "insert into fencepost.flow_dead (flow, step, resource, record, preview, error, died_at, replay,"
        " replay_at, replay_by) select flow, step, resource, record, preview, error, died_at, 4,"
        " replay_at, replay_by from fencepost.flow_dead where replay = 2 returning id"
    )

    with pytest.raises(SourceTrimmed, match="behind number 2 were forgotten"):
        await harness.run(numbers(Reader()))
