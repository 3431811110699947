"""What a person restores is obeyed, also by sinks that remember a checkpoint; what they lost is made good."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.errors import InFlight, NotFound
from fencepost.flows import Flow, Sink, StartRefused
from fencepost.flows import _flow_store as flow_store
from fencepost.flows.sinks.external_postgres import ExternalPostgres
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.testing import crash_at
from tests.integration.flows.harness import FlowHarness

FRONTIER = "fencepost:frontier:{out}"


class Shelf:
    """A count in a numbered sink, and how to look at it and wipe it."""

    def __init__(self, harness: FlowHarness, kind: str) -> None:
        self._harness = harness
        self._kind = kind
        self._client: Any = harness.redis

    def sink(self) -> Sink:
        if self._kind == "redis":
            return RedisSink("hash", "out")
        return ExternalPostgres(self._harness.database.admin_url, "total", ["key"], ["value"])

    def total(self) -> int:
        if self._kind == "redis":
            return sum(int(value) for value in self._client.hgetall("out").values())
        return int(self._harness.rows("select coalesce(sum(value), 0) from total")[0][0])

    def clear(self) -> None:
        """The values only: the sink still knows its number."""
        self._client.delete("out")
        self._harness.rows("delete from total returning key")


def flow(shelf: Shelf) -> Flow:
    numbers = Flow("back").source(RedisStreams("in")).json()
    return numbers.key_by(lambda n: "all").count().sink(shelf.sink())


def send(harness: FlowHarness, count: int) -> None:
    for n in range(count):
        harness.redis.xadd("in", {"data": str(n)})


@pytest.fixture(params=["redis", "elsewhere"])
def shelf(harness: FlowHarness, request: pytest.FixtureRequest) -> Shelf:
    return Shelf(harness, request.param)


async def counted(harness: FlowHarness, shelf: Shelf, total: int, *, send_more: int = 0) -> None:
    async with harness.running(harness.worker(flow(shelf))):
        send(harness, send_more)
        await harness.until(lambda: shelf.total() == total)


async def at(harness: FlowHarness) -> Any:
    [task] = await harness.fp.run(flow_store.frontiers("back"))
    frontier: Any = task.frontier
    return frontier["in:in"]["at"]


async def saved(harness: FlowHarness, shelf: Shelf) -> Any:
    """A savepoint of 6 records, and 9 records by the time of the restore; answers where the savepoint is."""
    await counted(harness, shelf, 6, send_more=6)
    await harness.fp.run(flow_store.save("back", "early"))
    early = await at(harness)
    await counted(harness, shelf, 8, send_more=2)
    await counted(harness, shelf, 9, send_more=1)
    return early


async def test_a_restore_is_obeyed(harness: FlowHarness, shelf: Shelf) -> None:
    early = await saved(harness, shelf)

    await harness.fp.run(flow_store.restore("back", "early"))
    assert await at(harness) == early
    shelf.clear()

    # It comes again: were the frontier put forward again, nothing would.
    await counted(harness, shelf, 9)


async def test_a_restore_is_obeyed_by_a_second_start_when_the_first_ended_early(
    harness: FlowHarness, shelf: Shelf
) -> None:
    await saved(harness, shelf)
    await harness.fp.run(flow_store.restore("back", "early"))
    await harness.fp.run(flow_store.restore("back", "early"))
    shelf.clear()

    for point in ("flows.commit.before_store", "flows.commit.after_store", "flows.recover.before_finish"):
        with crash_at(point), pytest.raises(PlannedCrash):
            await harness.worker(flow(shelf)).run()
    await counted(harness, shelf, 9)


async def test_a_savepoint_of_a_restored_flow_can_be_restored(harness: FlowHarness, shelf: Shelf) -> None:
    early = await saved(harness, shelf)
    await harness.fp.run(flow_store.restore("back", "early"))
    await harness.fp.run(flow_store.save("back", "again"))
    await harness.fp.run(flow_store.restore("back", "again"))
    assert await at(harness) == early
    shelf.clear()

    await counted(harness, shelf, 9)


async def test_a_restore_is_refused_while_a_worker_runs(harness: FlowHarness, shelf: Shelf) -> None:
    await saved(harness, shelf)
    worker = harness.worker(flow(shelf))
    async with harness.running(worker):
        await harness.until(lambda: worker.holds != [])
        with pytest.raises(InFlight):
            await harness.fp.run(flow_store.restore("back", "early"))


async def test_what_was_stored_and_not_finished_is_no_part_of_a_savepoint(
    harness: FlowHarness, shelf: Shelf
) -> None:
    await counted(harness, shelf, 6, send_more=6)
    early = await at(harness)
    send(harness, 3)
    with crash_at("flows.commit.after_store"), pytest.raises(PlannedCrash):
        await harness.worker(flow(shelf)).run()
    assert await at(harness) != early

    await harness.fp.run(flow_store.save("back", "between"))
    await harness.fp.run(flow_store.restore("back", "between"))

    assert await at(harness) == early
    await counted(harness, shelf, 9)


def listed() -> Flow:
    return Flow("list").source(RedisStreams("in")).json().sink(RedisSink("list", "out"))


async def append(harness: FlowHarness, *values: int) -> None:
    client: Any = harness.redis
    for value in values:
        before = client.llen("out")
        client.xadd("in", {"data": str(value)})
        await harness.until(_longer(client, before))


def _longer(client: Any, before: int) -> Callable[[], bool]:
    return lambda: client.llen("out") > before


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_sink_that_lost_its_last_writes_gets_them_again(harness: FlowHarness, lost: int) -> None:
    """Also when it is only the last one, and flagged: no later checkpoint shows that it is missing."""
    client: Any = harness.redis
    kept: dict[int, Any] = {}
    async with harness.running(harness.worker(listed())):
        for value in range(4):
            await append(harness, value)
            kept[value] = client.hgetall(FRONTIER)
    client.ltrim("out", 0, 3 - lost)
    client.hset(FRONTIER, mapping=kept[3 - lost])

    async with harness.running(harness.worker(listed())):
        await harness.until(lambda: client.llen("out") >= 4)
        await append(harness, 4)
    assert [int(value) for value in client.lrange("out", 0, -1)] == [0, 1, 2, 3, 4]


async def test_a_loss_of_one_sink_does_not_double_what_another_has(harness: FlowHarness) -> None:
    numbers = Flow("list").source(RedisStreams("in")).json()
    both = numbers.sink(RedisSink("list", "out")).also(numbers.sink(PostgresRows("line", ["value"])))
    client: Any = harness.redis
    async with harness.running(harness.worker(both)):
        await append(harness, 0)
    older = client.hgetall(FRONTIER)
    await harness.fp.run(flow_store.save("list", "early"))
    async with harness.running(harness.worker(both)):
        await append(harness, 1, 2)
    client.ltrim("out", 0, 0)
    client.hset(FRONTIER, mapping=older)

    with pytest.raises(StartRefused, match=r"PostgresRows would take it twice\. Restore"):
        await harness.worker(both).run()
    assert sorted(harness.rows("select value from line")) == [(0,), (1,), (2,)]
    # What a person asks for is done.
    await harness.fp.run(flow_store.restore("list", "early"))
    async with harness.running(harness.worker(both)):
        await harness.until(lambda: client.llen("out") == 3)


async def test_a_sink_that_lost_more_than_the_savepoint_has_goes_back_further(harness: FlowHarness) -> None:
    client: Any = harness.redis
    async with harness.running(harness.worker(listed())):
        await append(harness, 0)
        older = client.hgetall(FRONTIER)
        await append(harness, 1, 2)
    await harness.fp.run(flow_store.save("list", "late"))
    await harness.fp.run(flow_store.restore("list", "late"))
    client.ltrim("out", 0, 0)
    client.hset(FRONTIER, mapping=older)

    async with harness.running(harness.worker(listed())):
        await harness.until(lambda: client.llen("out") >= 3)
        await append(harness, 3)
    assert [int(value) for value in client.lrange("out", 0, -1)] == [0, 1, 2, 3]


async def test_a_task_that_the_savepoint_does_not_have_begins_anew(harness: FlowHarness) -> None:
    def both(*streams: str) -> Flow:
        flow = Flow("parts").source(RedisStreams(streams, name="in")).json()
        return flow.sink(RedisSink("set", "out"))

    client: Any = harness.redis
    client.xadd("a", {"data": "1"})
    async with harness.running(harness.worker(both("a"))):
        await harness.until(lambda: client.scard("out") == 1)
    await harness.fp.run(flow_store.save("parts", "one"))
    client.xadd("b", {"data": "2"})
    async with harness.running(harness.worker(both("a", "b"))):
        await harness.until(lambda: client.scard("out") == 2)
    await harness.fp.run(flow_store.restore("parts", "one"))
    client.delete("out")

    # Its numbers go on: the sink would pass over lower ones.
    client.xadd("a", {"data": "3"})
    async with harness.running(harness.worker(both("a", "b"))):
        await harness.until(lambda: client.smembers("out") == {"2", "3"})


async def test_nothing_is_no_savepoint(harness: FlowHarness) -> None:
    with pytest.raises(NotFound):
        await harness.fp.run(flow_store.save("list", "s"))


async def test_a_savepoint_is_dropped(harness: FlowHarness) -> None:
    async with harness.running(harness.worker(listed())):
        await append(harness, 0)
    assert await harness.fp.run(flow_store.save("list", "s")) == 1
    assert await harness.fp.run(flow_store.drop("list", "s")) == 1
    with pytest.raises(NotFound):
        await harness.fp.run(flow_store.drop("list", "s"))
    assert harness.rows("select * from fencepost.flow_savepoint") == []


async def test_where_a_sink_stands_is_told_by_what_became_of_the_task(harness: FlowHarness) -> None:
    """Checkpoint 7 was restored as 11 by a person; before that, 3 was rewound to as 5, and 12 as 14 since."""
    harness.rows("""
        insert into fencepost.flow_return (resource, number, origin, asked, at)
        values ('r', 5, 3, false, now()), ('r', 11, 7, true, now()), ('r', 14, 12, false, now())
        returning number""")

    stands = [await harness.fp.run(flow_store.stand("r", position)) for position in range(16)]

    assert stands == [0, 1, 2, 5, 4, 5, 6, 11, 11, 11, 11, 11, 14, 13, 14, 15]


async def test_a_task_that_was_rewound_does_not_have_what_it_had(harness: FlowHarness) -> None:
    """Savepoint of 7; rewound from 8 to 3, as 9; restored as 11: at 9 and 10 the sink lacks 4 to 7."""
    harness.rows("""
        insert into fencepost.flow_return (resource, number, origin, asked, at)
        values ('r', 9, 3, false, now()), ('r', 11, 7, true, now()) returning number""")

    stands = [await harness.fp.run(flow_store.stand("r", position)) for position in range(7, 12)]

    assert stands == [11, 11, 9, 10, 11]
