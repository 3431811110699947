"""Several key_by with groups in one flow: each stage sends to the next what it has committed, once."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.flows import Flow, IterableSource, SourceTrimmed, StartRefused, StateMismatch, Tumbling
from fencepost.flows import _stage_log as stage_log
from fencepost.flows import _units as units
from fencepost.flows._frontier import Mark
from fencepost.flows._plan import FlowPlan
from fencepost.flows._shuffle import ChannelKeys, entries_for
from fencepost.flows._steps import Batch
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sources._source import Chunk
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.testing import crash_at
from tests.integration.flows.harness import FlowHarness

USERS = 13
COUNTRIES = 3


def events(count: int, seed: int) -> Mapping[str, list[dict[str, int]]]:
    """Two partitions, in each of which time grows, with jumps back within the lateness."""
    chance = random.Random(seed)  # noqa: S311
    parts: dict[str, list[dict[str, int]]] = {"0": [], "1": []}
    for number in range(count):
        at = number // 2 + chance.randint(0, 5)
        parts[str(number % 2)].append({"user": chance.randrange(USERS), "at": at})
    return parts


def country(user: int) -> int:
    return user % COUNTRIES


def active(parts: Mapping[str, Sequence[dict[str, int]]]) -> dict[tuple[str, int], int]:
    """By country and minute: the sum over its users of the squares of their counts in ten seconds."""
    counts = Counter((e["user"], e["at"] // 10 * 10 + 10) for values in parts.values() for e in values)
    sums: dict[tuple[str, int], int] = {}
    for (user, end), count in counts.items():
        place = (str(country(user)), end // 60 * 60)
        sums[place] = sums.get(place, 0) + count * count
    return sums


def timed(source: Any, groups: tuple[int, int] = (3, 2), name: str = "users") -> Flow:
    """Windows of ten seconds by user, and of a minute by country from their results."""
    users = (
        Flow("twice")
        .source(source)
        .event_time(lambda e: e["at"], allowed_lateness=10)
        .key_by(lambda e: e["user"], groups=groups[0])
        .window(Tumbling(10))
        .count(name=name)
    )
    by_country = users.key_by(lambda r: str(country(r.key)), groups=groups[1])
    sums = by_country.window(Tumbling(60)).sum(lambda r: r.value * r.value, name="countries")
    return sums.sink(
        PostgresRows("closed", ["key", "start", "value"], row=lambda r: (r.key, r.start, r.value))
    )


def closed(harness: FlowHarness) -> list[Any]:
    return harness.rows("select key, start::int, value from closed")


def counted(groups: tuple[int, int] = (3, 2), sink: Any = None, first: Any = None) -> Flow:
    """Both stages number the records of a key: a lost or doubled record shows in all numbers that follow."""

    def numbered(state: int | None, value: Any) -> tuple[int, list[tuple[int, int]]]:
        count = (state or 0) + 1
        return count, [(value, count)]

    def compared(state: int | None, pair: Any) -> tuple[int, list[int]]:
        count = (state or 0) + 1
        assert pair[1] == count, f"{pair} came as the {count}."
        return count, [pair[0]]

    numbers = Flow("counted").source(RedisStreams("in")).json()
    once = numbers.key_by(lambda n: n % 11, groups=groups[0]).stateful(numbered, name="once")
    again = once.key_by(lambda pair: -(pair[0] % 11), groups=groups[1]).stateful(compared, name="again")
    flow = again.sink(sink or PostgresRows("line", ["value"]))
    return flow if first is None else flow.also(once.map(lambda pair: pair[0]).sink(first))


def send(harness: FlowHarness, count: int, start: int = 0) -> None:
    client: Any = harness.redis
    pipe = client.pipeline()
    for number in range(start, start + count):
        pipe.xadd("in", {"data": str(number)})
    pipe.execute()


def lines(harness: FlowHarness) -> list[int]:
    return [value for [value] in harness.rows("select value from line order by value")]


async def test_windows_of_windows_are_those_of_a_single_thread(harness: FlowHarness) -> None:
    parts = events(600, seed=1)

    await harness.run(timed(IterableSource(parts, name="in")))

    found = {(key, start): value for key, start, value in closed(harness)}
    assert len(closed(harness)) == len(found)
    assert found == active(parts)
    assert harness.rows("select count(*) from fencepost.flow_lates('twice')") == [(0,)]


async def test_what_a_stage_has_sent_is_removed_when_all_receivers_have_it(harness: FlowHarness) -> None:
    send(harness, 200)
    async with harness.running(harness.worker(counted())):
        await harness.until(lambda: len(lines(harness)) == 200)
        await harness.until(lambda: rows_left(harness) == 0)

    assert lines(harness) == list(range(200))


def rows_left(harness: FlowHarness) -> int:
    with harness.database.connect_admin() as admin:
        [[count]] = admin.execute("select count(*) from fencepost.flow_stage_row").fetchall()
        return int(count)


async def test_redis_is_wiped_and_tasks_are_taken_over_between_two_stages(harness: FlowHarness) -> None:
    sent = 0
    async with harness.running(*(harness.worker(counted()) for _ in range(2))):
        for turn in range(4):
            send(harness, 100, sent)
            sent += 100
            await harness.until(lambda goal=sent: len(lines(harness)) >= goal - 60)  # type: ignore[misc]
            if turn % 2:
                lose_units(harness)
            else:
                client: Any = harness.redis
                for key in client.scan_iter("fencepost:*"):
                    client.delete(key)
        await harness.until(lambda: len(lines(harness)) == sent)

    assert lines(harness) == list(range(sent))


def lose_units(harness: FlowHarness) -> None:
    """As if another worker had taken every unit over; one row at a time, as the heartbeat locks several."""
    with harness.database.connect_admin() as admin:
        for number in range(3):
            for unit in (f"group/{number:04}", f"group/2-{number:04}", f"source/stage-1:{number:04}"):
                admin.execute(
                    "update fencepost.lease set token = token + 1, owner = null,"
                    " expires_at = fencepost.clock() where resource = %s",
                    (f"flow:counted/{unit}",),
                )


async def resumed(harness: FlowHarness, flow: Flow, total: int) -> None:
    """Run until everything has come, and nothing waits between the stages."""
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: len(lines(harness)) >= total and rows_left(harness) == 0)


async def test_a_savepoint_holds_what_is_on_the_way_between_two_stages(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(harness, 100)
    await resumed(harness, counted(), 100)
    # From now on the second stage gets nothing: what the first has sent waits in its log.
    kept = stage_log.StageReader.read

    async def nothing(*_: Any) -> Any:
        return Chunk((), ())

    monkeypatch.setattr(stage_log.StageReader, "read", nothing)
    send(harness, 50, 100)
    async with harness.running(harness.worker(counted())):
        await harness.until(lambda: records_left(harness) == 50)
        await harness.fp.flows.savepoint("counted", "waiting", within=0)
    monkeypatch.setattr(stage_log.StageReader, "read", kept)
    await resumed(harness, counted(), 150)
    assert lines(harness) == list(range(150))
    send(harness, 30, 150)
    await resumed(harness, counted(), 180)

    # Back to the savepoint: its rows are there again, and what came after it is read again.
    await harness.fp.flows.restore("counted", "waiting")
    harness.rows("delete from line where value >= 100 returning value")
    await resumed(harness, counted(), 180)

    assert lines(harness) == list(range(180))


def records_left(harness: FlowHarness) -> int:
    with harness.database.connect_admin() as admin:
        [[count]] = admin.execute("select coalesce(sum(records), 0) from fencepost.flow_stage_row").fetchall()
        return int(count)


async def test_a_commit_whose_sinks_are_not_finished_sends_nothing_yet(harness: FlowHarness) -> None:
    """A restore would cancel that commit: what the next stage had taken of it would be there twice."""
    send(harness, 40)
    flow = counted(first=RedisSink("list", "out"))
    with pytest.raises(PlannedCrash), crash_at("flows.commit.after_store"):
        await harness.worker(flow).run()
    stored = harness.rows(
        "select r.sender, min(r.number) from fencepost.flow_stage_row r"
        " join fencepost.flow_stage s using (flow, sender)"
        " join fencepost.checkpoint c on c.resource = s.resource and c.number = r.checkpoint"
        " where c.status = 'stored' group by r.sender"
    )

    assert stored
    for sender, first in stored:
        read = await harness.fp.run(stage_log.read("counted", sender, 0, 16))
        assert [row.number for row in read if row.number >= first] == []
    await resumed(harness, flow, 40)
    assert lines(harness) == list(range(40))
    assert harness.redis.llen("out") == 40


async def test_sending_outside_the_commit_is_found(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: what was sent is there although its commit is not."""

    async def apart(output: Any, _: Any, checkpoint: Any, values: Any) -> None:
        await harness.fp.run(stage_log.append("counted", output._sender, checkpoint, values))

    monkeypatch.setattr(stage_log.StageOutput, "write", apart)
    send(harness, 40)
    with pytest.raises(PlannedCrash), crash_at("flows.commit.before_commit"):
        await harness.worker(counted()).run()
    monkeypatch.undo()

    worker = harness.worker(counted())
    async with harness.running(worker):
        await harness.until(lambda: any("came as the" in error for error in worker.errors.values()))


async def test_removing_rows_before_the_receivers_have_them_is_found(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: rows are removed when they are read."""
    kept = stage_log.StageReader.read

    async def hasty(reader: Any, limit: int, wait_seconds: float) -> Any:
        chunk = await kept(reader, limit, wait_seconds)
        if chunk.values:
            await reader.acknowledge(chunk.offsets[-1])
        return chunk

    monkeypatch.setattr(stage_log.StageReader, "read", hasty)
    send(harness, 40)
    with pytest.raises(PlannedCrash), crash_at("flows.stage.after_trim"):
        await harness.worker(counted()).run()
    monkeypatch.undo()

    with pytest.raises(SourceTrimmed, match="stage-1"):
        await harness.worker(counted()).run()


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(counted((4, 2)), id="other groups in the first stage"),
        pytest.param(counted((3, 3)), id="other groups in the second stage"),
    ],
)
async def test_other_groups_are_refused(harness: FlowHarness, changed: Flow) -> None:
    send(harness, 20)
    await resumed(harness, counted(), 20)

    with pytest.raises(StartRefused, match=r"3, then 2 key groups.*key_by\(groups=3\) and then"):
        await harness.worker(changed).run()
    await harness.fp.flows.savepoint("counted", "here", within=0)
    with pytest.raises(StartRefused, match="several key_by"):
        await harness.fp.flows.regroup("counted", "here", 4)


async def test_a_step_that_moves_to_another_stage_is_refused(harness: FlowHarness) -> None:
    source = RedisStreams("in")

    def flow(*, behind: bool) -> Flow:
        once = Flow("moved").source(source).json().key_by(lambda n: n % 5, groups=2)
        again = once.key_by(lambda n: n % 3, groups=2)
        total = (again if behind else once).count(name="total").map(lambda pair: (str(pair[0]), pair[1]))
        rest = (once if behind else again).count(name="other").map(lambda pair: (f"o{pair[0]}", pair[1]))
        sink = PostgresUpsert("total", ["key"], ["value"])
        return total.sink(sink).also(rest.sink(sink))

    send(harness, 30)
    async with harness.running(harness.worker(flow(behind=False))):
        await harness.until(lambda: harness.rows("select coalesce(sum(value), 0) from total") == [(60,)])

    with pytest.raises(StateMismatch, match="behind 1 key_by with groups and is behind 2"):
        await harness.worker(flow(behind=True)).run()


async def test_a_stage_waits_while_the_next_one_lags(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_log, "WAITING_MAX", 2)
    kept = stage_log.StageReader.read
    is_open = False

    async def held(reader: Any, limit: int, wait_seconds: float) -> Any:
        return await kept(reader, limit, wait_seconds) if is_open else Chunk((), ())

    monkeypatch.setattr(stage_log.StageReader, "read", held)
    async with harness.running(harness.worker(counted(), batch=10, records_max=10)):
        send(harness, 600)
        await harness.until(lambda: rows_left(harness) >= 6)
        stopped = records_left(harness)
        is_open = True
        await harness.until(lambda: len(lines(harness)) == 600)

    assert stopped < 600
    assert lines(harness) == list(range(600))


async def test_an_entry_of_another_stage_is_removed_from_a_channel(harness: FlowHarness) -> None:
    """A foreign writer, or a mistake: it would fail every read of the group."""
    program = FlowPlan(counted())
    sender = units.senders_of(program)[0]
    client: Any = harness.redis
    send(harness, 20)
    async with harness.running(harness.worker(counted())):
        await harness.until(lambda: len(lines(harness)) == 20)
        at = client.xrevrange("in", count=1)[0][0]
        runs: list[tuple[int, Batch]] = [(0, [(7, 7, None, 0)])]
        fields = entries_for(runs, ["9999999999999-0"], units.Spread.of(program, sender), at, Mark(), None)[0]
        stream = ChannelKeys("counted", "2-0", stage_sender_name(program)).stream
        client.xadd(stream, dict(zip(fields[::2], fields[1::2], strict=True)))
        send(harness, 20, 20)
        await harness.until(lambda: len(lines(harness)) == 40)
        await harness.until(lambda: client.xlen(stream) == 0)

    assert lines(harness) == list(range(40))


def stage_sender_name(program: FlowPlan) -> str:
    return units.stage_senders(program)[0].name


async def test_a_source_may_send_to_two_stages(harness: FlowHarness) -> None:
    rows = [{"user": n % 5, "amount": n} for n in range(200)]
    people = [{"user": n, "amount": 1000} for n in range(5)]
    flow, sink = Flow("both"), PostgresUpsert("total", ["key"], ["value"])
    orders = flow.source(IterableSource(rows, name="orders")).key_by(_user, groups=2)
    given = flow.source(IterableSource(people, name="people"))
    largest = orders.stateful(lambda _, o: (True, [o] if o["amount"] >= 100 else []), name="large")
    both = largest.key_by(_user, groups=3).lookup(given.key_by(_user, groups=3), lambda o, _: o, name="far")
    sums = both.sum(lambda o: o["amount"], name="sums").map(lambda pair: (f"s{pair[0]}", pair[1])).sink(sink)
    counts = orders.lookup(given.key_by(_user, groups=2), lambda o, _: o, name="near").count(name="counts")

    await harness.run(sums.also(counts.map(lambda pair: (f"c{pair[0]}", pair[1])).sink(sink)))

    wanted = {f"s{n}": sum(range(100 + n, 200, 5)) for n in range(5)} | {f"c{n}": 40 for n in range(5)}
    assert dict(harness.rows("select key, value from total")) == wanted


def _user(row: dict[str, int]) -> int:
    return row["user"]
