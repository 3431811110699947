"""Ways to process: acknowledged after the commit, on demand, and by the id of the message itself."""

import asyncio
import json
from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.crashpoints import PlannedCrash
from fencepost.flows import Flow, IdempotentRecord, IterableSource
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._task import Task
from fencepost.flows.sinks._sink import CheckpointId
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sinks.redis import RedisIdempotentList, as_record
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from fencepost.flows.sources.outbox import OutboxChannel
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.kernel import outbox
from fencepost.testing import crash_at
from tests.integration.flows.harness import Command, FlowHarness

SLOW: dict[str, Any] = {"interval_seconds": 600, "drain_seconds": 5}
"""So seldom that whatever is committed was asked for."""


def deferring() -> Flow:
    source = RedisStreams("in", group="g", claim_idle_seconds=3600)
    return Flow("deferring").source(source).json().sink(PostgresRows("line", ["value"]))


def pending(harness: FlowHarness) -> int:
    client: Any = harness.redis
    groups = client.xinfo_groups("in")
    return int(groups[0]["pending"]) if groups else -1


def lines(harness: FlowHarness) -> int:
    return int(harness.rows("select count(*) from line")[0][0])


def send(harness: FlowHarness, count: int) -> None:
    for n in range(count):
        harness.redis.xadd("in", {"data": str(n)})


async def test_entries_are_pending_until_their_commit(harness: FlowHarness) -> None:
    send(harness, 5)
    async with harness.running(harness.worker(deferring(), **SLOW)):
        await harness.until(lambda: pending(harness) == 5)
        assert lines(harness) == 0

        await harness.fp.run(flow_store.ask("deferring"))

        await harness.until(lambda: lines(harness) == 5)
        await harness.until(lambda: pending(harness) == 0)


async def test_what_was_read_is_committed_at_shutdown_however_seldom_commits_are(
    harness: FlowHarness,
) -> None:
    send(harness, 5)
    async with harness.running(harness.worker(deferring(), **SLOW)):
        await harness.until(lambda: pending(harness) == 5)

    assert (lines(harness), pending(harness)) == (5, 0)


async def test_a_commit_that_never_was_acknowledges_nothing(harness: FlowHarness) -> None:
    send(harness, 5)
    with crash_at("flows.commit.before_commit"), pytest.raises(PlannedCrash):
        await harness.worker(deferring()).run()

    assert (pending(harness), lines(harness)) == (5, 0)


async def test_an_acknowledgement_before_the_commit_would_be_seen(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Task._commit  # pyright: ignore[reportPrivateUsage]

    async def early(task: Any) -> None:
        await task._input.acknowledge(task._frontier)
        await right(task)

    monkeypatch.setattr(Task, "_commit", early)
    with pytest.raises(AssertionError):
        await test_a_commit_that_never_was_acknowledges_nothing(harness)


async def test_a_savepoint_asks_for_a_commit_first(harness: FlowHarness, command: Command) -> None:
    send(harness, 5)
    async with harness.running(harness.worker(deferring(), **SLOW)):
        await harness.until(lambda: pending(harness) == 5)
        said = await asyncio.to_thread(command, "flows", "savepoint", "deferring", "now")

        assert said == (ExitCode.OK, "now: 1 tasks of deferring.\n")
        assert lines(harness) == 5
        # Nothing has come since: it is asked for all the same, and answered.
        said = await asyncio.to_thread(command, "flows", "savepoint", "deferring", "again")
        assert said == (ExitCode.OK, "again: 1 tasks of deferring.\n")
    [(at,)] = harness.rows(
        "select frontier->'in:in'->>'at' from fencepost.flow_savepoint where savepoint = 'now'"
    )
    last: Any = harness.redis.xrevrange("in", count=1)
    assert at == last[0][0]


async def test_a_savepoint_without_an_answer_is_not_made(harness: FlowHarness, command: Command) -> None:
    send(harness, 1)
    worker = harness.worker(deferring(), balance_seconds=600, **SLOW)
    async with harness.running(worker):
        await harness.until(lambda: pending(harness) == 1)
        code, _ = await asyncio.to_thread(
            command, "flows", "savepoint", "deferring", "now", "--within", "0.1"
        )
        assert code == ExitCode.PROBLEM
        assert harness.rows("select * from fencepost.flow_savepoint") == []


async def test_a_savepoint_of_a_flow_without_workers(harness: FlowHarness, command: Command) -> None:
    send(harness, 2)
    async with harness.running(harness.worker(deferring())):
        await harness.until(lambda: lines(harness) == 2)
    said = await asyncio.to_thread(command, "flows", "savepoint", "deferring", "now")
    assert said == (ExitCode.OK, "now: 1 tasks of deferring.\n")

    _, shown = await asyncio.to_thread(command, "flows", "show", "deferring", "--json")
    assert [kept["savepoint"] for kept in json.loads(shown)["savepoints"]] == ["now"]

    said = await asyncio.to_thread(command, "flows", "savepoint", "deferring", "now", "--drop")

    assert said == (ExitCode.OK, "now of deferring is gone: 1 tasks.\n")
    code, _ = await asyncio.to_thread(command, "flows", "savepoint", "deferring", "now", "--drop")
    assert code == ExitCode.PROBLEM


def listed(harness: FlowHarness, key: str = "out") -> list[str]:
    client: Any = harness.redis
    return list(client.lrange(key, 0, -1))


async def test_messages_with_one_original_id_are_taken_once(harness: FlowHarness) -> None:
    client: Any = harness.redis
    for n, original in ((1, "m-1"), (1, "m-1"), (2, "m-2")):
        client.xadd("in", {"data": f'{{"n": {n}}}', "x-original-message-id": original})
    client.xadd("in", {"data": '{"n": 3}'})
    read = Flow("by-id").source(RedisStreams("in", with_id=True)).json()
    flow = read.sink(RedisIdempotentList("out", ttl_seconds=600))

    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: listed(harness)[-1:] == ['{"n":3}'])
    assert listed(harness) == ['{"n":1}', '{"n":2}', '{"n":3}']


async def test_messages_of_the_outbox_with_one_original_id_are_taken_once(harness: FlowHarness) -> None:
    original = {"x-original-message-id": "m-1"}
    await harness.fp.run(outbox.put("c", {"n": 1}, headers=original))
    await harness.fp.run(outbox.put("c", {"n": 1}, headers=original))
    await harness.fp.run(outbox.put("c", {"n": 1}))
    flow = (
        Flow("by-id")
        .source(OutboxChannel("c", with_id=True))
        .sink(RedisIdempotentList("out", ttl_seconds=600))
    )

    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: len(listed(harness)) >= 2)
        await harness.fp.run(outbox.put("c", {"n": 2}))
        await harness.until(lambda: listed(harness)[-1:] == ['{"n":2}'])
    assert listed(harness) == ['{"n":1}', '{"n":1}', '{"n":2}']


async def test_a_repeat_after_the_time_to_live_changes_nothing(harness: FlowHarness) -> None:
    """A task that is down for longer than ids are remembered: the frontier keeps the repeat out."""
    flow = (
        Flow("down")
        .source(IterableSource(list(range(5))))
        .map(lambda n: IdempotentRecord(str(n), n))
        .sink(RedisIdempotentList("out", ttl_seconds=60))
    )
    with crash_at("flows.commit.before_flag"), pytest.raises(PlannedCrash):
        await harness.run(flow)
    client: Any = harness.redis
    assert client.delete("fencepost:seen:{out}") == 1

    await harness.run(flow)

    assert listed(harness) == ["0", "1", "2", "3", "4"]


async def test_documents_with_an_id_and_a_value_are_documents(harness: FlowHarness) -> None:
    """Readings of one sensor, which have no common id."""
    readings = [{"id": "s1", "value": 20}, {"id": "s1", "value": 21}]
    flow = Flow("readings").source(IterableSource(readings))
    await harness.run(flow.sink(RedisIdempotentList("out", ttl_seconds=600)))

    assert listed(harness) == ['{"id":"s1","value":20}', '{"id":"s1","value":21}']


def test_a_record_comes_out_of_a_checkpoint_as_it_was() -> None:
    from fencepost.flows._value_codec import pack, unpack

    stored = unpack(pack(IdempotentRecord("a", {"n": 1})))

    assert as_record(stored, CheckpointId("r", 1, 1), 0) == IdempotentRecord("a", {"n": 1})


async def test_rows_of_prepared_transactions_do_not_pile_up(harness: FlowHarness) -> None:
    flow = Flow("marked").source(IterableSource(list(range(40))))
    rows = TwoPhasePostgres(harness.database.admin_url, "line", ["value"])
    await harness.run(flow.sink(rows), batch=5, records_max=5)

    assert lines(harness) == 40
    assert len(harness.rows("select number from fencepost.checkpoint where status = 'committed'")) > 1
    assert len(harness.rows("select gid from fencepost_prepared")) == 1
