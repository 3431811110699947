"""What a person restores is obeyed, also by sinks that remember a checkpoint; what they lost is made good."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.errors import InFlight, NotFound
from fencepost.flows import Flow, Sink, StartRefused, ledger
from fencepost.flows.sinks.elsewhere import PostgresElsewhere
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.testing import crash_at
from tests.integration.flows.scene import Scene

FRONTIER = "fencepost:frontier:{out}"


class Shelf:
    """A count in a numbered sink, and how to look at it and wipe it."""

    def __init__(self, scene: Scene, kind: str) -> None:
        self._scene = scene
        self._kind = kind
        self._client: Any = scene.redis

    def sink(self) -> Sink:
        if self._kind == "redis":
            return RedisSink("hash", "out")
        return PostgresElsewhere(self._scene.database.admin_url, "total", ["key"], ["value"])

    def total(self) -> int:
        if self._kind == "redis":
            return sum(int(value) for value in self._client.hgetall("out").values())
        return int(self._scene.rows("select coalesce(sum(value), 0) from total")[0][0])

    def clear(self) -> None:
        """The values only: the sink still knows its number."""
        self._client.delete("out")
        self._scene.rows("delete from total returning key")


def flow(shelf: Shelf) -> Flow:
    numbers = Flow("back").source(RedisStreams("in")).json()
    return numbers.key_by(lambda n: "all").count().sink(shelf.sink())


def send(scene: Scene, count: int) -> None:
    for n in range(count):
        scene.redis.xadd("in", {"data": str(n)})


@pytest.fixture(params=["redis", "elsewhere"])
def shelf(scene: Scene, request: pytest.FixtureRequest) -> Shelf:
    return Shelf(scene, request.param)


async def counted(scene: Scene, shelf: Shelf, total: int, *, send_more: int = 0) -> None:
    async with scene.running(scene.worker(flow(shelf))):
        send(scene, send_more)
        await scene.until(lambda: shelf.total() == total)


async def at(scene: Scene) -> Any:
    [task] = await scene.fp.run(ledger.frontiers("back"))
    frontier: Any = task.frontier
    return frontier["in:in"]["at"]


async def saved(scene: Scene, shelf: Shelf) -> Any:
    """A savepoint of 6 records, and 9 records by the time of the restore; answers where the savepoint is."""
    await counted(scene, shelf, 6, send_more=6)
    await scene.fp.run(ledger.save("back", "early"))
    early = await at(scene)
    await counted(scene, shelf, 8, send_more=2)
    await counted(scene, shelf, 9, send_more=1)
    return early


async def test_a_restore_is_obeyed(scene: Scene, shelf: Shelf) -> None:
    early = await saved(scene, shelf)

    await scene.fp.run(ledger.restore("back", "early"))
    assert await at(scene) == early
    shelf.clear()

    # It comes again: were the frontier put forward again, nothing would.
    await counted(scene, shelf, 9)


async def test_a_restore_is_obeyed_by_a_second_start_when_the_first_ended_early(
    scene: Scene, shelf: Shelf
) -> None:
    await saved(scene, shelf)
    await scene.fp.run(ledger.restore("back", "early"))
    await scene.fp.run(ledger.restore("back", "early"))
    shelf.clear()

    for point in ("flows.commit.before_store", "flows.commit.after_store", "flows.recover.before_finish"):
        with crash_at(point), pytest.raises(PlannedCrash):
            await scene.worker(flow(shelf)).run()
    await counted(scene, shelf, 9)


async def test_a_savepoint_of_a_restored_flow_can_be_restored(scene: Scene, shelf: Shelf) -> None:
    early = await saved(scene, shelf)
    await scene.fp.run(ledger.restore("back", "early"))
    await scene.fp.run(ledger.save("back", "again"))
    await scene.fp.run(ledger.restore("back", "again"))
    assert await at(scene) == early
    shelf.clear()

    await counted(scene, shelf, 9)


async def test_a_restore_is_refused_while_a_worker_runs(scene: Scene, shelf: Shelf) -> None:
    await saved(scene, shelf)
    worker = scene.worker(flow(shelf))
    async with scene.running(worker):
        await scene.until(lambda: worker.holds != [])
        with pytest.raises(InFlight):
            await scene.fp.run(ledger.restore("back", "early"))


async def test_what_was_stored_and_not_finished_is_no_part_of_a_savepoint(scene: Scene, shelf: Shelf) -> None:
    await counted(scene, shelf, 6, send_more=6)
    early = await at(scene)
    send(scene, 3)
    with crash_at("flows.commit.after_store"), pytest.raises(PlannedCrash):
        await scene.worker(flow(shelf)).run()
    assert await at(scene) != early

    await scene.fp.run(ledger.save("back", "between"))
    await scene.fp.run(ledger.restore("back", "between"))

    assert await at(scene) == early
    await counted(scene, shelf, 9)


def listed() -> Flow:
    return Flow("list").source(RedisStreams("in")).json().sink(RedisSink("list", "out"))


async def append(scene: Scene, *values: int) -> None:
    client: Any = scene.redis
    for value in values:
        before = client.llen("out")
        client.xadd("in", {"data": str(value)})
        await scene.until(_longer(client, before))


def _longer(client: Any, before: int) -> Callable[[], bool]:
    return lambda: client.llen("out") > before


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_sink_that_lost_its_last_writes_gets_them_again(scene: Scene, lost: int) -> None:
    """Also when it is only the last one, and flagged: no later checkpoint shows that it is missing."""
    client: Any = scene.redis
    kept: dict[int, Any] = {}
    async with scene.running(scene.worker(listed())):
        for value in range(4):
            await append(scene, value)
            kept[value] = client.hgetall(FRONTIER)
    client.ltrim("out", 0, 3 - lost)
    client.hset(FRONTIER, mapping=kept[3 - lost])

    async with scene.running(scene.worker(listed())):
        await scene.until(lambda: client.llen("out") >= 4)
        await append(scene, 4)
    assert [int(value) for value in client.lrange("out", 0, -1)] == [0, 1, 2, 3, 4]


async def test_a_loss_of_one_sink_does_not_double_what_another_has(scene: Scene) -> None:
    numbers = Flow("list").source(RedisStreams("in")).json()
    both = numbers.sink(RedisSink("list", "out")).also(numbers.sink(PostgresRows("line", ["value"])))
    client: Any = scene.redis
    async with scene.running(scene.worker(both)):
        await append(scene, 0)
    older = client.hgetall(FRONTIER)
    await scene.fp.run(ledger.save("list", "early"))
    async with scene.running(scene.worker(both)):
        await append(scene, 1, 2)
    client.ltrim("out", 0, 0)
    client.hset(FRONTIER, mapping=older)

    with pytest.raises(StartRefused, match=r"PostgresRows would take it twice\. Restore"):
        await scene.worker(both).run()
    assert sorted(scene.rows("select value from line")) == [(0,), (1,), (2,)]
    # What a person asks for is done.
    await scene.fp.run(ledger.restore("list", "early"))
    async with scene.running(scene.worker(both)):
        await scene.until(lambda: client.llen("out") == 3)


async def test_a_sink_that_lost_more_than_the_savepoint_has_goes_back_further(scene: Scene) -> None:
    client: Any = scene.redis
    async with scene.running(scene.worker(listed())):
        await append(scene, 0)
        older = client.hgetall(FRONTIER)
        await append(scene, 1, 2)
    await scene.fp.run(ledger.save("list", "late"))
    await scene.fp.run(ledger.restore("list", "late"))
    client.ltrim("out", 0, 0)
    client.hset(FRONTIER, mapping=older)

    async with scene.running(scene.worker(listed())):
        await scene.until(lambda: client.llen("out") >= 3)
        await append(scene, 3)
    assert [int(value) for value in client.lrange("out", 0, -1)] == [0, 1, 2, 3]


async def test_a_task_that_the_savepoint_does_not_have_begins_anew(scene: Scene) -> None:
    def both(*streams: str) -> Flow:
        flow = Flow("parts").source(RedisStreams(streams, name="in")).json()
        return flow.sink(RedisSink("set", "out"))

    client: Any = scene.redis
    client.xadd("a", {"data": "1"})
    async with scene.running(scene.worker(both("a"))):
        await scene.until(lambda: client.scard("out") == 1)
    await scene.fp.run(ledger.save("parts", "one"))
    client.xadd("b", {"data": "2"})
    async with scene.running(scene.worker(both("a", "b"))):
        await scene.until(lambda: client.scard("out") == 2)
    await scene.fp.run(ledger.restore("parts", "one"))
    client.delete("out")

    # Its numbers go on: the sink would pass over lower ones.
    client.xadd("a", {"data": "3"})
    async with scene.running(scene.worker(both("a", "b"))):
        await scene.until(lambda: client.smembers("out") == {"2", "3"})


async def test_nothing_is_no_savepoint(scene: Scene) -> None:
    with pytest.raises(NotFound):
        await scene.fp.run(ledger.save("list", "s"))


async def test_a_savepoint_is_dropped(scene: Scene) -> None:
    async with scene.running(scene.worker(listed())):
        await append(scene, 0)
    assert await scene.fp.run(ledger.save("list", "s")) == 1
    assert await scene.fp.run(ledger.drop("list", "s")) == 1
    with pytest.raises(NotFound):
        await scene.fp.run(ledger.drop("list", "s"))
    assert scene.rows("select * from fencepost.flow_savepoint") == []


async def test_where_a_sink_stands_is_told_by_what_became_of_the_task(scene: Scene) -> None:
    """Checkpoint 7 was restored as 11 by a person; before that, 3 was rewound to as 5, and 12 as 14 since."""
    scene.rows("""
        insert into fencepost.flow_return (resource, number, origin, asked, at)
        values ('r', 5, 3, false, now()), ('r', 11, 7, true, now()), ('r', 14, 12, false, now())
        returning number""")

    stands = [await scene.fp.run(ledger.stand("r", position)) for position in range(16)]

    assert stands == [0, 1, 2, 5, 4, 5, 6, 11, 11, 11, 11, 11, 14, 13, 14, 15]


async def test_a_task_that_was_rewound_does_not_have_what_it_had(scene: Scene) -> None:
    """Savepoint of 7; rewound from 8 to 3, as 9; restored as 11: at 9 and 10 the sink lacks 4 to 7."""
    scene.rows("""
        insert into fencepost.flow_return (resource, number, origin, asked, at)
        values ('r', 9, 3, false, now()), ('r', 11, 7, true, now()) returning number""")

    stands = [await scene.fp.run(ledger.stand("r", position)) for position in range(7, 12)]

    assert stands == [11, 11, 9, 10, 11]
