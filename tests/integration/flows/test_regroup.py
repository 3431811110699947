"""Another number of key groups: exactly, under load, and with workers of the other number refused."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.errors import InFlight, Mismatch, NotFound
from fencepost.flows import Flow, Interval, StartRefused, Tumbling
from fencepost.flows import _taken as taken_module
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import Command, FlowHarness

KEYS = 23


def flow(groups: int, sink: Any = None, *, joins: bool = False) -> Flow:
    """A total and windows by key: each record counts once in each. With `joins` every record also meets
    itself, and records wait for each other's time, in the state."""
    events = Flow("sized").source(RedisStreams(["one", "two"])).json()
    timed = events.event_time(lambda event: event["at"], allowed_lateness=50)
    by_key = timed.key_by(lambda event: event["key"], groups=groups)
    totals = by_key.count(name="totals").sink(sink or PostgresUpsert("total", ["key"], ["value"]))
    row = PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))
    both = totals.also(by_key.window(Tumbling(10)).count(name="windows").sink(row))
    if not joins:
        return both
    pairs = by_key.join(by_key, lambda a, b: a["at"], window=Interval(0, 0), name="pairs")
    return both.also(pairs.sink(PostgresRows("line", ["value"])))


class Load:
    """Events of two streams; the times of each grow, and every one is of its own moment."""

    def __init__(self, harness: FlowHarness) -> None:
        self._harness = harness
        self.sent: list[tuple[str, int]] = []

    def send(self, count: int) -> None:
        client: Any = self._harness.redis
        pipe = client.pipeline()
        for number in range(len(self.sent), len(self.sent) + count):
            key = f"k{number * 7 % KEYS}"
            event = {"key": key, "at": number}
            pipe.xadd(("one", "two")[number % 2], {"data": json.dumps(event)})
            self.sent.append((key, number))
        pipe.execute()

    def finish(self) -> None:
        """Let all windows close: both streams go far."""
        for stream in ("one", "two"):
            self._harness.redis.xadd(stream, {"data": json.dumps({"key": "end", "at": 10**9})})


def total(harness: FlowHarness) -> int:
    return int(harness.rows("select coalesce(sum(value), 0) from total where key <> 'end'")[0][0])


async def drained(harness: FlowHarness, savepoint: str) -> None:
    await harness.fp.flows.drain("sized")
    await harness.until(
        lambda: (
            not harness.rows(
                "select 1 from fencepost.flow_holders('sized')"
                " where held and position('/slot/' in resource) = 0"
            )
        )
    )
    await harness.fp.flows.savepoint("sized", savepoint, within=0)


async def test_the_number_of_groups_changes_exactly_under_load(harness: FlowHarness) -> None:
    load = Load(harness)

    def has(goal: int) -> bool:
        """Asked while the flow runs: the load goes on."""
        load.send(20)
        return total(harness) >= goal

    def sized(groups: int) -> list[Any]:
        return [harness.worker(flow(groups, joins=True)) for _ in range(2)]

    load.send(100)
    before = 3
    for groups in (5, 2):
        goal = total(harness) + 100
        async with harness.running(*sized(before)):
            await harness.until(lambda goal=goal: has(goal) and not passing(harness))  # type: ignore[misc]
            load.send(20)
            await drained(harness, f"to-{groups}")
        await harness.fp.flows.regroup("sized", f"to-{groups}", groups)
        await harness.fp.flows.resume("sized")
        before = groups
    load.finish()
    wanted = Counter((key, at // 10 * 10) for key, at in load.sent)
    async with harness.running(*sized(before)):
        await harness.until(lambda: harness.rows("select count(*) from closed") == [(len(wanted),)])

    found = harness.rows("select key, value from total where key <> 'end'")
    assert dict(found) == Counter(key for key, _ in load.sent)
    windows = harness.rows("select key, start::int, value from closed")
    assert {(key, start): value for key, start, value in windows} == wanted
    assert sorted(harness.rows("select value from line")) == [(at,) for _, at in load.sent]
    assert harness.rows("select count(*) from fencepost.flow_lates('sized')") == [(0,)]


def passing(harness: FlowHarness) -> list[Any]:
    """The senders of which a group still passes over what a group of before had taken."""
    return harness.rows(
        "select 1 from fencepost.flow_frontiers('sized') f, jsonb_each(f.frontier) m where m.value ? 'taken'"
    )


async def uneven(harness: FlowHarness, load: Load) -> None:
    """One group has committed less than the others: the others have taken what it has not."""
    load.send(200)
    async with harness.running(harness.worker(flow(3))):
        await harness.until(lambda: total(harness) == 200)
        await harness.fp.flows.savepoint("sized", "even")
    resource = "flow:sized/group/0001"
    with harness.database.connect_admin() as admin:
        admin.execute(
            "insert into fencepost.flow_savepoint select flow, 'uneven', resource, number, whole, frontier,"
            " state, made_at, layout from fencepost.flow_savepoint"
            " where savepoint = 'even' and resource <> %s",
            (resource,),
        )
        admin.execute(
            "insert into fencepost.flow_savepoint"
            " (flow, savepoint, resource, number, whole, frontier, made_at)"
            " values ('sized', 'uneven', %s, 0, true, '{}', now())",
            (resource,),
        )
        # What that group has written is undone with it.
        admin.execute("delete from total where key = any (%s)", (keys_of(1, 3),))


def keys_of(group: int, groups: int) -> list[str]:
    keys = [f"k{number}" for number in range(KEYS)]
    return [key for key in keys if taken_module.group_of(key, groups) == group]


async def test_groups_that_had_read_different_amounts_read_the_rest(harness: FlowHarness) -> None:
    load = Load(harness)
    await uneven(harness, load)

    await harness.fp.flows.regroup("sized", "uneven", 4)
    async with harness.running(harness.worker(flow(4))):
        await harness.until(lambda: total(harness) == 200)
        load.send(50)
        await harness.until(lambda: total(harness) == 250)
        # Once all is passed, nothing of before is kept, and it can be regrouped again.
        await harness.until(lambda: not passing(harness))

    assert dict(harness.rows("select key, value from total")) == Counter(key for key, _ in load.sent)


async def test_without_what_the_groups_had_taken_records_are_doubled(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: a new group takes all that comes behind its lowest place."""
    load = Load(harness)
    await uneven(harness, load)

    def all_of_them(self: Any, records: Any, offsets: Any, clock: Any) -> Any:
        return records

    monkeypatch.setattr(taken_module.Taken, "left", all_of_them)
    await harness.fp.flows.regroup("sized", "uneven", 4)
    async with harness.running(harness.worker(flow(4))):
        await harness.until(lambda: total(harness) > 200)


async def test_a_sink_that_numbers_checkpoints_goes_on(harness: FlowHarness) -> None:
    """In more groups, and in fewer: numbers of a task only grow, also of one that was gone meanwhile."""
    load = Load(harness)
    client: Any = harness.redis

    def counted() -> int:
        return sum(json.loads(value) for value in client.hgetall("counts").values())

    sink = RedisSink("hash", "counts")
    for round_number, groups in enumerate((3, 1, 3), 1):
        load.send(100)
        async with harness.running(harness.worker(flow(groups, sink))):
            await harness.until(lambda: counted() == len(load.sent))
        following = {1: 1, 2: 3, 3: 2}[round_number]
        await drained(harness, f"round-{round_number}")
        await harness.fp.flows.regroup("sized", f"round-{round_number}", following)
        await harness.fp.flows.resume("sized")


async def test_workers_of_the_other_number_are_refused(harness: FlowHarness) -> None:
    load = Load(harness)
    load.send(60)
    old = harness.worker(flow(3))
    stop = asyncio.Event()
    running = asyncio.create_task(old.run(stop))
    await harness.until(lambda: total(harness) == 60)
    with pytest.raises(StartRefused, match="fencepost flows regroup sized SAVEPOINT 5"):
        await harness.run(flow(5))
    await harness.fp.flows.savepoint("sized", "held")
    with pytest.raises(InFlight):
        await harness.fp.flows.regroup("sized", "held", 5)
    # It is drained, and goes on living: it may take the tasks again, and commits nothing.
    await drained(harness, "to-5")
    await harness.fp.flows.regroup("sized", "to-5", 5)
    load.send(60)
    await harness.fp.flows.resume("sized")
    with pytest.raises(StartRefused, match="Another graph of the flow sized"):
        async with asyncio.timeout(60):
            await running
    with pytest.raises(StartRefused, match="fencepost flows regroup sized SAVEPOINT 3"):
        await harness.run(flow(3))
    assert total(harness) == 60

    async with harness.running(harness.worker(flow(5))):
        await harness.until(lambda: total(harness) == 120)
    with pytest.raises(Mismatch):
        await harness.fp.flows.restore("sized", "to-5")


async def test_the_command(harness: FlowHarness, command: Command) -> None:
    load = Load(harness)
    load.send(30)
    async with harness.running(harness.worker(flow(3))):
        await harness.until(lambda: total(harness) == 30)
    await drained(harness, "cut")

    code, said = await asyncio.to_thread(command, "flows", "regroup", "sized", "cut", "2")

    assert (code, "2 key groups now, as of cut" in said) == (ExitCode.OK, True)
    shown = json.loads((await asyncio.to_thread(command, "flows", "show", "sized", "--json"))[1])
    assert [task["task"] for task in shown["tasks"]] == ["group/0000", "group/0001"]
    with pytest.raises(NotFound):
        await harness.fp.flows.regroup("sized", "never", 2)


async def test_a_flow_without_groups_has_no_number_of_them(harness: FlowHarness) -> None:
    harness.redis.xadd("in", {"data": "1"})
    single = Flow("single").source(RedisStreams("in")).json().key_by(str).count()
    async with harness.running(harness.worker(single.sink(PostgresUpsert("total", ["key"], ["value"])))):
        await harness.until(lambda: total(harness) == 1)
    await harness.fp.flows.savepoint("single", "whole", within=0)

    with pytest.raises(StartRefused, match="has no key groups"):
        await harness.fp.flows.regroup("single", "whole", 4)
