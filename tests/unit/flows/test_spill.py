"""State on disk against the same state in memory: whatever comes, and wherever a task begins again."""

import asyncio
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.flows import (
    Flow,
    IterableSource,
    ListSink,
    Session,
    StartRefused,
    StateDamaged,
    StateDiskFailed,
    StateMismatch,
    TableSink,
    Tumbling,
)
from fencepost.flows import _segments as segments_module
from fencepost.flows import _spill as spill_module
from fencepost.flows._plan import FlowPlan, KeyedStage, SourceStage
from fencepost.flows._segments import BUCKETS, SegmentChain, bucket_of, packed_key
from fencepost.flows._spill import Spill
from fencepost.flows._state import decode, encode
from fencepost.flows._value_codec import Unstorable

# These tests look at what is in memory and on the disk, which no step sees.
# pyright: reportPrivateUsage=false

Event = tuple[int, float, int]
"""Key, time and what to do: 0 forgets the key."""


def counted(state: int | None, event: Event) -> tuple[int | None, list[Any]]:
    count = (state or 0) + 1
    return (None, [(event[0], 0)]) if event[2] == 0 else (count, [(event[0], count)])


def plain(version: int = 1, migrations: Any = None) -> Flow:
    events = Flow("spilled", migrations=migrations or {}).source(IterableSource([], name="in"))
    by_key = events.event_time(lambda e: e[1], allowed_lateness=3).key_by(lambda e: (e[0], "k"))
    totals = by_key.sum(lambda e: e[2], name="sums").sink(TableSink())
    states = by_key.stateful(counted, name="counts", version=version).sink(ListSink())
    once = by_key.dedup(lambda e: e[2], ttl=5, name="once").sink(ListSink())
    windows = by_key.window(Tumbling(4)).count(name="windows").sink(ListSink())
    sessions = by_key.window(Session(2)).sum(lambda e: e[2], name="sessions").sink(ListSink())
    return totals.also(states, once, windows, sessions)


class Checkpoints:
    """The checkpoints of one task as a database would keep them, in order, and their parts."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, bytes, list[bytes]]] = []
        self.parts: dict[bytes, bytes] = {}
        self._rolls = False

    def commit(self, stage: KeyedStage) -> None:
        number = self.rows[-1][0] + 1 if self.rows else 1
        since: int | None = None
        if stage.spill is not None:
            document, parts = stage.spilled(stage.spill)
            since = stage.spill.since
            assert (since is None) >= (not self.rows), "the first commit begins with itself"
        else:
            whole = not self.rows or stage.was_spilled or self._rolls
            document, parts = stage.whole() if whole else stage.changed(), []
            since = None if whole else self.rows[0][0]
        self._rolls = stage.spill is not None
        self.parts |= {part.hash: part.content for part in parts}
        self.rows.append((number, encode(document), [part.hash for part in parts]))
        self.rows = [row for row in self.rows if row[0] >= (since or number)]
        stage.clean()
        if stage.spill is not None:
            stage.spill.committed(number)

    async def part(self, digest: bytes) -> bytes | None:
        return self.parts.get(digest)

    async def restore(self, stage: KeyedStage) -> None:
        for number, state, parts in self.rows:
            document = decode(state).body
            assert document is not None
            await stage.apply(document, number, parts)
        await stage.complete(self.part)
        stage.clean()


RUNS: "list[Run]" = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while RUNS:
        RUNS.pop().close()


class Run:
    """A flow over events: commits, and tasks that begin again, on disk or in memory."""

    def __init__(self, directory: str, spills: Callable[[], bool], flow: Flow | None = None) -> None:
        self.program = FlowPlan(flow or plain())
        self.checkpoints = Checkpoints()
        self._directory = directory
        self._spills = spills
        self._head = SourceStage(self.program, self.program.sources[0])
        self.emitted: list[list[Any]] = []
        self.stage = self.begun()
        RUNS.append(self)

    def begun(self) -> KeyedStage:
        spill = Spill(self._directory, 1) if self._spills() else None
        return KeyedStage(self.program, senders=1, spill=spill)

    async def feed(self, events: list[Event]) -> None:
        for number, records in await self._head.feed(events):
            await self.stage.push("in", number, records)
        await self.stage.advance(self._head.watermark)
        await self.stage.flush()
        self.emitted.append([sorted(map(repr, outputs)) for outputs in self.stage.take()])
        self.checkpoints.commit(self.stage)

    def close(self) -> None:
        if self.stage.spill is not None:
            self.stage.spill.close()

    async def begin_again(self) -> None:
        self.close()
        self.stage = self.begun()
        await self.checkpoints.restore(self.stage)

    def state(self) -> dict[str, dict[Any, Any]]:
        found = {name: dict(state.values.items()) for name, state in self.stage._states().items()}
        return {name: values for name, values in found.items() if values}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


def shrink(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Few buckets and little memory, so that a short run rolls through all of it."""
    for module in (segments_module, spill_module):
        monkeypatch.setattr(module, "BUCKETS", 8)
    sizes = {"CHANGE_BYTES": 20, "BASE_BYTES": 1, "KEYS_MIN": 2, **changes}
    for name, value in sizes.items():
        monkeypatch.setattr(spill_module, name, value)
    monkeypatch.setattr(segments_module, "INLINE_SEGMENT_BYTES_MAX", 300)
    monkeypatch.setattr("fencepost.flows._parts.PART_BYTES", 200)


events = st.tuples(st.integers(0, 12), st.floats(0, 30).map(lambda t: round(t, 1)), st.integers(0, 3))
turns = st.lists(st.tuples(st.lists(events, max_size=12), st.booleans()), min_size=1, max_size=12)


async def compared(directory: str, given_turns: Any, modes: Iterator[bool]) -> None:
    disk, memory = Run(directory, lambda: next(modes)), Run(directory, lambda: False)
    for some, again in given_turns:
        for run in (disk, memory):
            await run.feed(some)
        assert disk.emitted == memory.emitted
        if again:
            for run in (disk, memory):
                await run.begin_again()
        assert disk.state() == memory.state()
    await disk.begin_again()
    assert disk.state() == memory.state()
    disk.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)
@given(turns, st.lists(st.booleans(), min_size=14, max_size=14))
def test_state_on_disk_is_that_in_memory(small: None, given_turns: Any, modes: list[bool]) -> None:
    """The first task keeps it on disk; the ones after it as they like."""
    with TemporaryDirectory() as directory:
        asyncio.run(compared(directory, given_turns, iter([True, *modes])))
        assert list(Path(directory).iterdir()) == []


LONG = [
    ([(n * turn % 13, turn + n / 10, (n + turn) % 4) for n in range(10)], turn % 5 == 4) for turn in range(40)
]


async def test_a_long_run_rolls_through_all_buckets(small: None, tmp_path: Path) -> None:
    run = Run(str(tmp_path), lambda: True)
    lengths: list[int] = []
    for some, _ in LONG:
        await run.feed(some)
        lengths.append(len(run.checkpoints.rows))

    assert max(lengths) < 20, "what older checkpoints have was stored again, so they are not read any more"
    await compared(str(tmp_path), LONG, iter([True] * 50))


@pytest.mark.parametrize("pattern", ["dm", "ddm", "dmm", "dddmmd"])
async def test_tasks_on_disk_and_in_memory_follow_each_other(
    small: None, tmp_path: Path, pattern: str
) -> None:
    modes = iter([mode == "d" for mode in pattern * 10])
    again = [(some, number % 2 == 1) for number, (some, _) in enumerate(LONG[:30])]
    await compared(str(tmp_path), again, modes)


async def test_little_of_a_large_state_is_in_memory(small: None, tmp_path: Path) -> None:
    run = Run(str(tmp_path), lambda: True)
    for first in range(0, 400, 20):
        await run.feed([(number, 1.0, 1) for number in range(first, first + 20)])
        assert run.stage.spill is not None
        for _, _, values in run.stage.spill._states:
            assert values.in_memory_count() <= 20

    assert len(run.state()["sums/value"]) == 400


@pytest.mark.parametrize("broken", ["base kept", "change lost", "removal lost", "since too late"])
async def test_the_comparison_has_teeth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str) -> None:
    shrink(monkeypatch)
    match broken:
        case "base kept":
            # A base is taken for a change of an older one.
            take = segments_module.SegmentChain.add

            def add(self: SegmentChain, number: int, found: Any, *rest: Any) -> None:
                take(self, number, [each for each in found if not each.is_base], *rest)

            monkeypatch.setattr(SegmentChain, "add", add)
        case "change lost":
            lay = segments_module.stored

            def bases_only(_: Any, bases: Any) -> Any:
                return lay([], bases)

            monkeypatch.setattr(spill_module, "stored", bases_only)
        case "removal lost":
            packed: Any = Spill._packed

            def without(*given: Any) -> Any:
                return (pair for pair in packed(*given) if pair[1] is not None)

            monkeypatch.setattr(Spill, "_packed", without)
        case _:
            monkeypatch.setattr(Spill, "since", property(lambda self: max(n for n in self._bases) or None))

    with pytest.raises((AssertionError, KeyError, TypeError)):
        await compared(str(tmp_path), LONG, iter([True] * 50))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (2, 2.0),
        ((1, ("a", 0)), (1.0, ("a", False))),
        (Decimal("1.50"), Decimal("1.5")),
        (Decimal(3), 3),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_equal_keys_are_one_key_on_disk(one: Any, other: Any) -> None:
    assert one == other
    assert packed_key(one) == packed_key(other)


def test_keys_that_differ_are_two_on_disk() -> None:
    keys: list[Any] = [
        1,
        "1",
        b"1",
        1.5,
        None,
        ("1",),
        (1,),
        ("1", 1),
        2**70,
        -1,
        datetime(2026, 1, 1, tzinfo=UTC),
    ]
    assert len({packed_key(key) for key in keys}) == len(keys)


def test_a_key_without_order_is_refused() -> None:
    with pytest.raises(Unstorable, match="sorted tuple"):
        packed_key(("a", frozenset({1, 2})))


def test_keys_of_one_key_group_are_in_all_buckets() -> None:
    """Key groups are chosen by the lower bits of the same sum."""
    keys = [packed_key(number) for number in range(100_000)]
    of_group = [bucket_of(key) for key in keys if zlib.crc32(key) % 4 == 1]
    assert len(set(of_group)) == BUCKETS


async def stopped_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run that has committed, of a flow that looks nothing up when it begins."""
    shrink(monkeypatch)
    monkeypatch.setattr(segments_module, "INLINE_SEGMENT_BYTES_MAX", 0)
    by_key = Flow("looks").source(IterableSource([], name="in")).key_by(lambda e: e[0])
    run = Run(str(tmp_path), lambda: True, by_key.stateful(counted, name="counts").sink(ListSink()))
    for some, _ in LONG[:10]:
        await run.feed(some)
    return run


async def test_a_part_that_was_damaged_is_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await stopped_at(tmp_path, monkeypatch)
    parts = run.checkpoints.parts
    wanted = run.checkpoints.rows[-1][2][-1]
    parts[wanted] = parts[wanted][:-1] + bytes([parts[wanted][-1] ^ 1])

    with pytest.raises(StateDamaged, match=wanted.hex()):
        await run.begin_again()
    del parts[wanted]
    with pytest.raises(StateDamaged, match="is gone"):
        await run.begin_again()


async def test_a_full_disk_stops_the_task_and_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await stopped_at(tmp_path, monkeypatch)
    assert run.stage.spill is not None
    run.stage.spill._rows.execute("pragma max_page_count = 1")
    many = [(key, 1.0, 1) for key in range(2_000)]

    with pytest.raises(StateDiskFailed, match=r"is full\. The task stops and loses nothing"):
        await run.feed(many)
    # From then on it answers nothing: what it could not store would be missing.
    with pytest.raises(StateDiskFailed):
        run.state()
    await run.begin_again()
    assert len(run.checkpoints.rows) < 20


async def test_a_disk_that_fails_while_buckets_are_brought_leaves_none_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await stopped_at(tmp_path, monkeypatch)
    await run.begin_again()
    assert run.stage.spill is not None

    def fails(spill: Spill, *_: Any) -> None:
        with spill.disk():
            raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Spill, "_apply", fails)
        await run.stage.fill()
    with pytest.raises(StateDiskFailed, match="disk I/O error"):
        run.state()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="FLOW_STATE_DIR"):
        Spill(str(tmp_path / "none"), 1)


async def test_state_on_disk_is_migrated_bucket_by_bucket(small: None, tmp_path: Path) -> None:
    run = Run(str(tmp_path), lambda: True)
    for some, _ in LONG[:12]:
        await run.feed(some)
    before = run.state()["counts/value"]

    def migrated(version: int, pairs: list[Any]) -> list[Any]:
        assert version == 1
        return [[key, {"count": count}] for key, count in pairs]

    run.program = FlowPlan(plain(2, {"counts": migrated}))
    await run.begin_again()
    assert run.state()["counts/value"] == {key: {"count": count} for key, count in before.items()}
    # What is stored from now on is of the new version, and what was stored before is migrated as it is read.
    run.checkpoints.commit(run.stage)
    await run.begin_again()
    assert run.state()["counts/value"] == {key: {"count": count} for key, count in before.items()}

    def renamed(_: int, pairs: list[Any]) -> list[Any]:
        return [[("other", key), count] for key, count in pairs]

    run.program = FlowPlan(plain(3, {"counts": renamed}))
    with pytest.raises(StateMismatch, match="changes keys"):
        await run.begin_again()
