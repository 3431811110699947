"""What operators do to a flow: look, drain, keep a savepoint, restore it; and what its metrics say."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.errors import Duplicate, InFlight, InvalidInput, NotFound
from fencepost.flows import Flow
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._plan import FlowPlan
from fencepost.flows._units import shape
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sinks.redis import RedisSink
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.kernel import _checkpoint as checkpoint
from fencepost.kernel import lease
from fencepost.kernel.call import Json
from fencepost.metrics import Metrics
from tests.integration.flows.harness import HURRY, Command, FlowHarness

BOUNDED = """
from fencepost.flows import Flow, IterableSource
from fencepost.flows.sinks.postgres import PostgresRows
flow = Flow("bounded").source(IterableSource(list(range(10)))).sink(PostgresRows("line", ["value"]))
"""
FIVE_COMMITS = {"FLOW_BATCH": "2", "FLOW_CHECKPOINT_RECORDS": "2", "FLOW_CHECKPOINT_INTERVAL_SEC": "600"}
MAIN = "from fencepost.cli._app import main; main()"


def totals(groups: int | None = None) -> Flow:
    numbers = Flow("totals").source(RedisStreams("in")).json()
    keyed = numbers.key_by(lambda n: str(n % 3), groups=groups)
    return keyed.count().sink(PostgresUpsert("total", ["key"], ["value"]))


def send(harness: FlowHarness, count: int) -> None:
    for n in range(count):
        harness.redis.xadd("in", {"data": str(n)})


def counted(harness: FlowHarness) -> int:
    return int(harness.rows("select coalesce(sum(value), 0) from total")[0][0])


async def test_a_savepoint_brings_a_flow_back(harness: FlowHarness, command: Command) -> None:
    send(harness, 30)
    async with harness.running(harness.worker(totals())):
        await harness.until(lambda: counted(harness) == 30)
        code, said = await asyncio.to_thread(command, "flows", "savepoint", "totals", "early")
        assert (code, said) == (ExitCode.OK, "early: 1 tasks of totals.\n")
        send(harness, 30)
        await harness.until(lambda: counted(harness) == 60)
        with pytest.raises(InFlight):
            await harness.fp.run(flow_store.restore("totals", "early"))
        assert (await asyncio.to_thread(command, "flows", "drain", "totals"))[0] == ExitCode.OK
        assert (await asyncio.to_thread(command, "flows", "restore", "totals", "early"))[0] == ExitCode.OK
        harness.rows("update total set value = 0 returning key")
        await asyncio.to_thread(command, "flows", "drain", "totals", "--undo")

        await harness.until(lambda: counted(harness) == 60)


async def test_the_client_keeps_and_restores_drains_and_resumes(harness: FlowHarness) -> None:
    send(harness, 6)
    flows = harness.fp.flows
    async with harness.running(harness.worker(totals())):
        await harness.until(lambda: counted(harness) == 6)
        assert await flows.savepoint("totals", "early", within=timedelta(seconds=60)) == 1
        await flows.drain("totals")
    assert harness.rows("select draining_at is not null from fencepost.flows") == [(True,)]
    assert await flows.restore("totals", "early") >= 1
    await flows.resume("totals")
    assert harness.rows("select draining_at is not null from fencepost.flows") == [(False,)]
    with pytest.raises(NotFound):
        await flows.restore("totals", "late")
    with pytest.raises(InvalidInput, match="within is -1"):
        await flows.savepoint("totals", "late", within=-1)


async def test_a_savepoint_of_key_groups(harness: FlowHarness) -> None:
    send(harness, 30)
    flow = totals(groups=4)
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: counted(harness) == 30)
        assert await harness.fp.run(flow_store.save("totals", "early")) == 4
        with pytest.raises(Duplicate):
            await harness.fp.run(flow_store.save("totals", "early"))
        send(harness, 30)
        await harness.until(lambda: counted(harness) == 60)
    await harness.fp.run(flow_store.restore("totals", "early"))
    harness.rows("update total set value = 0 returning key")
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: counted(harness) == 60)


async def test_a_savepoint_contains_the_groups_that_have_committed_nothing(harness: FlowHarness) -> None:
    """On a busy machine a group may not have committed yet when others have."""
    flow = totals(groups=4)
    owner = "a/boot-1"
    plan = {"shape": shape(FlowPlan(flow))}
    edition = await harness.fp.run(flow_store.register("totals", plan, owner))
    held = await harness.fp.run(lease.acquire("flow:totals/group/0002", owner, 60))
    mark = {"in:in": {"at": "0-1", "watermark": None, "ended": False, "count": 0}}
    committed = flow_store.commit(
        held.resource, held.token, expected=None, frontier=mark, state=None, whole=True, edition=edition
    )
    await harness.fp.run(committed)

    assert await harness.fp.run(flow_store.save("totals", "early")) == 4

    kept = harness.rows("select resource, number, frontier from fencepost.flow_savepoint order by resource")
    assert [row[:2] for row in kept] == [
        (f"flow:totals/group/000{group}", 1 if group == 2 else 0) for group in range(4)
    ]
    assert [row[2] for row in kept] == [{}, {}, mark, {}]
    await harness.fp.run(lease.release(held))
    await harness.fp.run(flow_store.restore("totals", "early"))
    restored = {each.resource: each.frontier for each in await harness.fp.run(flow_store.frontiers("totals"))}
    assert [restored[row[0]] for row in kept] == [{}, {}, mark, {}]
    send(harness, 30)
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: counted(harness) == 30)


@pytest.mark.parametrize(
    ("units", "tasks"),
    [
        ({"units": "all", "groups": None}, ["all"]),
        ({"units": "parts", "groups": None}, ["part/a:0", "part/b:0"]),
    ],
    ids=["all", "parts"],
)
async def test_a_savepoint_contains_every_task_of_the_flow(
    harness: FlowHarness, units: dict[str, Json], tasks: list[str]
) -> None:
    owner = "a/boot-1"
    plan = {"shape": {**units, "senders": {"a:0": None, "b:0": None}}}
    edition = await harness.fp.run(flow_store.register("whole", plan, owner))
    held = await harness.fp.run(lease.acquire(f"flow:whole/{tasks[0]}", owner, 60))
    call = flow_store.commit(
        held.resource, held.token, expected=None, frontier={}, state=None, whole=True, edition=edition
    )
    await harness.fp.run(call)

    assert await harness.fp.run(flow_store.save("whole", "early")) == len(tasks)

    kept = harness.rows("select resource, number from fencepost.flow_savepoint order by resource")
    assert kept == [(f"flow:whole/{task}", 0 if place else 1) for place, task in enumerate(tasks)]


async def test_what_is_not_there_is_not_restored(harness: FlowHarness, command: Command) -> None:
    with pytest.raises(NotFound):
        await harness.fp.run(flow_store.restore("totals", "early"))
    assert (await asyncio.to_thread(command, "flows", "show", "totals"))[0] == ExitCode.NOT_FOUND


async def test_a_flow_that_was_never_started_is_neither_drained_nor_asked(harness: FlowHarness) -> None:
    with pytest.raises(NotFound):
        await harness.fp.run(flow_store.drain("totals", draining=True))
    with pytest.raises(NotFound):
        await harness.fp.run(flow_store.ask("totals"))


async def test_tasks_are_shown_with_their_frontiers(harness: FlowHarness, command: Command) -> None:
    send(harness, 3)
    async with harness.running(harness.worker(totals())):
        await harness.until(lambda: counted(harness) == 3)
        _, listed = await asyncio.to_thread(command, "flows", "list", "--json")
        _, shown = await asyncio.to_thread(command, "flows", "show", "totals", "--json")

    assert json.loads(listed)["flows"] == [
        {"name": "totals", "tasks": 1, "held": 1, "workers": 1, "savepoints": 0, "draining": False}
    ]
    [task] = json.loads(shown)["tasks"]
    last: Any = harness.redis.xrevrange("in", count=1)
    assert task["frontier"]["in:in"]["at"] == last[0][0]


def test_a_bounded_flow_runs_from_the_command_line(
    database: Database, redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "bounded.py").write_text(BOUNDED)

    done = subprocess.run(
        [sys.executable, "-c", MAIN, "flows", "run", "bounded", "--until-done"],
        cwd=tmp_path,
        env={**os.environ, **FIVE_COMMITS, "DATABASE_URL": database.url, "REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == ExitCode.OK, done.stderr
    assert "runs bounded: 1 tasks, exactly-once" in done.stdout
    with database.connect_admin() as connection:
        assert connection.execute("select count(*) from line").fetchall() == [(10,)]
        [(commits,)] = connection.execute("select max(number) from fencepost.checkpoint").fetchall()
    assert commits >= 5, "it did not listen to its settings"


async def test_a_redis_sink_that_lost_its_newest_writes_makes_the_task_go_back(harness: FlowHarness) -> None:
    flow = Flow("back").source(RedisStreams("in")).json().sink(RedisSink("list", "out"))
    client: Any = harness.redis

    def taken() -> list[int]:
        return [int(value) for value in client.lrange("out", 0, -1)]

    frontier = "fencepost:frontier:{out}"
    async with harness.running(harness.worker(flow)):
        send(harness, 5)
        await harness.until(lambda: len(taken()) == 5)
    older = client.hgetall(frontier)
    async with harness.running(harness.worker(flow)):
        client.xadd("in", {"data": "100"})
        await harness.until(lambda: len(taken()) == 6)
        client.xadd("in", {"data": "101"})
        await harness.until(lambda: len(taken()) == 7)
    # As after a restart without the last seconds: list and frontier are back where they were together.
    client.ltrim("out", 0, 4)
    client.hset(frontier, mapping=older)

    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: len(taken()) == 7)
    assert taken() == [0, 1, 2, 3, 4, 100, 101]


async def test_metrics_tell_what_a_flow_does(harness: FlowHarness) -> None:
    metrics = Metrics()
    worker = FlowWorker(
        harness.fp, totals(), redis_url=harness.redis_url, settings=HURRY, metrics=FlowMetrics.on(metrics)
    )

    def figure(name: str) -> float:
        return metrics.registry.get_sample_value(f"fencepost_flow_{name}", {"flow": "totals"}) or 0

    send(harness, 30)
    async with harness.running(worker):
        await harness.until(lambda: figure("records_total") == 30 and figure("sink_values_total") >= 3)
        assert figure("commits_total") >= 1
        assert figure("checkpoint_bytes_count") >= 1
        assert figure("tasks") == 1


async def test_a_commit_counts_as_made_though_the_next_one_waits_for_its_sinks(harness: FlowHarness) -> None:
    """With a slow sink there is always one that waits."""
    resource = "flow:slow/one"
    edition = await harness.fp.run(flow_store.register("slow", {}, "a/boot-1"))
    held = await harness.fp.run(lease.acquire(resource, "a/boot-1", 60))

    async def stored(after: Json, frontier: Json) -> int:
        number = await harness.fp.run(checkpoint.begin(resource, held.token, handles=[]))
        call = flow_store.store(
            resource,
            held.token,
            number,
            expected=after,
            frontier=frontier,
            state=None,
            handles=[],
            whole=True,
            edition=edition,
        )
        await harness.fp.run(call)
        return number

    asked_at = await harness.fp.run(flow_store.ask("slow"))
    first = await stored(None, {"in": 1})
    assert await harness.fp.run(flow_store.unanswered("slow", asked_at)) == [resource]
    await harness.fp.run(checkpoint.commit(resource, held.token, first))
    await stored({"in": 1}, {"in": 2})

    assert await harness.fp.run(flow_store.unanswered("slow", asked_at)) == []
