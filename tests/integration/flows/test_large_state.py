"""State beyond one commit and beyond memory: in parts in the database, and on the worker's disk."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.errors import InvalidInput, NotFound, NotOwner
from fencepost.flows import Flow
from fencepost.flows import _committer as committer_module
from fencepost.flows import _flow_store as flow_store
from fencepost.flows import _parts as parts_module
from fencepost.flows import _regroup as regroup_module
from fencepost.flows import _savepoint_request as savepoint_request
from fencepost.flows import _segments as segments_module
from fencepost.flows import _spill as spill_module
from fencepost.flows._parts import Part
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.kernel import lease
from fencepost.testing import crash_at
from tests.integration.flows.harness import FlowHarness

KEYS = 150
PARTS = "select count(*)::int from fencepost.flow_part"
LOSE_LEASE = "update fencepost.lease set token = token + 1, owner = null returning resource"
LACKING = """
    select resource from (
      select resource, unnest(parts) as hash from fencepost.flow_state
      union all select resource, unnest(parts) from fencepost.flow_savepoint) n
    where not exists (select 1 from fencepost.flow_part p where p.resource = n.resource and p.hash = n.hash)
"""
WINDOWS = [
    "flows.commit.before_fence",
    "flows.commit.between_parts",
    "flows.commit.after_fence",
    "flows.commit.before_commit",
    "flows.commit.after_commit",
    "flows.prune.before",
    "flows.prune.after",
]


def counted(state: int | None, event: dict[str, Any]) -> tuple[int | None, list[Any]]:
    count = (state or 0) + 1
    return (None, [(event["key"], 0)]) if event["forget"] else (count, [(event["key"], count)])


def flow(groups: int | None = None, sink: Any = None) -> Flow:
    by_key = Flow("large").source(RedisStreams("in")).json().key_by(lambda e: e["key"], groups=groups)
    counts = by_key.stateful(counted, name="counts")
    return counts.sink(sink or PostgresUpsert("total", ["key"], ["value"]))


@pytest.fixture(params=["in memory", "on disk"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Settings of a worker for which a hundred keys are a large state."""
    shrink(monkeypatch)
    return {} if request.param == "in memory" else {"state_dir": str(tmp_path), "state_memory_mb": 1}


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (committer_module, savepoint_request):
        monkeypatch.setattr(module, "INLINE_BYTES_MAX", 200)
    monkeypatch.setattr(regroup_module, "PART_BYTES", 256)
    monkeypatch.setattr(regroup_module, "INLINE_SEGMENT_BYTES_MAX", 200)
    monkeypatch.setattr(committer_module, "WHOLE_BYTES_MIN", 1_000)
    monkeypatch.setattr(committer_module, "CHANGE_BYTES", 100)
    monkeypatch.setattr(committer_module, "PRUNE_COMMITS", 2)
    monkeypatch.setattr(parts_module, "PART_BYTES", 256)
    monkeypatch.setattr(segments_module, "INLINE_SEGMENT_BYTES_MAX", 200)
    for module in (segments_module, spill_module):
        monkeypatch.setattr(module, "BUCKETS", 16)
    monkeypatch.setattr(spill_module, "CHANGE_BYTES", 100)
    monkeypatch.setattr(spill_module, "KEYS_MIN", 10)


class Load:
    """Events, and the totals that they make."""

    def __init__(self, harness: FlowHarness) -> None:
        self._harness = harness
        self.expected: Counter[str] = Counter()
        self._sent = 0

    def send(self, count: int) -> None:
        client: Any = self._harness.redis
        pipe = client.pipeline()
        for number in range(self._sent, self._sent + count):
            key, forget = f"k{number * 7 % KEYS}", number % 11 == 7
            self.expected[key] = 0 if forget else self.expected[key] + 1
            pipe.xadd("in", {"data": json.dumps({"key": key, "forget": forget})})
        self._sent += count
        pipe.execute()

    def is_done(self) -> bool:
        return dict(self._harness.rows("select key, value from total")) == self.expected

    async def done(self, count: int = 60) -> None:
        self.send(count)
        await self._harness.until(self.is_done)


def assert_tidy(harness: FlowHarness) -> None:
    """Every part that is named is there. What nothing names goes with the next look for it."""
    assert harness.rows(LACKING) == []


async def test_a_state_of_many_parts_is_restored(harness: FlowHarness, place: dict[str, Any]) -> None:
    load = Load(harness)
    for _ in range(3):
        async with harness.running(harness.worker(flow(), **place)):
            for _ in range(8):
                await load.done(40)
        assert_tidy(harness)

    [(size,)] = harness.rows("select state_bytes from fencepost.flow_frontiers('large')")
    assert size > 100
    assert harness.rows(PARTS)[0][0] > 0


async def test_parts_that_nothing_names_are_deleted(harness: FlowHarness, place: dict[str, Any]) -> None:
    load = Load(harness)
    async with harness.running(harness.worker(flow(), **place)):
        for _ in range(30):
            await load.done(30)
        most = harness.rows(PARTS)[0][0]
        for _ in range(30):
            await load.done(30)

    assert harness.rows(PARTS)[0][0] < 2 * most + 20
    assert harness.rows("select count(*)::int from fencepost.checkpoint")[0][0] < 60
    assert_tidy(harness)


@pytest.mark.parametrize("window", WINDOWS)
async def test_a_task_that_ends_anywhere_in_a_commit_loses_nothing(
    harness: FlowHarness, place: dict[str, Any], window: str
) -> None:
    load = Load(harness)
    async with harness.running(harness.worker(flow(), **place)):
        await load.done()
    for nth in (1, 2, 3):
        load.send(60)
        sender = asyncio.create_task(sending(load))
        with crash_at(window, nth=nth), pytest.raises(PlannedCrash):
            await harness.worker(flow(), **place).run()
        sender.cancel()
        assert_tidy(harness)
    async with harness.running(harness.worker(flow(), **place)):
        await load.done()

    assert_tidy(harness)


async def sending(load: Load) -> None:
    """Give the worker more to commit, until it ends."""
    while True:
        load.send(5)
        await asyncio.sleep(0.05)


async def test_a_task_changes_between_memory_and_disk(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shrink(monkeypatch)
    load, disk = Load(harness), {"state_dir": str(tmp_path), "state_memory_mb": 1}
    for place in ({}, disk, disk, {}, {}, disk):
        async with harness.running(harness.worker(flow(), **place)):
            await load.done()
            await load.done()

    assert_tidy(harness)


async def test_a_savepoint_keeps_its_parts_as_long_as_it_is_kept(
    harness: FlowHarness, place: dict[str, Any]
) -> None:
    load = Load(harness)
    async with harness.running(harness.worker(flow(), **place)):
        for _ in range(6):
            await load.done()
        await harness.fp.flows.savepoint("large", "then")
        then = Counter(load.expected)
        for _ in range(12):
            await load.done()
    assert_tidy(harness)

    await harness.fp.flows.restore("large", "then")
    assert_tidy(harness)
    async with harness.running(harness.worker(flow(), **place)):
        await load.done()
    # What came after the savepoint is read again from its place.
    assert then != load.expected

    await harness.fp.run(flow_store.drop("large", "then"))
    assert_tidy(harness)
    async with harness.running(harness.worker(flow(), **place)):
        for _ in range(8):
            await load.done()
    assert_tidy(harness)


async def test_a_worker_that_lost_its_task_can_not_write_or_delete_a_part(harness: FlowHarness) -> None:
    held = await harness.fp.run(lease.acquire("flow:large/all", "first", 60))
    assert held is not None
    assert harness.rows(LOSE_LEASE)
    part = Part.of(b"of a zombie")
    resource, token = held.resource, held.token
    calls: list[Any] = [
        flow_store.put_part(resource, token, part),
        flow_store.name_parts(resource, token, 1, None, []),
        flow_store.prune(resource, token, 1),
        flow_store.restore_task(resource, token),
    ]
    for call in calls:
        with pytest.raises(NotOwner):
            await harness.fp.run(call)
    assert harness.rows(PARTS) == [(0,)]


async def test_a_commit_names_only_parts_that_are_there(harness: FlowHarness) -> None:
    held = await harness.fp.run(lease.acquire("flow:large/all", "first", 60))
    assert held is not None
    resource, token = held.resource, held.token
    await harness.fp.run(flow_store.register("large", {}, "first"))
    part = Part.of(b"some state")
    with pytest.raises(NotFound):
        await commit_naming(harness, resource, token, part)
    assert harness.rows("select * from fencepost.checkpoint") == []
    with pytest.raises(NotFound):
        await harness.fp.run(flow_store.name_parts(resource, token, 7, None, []))
    for wrong in (Part(part.hash, b"other state"), Part(b"short", part.content)):
        with pytest.raises(InvalidInput):
            await harness.fp.run(flow_store.put_part(resource, token, wrong))
    with pytest.raises(InvalidInput):
        await harness.fp.run(flow_store.offer_part("other", resource, part))

    await harness.fp.run(flow_store.put_part(resource, token, part))
    await commit_naming(harness, resource, token, part)
    [found] = await harness.fp.run(flow_store.restore_task(resource, token))
    assert (found.parts, found.state_bytes) == ([part.hash], len(part.content))


async def commit_naming(harness: FlowHarness, resource: str, token: int, part: Part) -> None:
    async with harness.fp.transaction() as tx:
        number = await tx.run(committed(resource, token))
        await tx.run(flow_store.name_parts(resource, token, number, None, [part.hash]))


def committed(resource: str, token: int) -> Any:
    return flow_store.commit(resource, token, expected=None, frontier={}, state=None, whole=True, edition=1)


@pytest.mark.parametrize("groups", [2, 5])
async def test_the_number_of_groups_of_a_large_state_changes(
    harness: FlowHarness, place: dict[str, Any], groups: int
) -> None:
    load = Load(harness)
    async with harness.running(harness.worker(flow(3), **place)):
        for _ in range(6):
            await load.done()
        await harness.fp.flows.savepoint("large", "before")
    await harness.fp.flows.regroup("large", "before", groups)
    assert_tidy(harness)
    async with harness.running(harness.worker(flow(groups), **place)):
        for _ in range(6):
            await load.done()
    assert_tidy(harness)
    await harness.fp.run(flow_store.drop("large", "before"))
    assert_tidy(harness)
