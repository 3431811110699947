"""State with an index by time: results by definition, and work by what changes, not by what there is."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.flows import ListSink, Session, Tumbling
from fencepost.flows._errors import StateMismatch
from fencepost.flows._graph import KeyedStream
from fencepost.flows._keyed_steps import Dedup, StatefulMap
from fencepost.flows._record import Record
from fencepost.flows._state import KeyedState
from fencepost.flows._steps import Step
from fencepost.flows._time_index import Deadlines, Expiry
from fencepost.flows._window_steps import SessionFold, WindowFold, WindowJoin
from fencepost.testing import check_flow, run_flow
from tests.unit.flows import window_reference as reference
from tests.unit.flows.test_lateness import disordered, keyed, stream, way

CASES = 300
LIVE = 20_000
BATCH = 50


# Results.


def remembered(events: list[reference.Event], lateness: float, ttl: int) -> list[int]:
    """Which records are the first of their key: no other came within the time to live before it."""
    seen: dict[str, int] = {}
    passed: list[int] = []
    for (key, time, number), watermark in zip(events, reference.watermarks(events, lateness), strict=True):
        if key not in seen or max(time, watermark) >= seen[key] + ttl:
            seen[key] = time
            passed.append(number)
    return passed


def counted(events: list[reference.Event], lateness: float, ttl: int) -> list[int]:
    """How many records of its key there were without a pause of the time to live, for each record."""
    state: dict[str, tuple[int, int]] = {}
    counts: list[int] = []
    for (key, time, _), watermark in zip(events, reference.watermarks(events, lateness), strict=True):
        count, touched = state.get(key, (0, 0))
        count = 1 if max(time, watermark) >= touched + ttl else count + 1
        state[key] = count, max(time, touched)
        counts.append(count)
    return counts


def count_up(state: int | None, event: Any) -> tuple[int, list[tuple[str, int, int]]]:
    return (state or 0) + 1, [(event[0], event[1], (state or 0) + 1)]


def test_a_time_to_live_is_what_its_definition_says_whatever_the_batches() -> None:
    """A window behind the step takes records behind the watermark: they must meet what a replay meets."""
    for seed in range(CASES):
        chance = random.Random(f"ttl-{seed}")  # noqa: S311
        events, lateness, ttl = disordered(chance), chance.choice((0, 3)), chance.choice((1, 5, 12))
        # The windows of 0 to 1000 never close before the end, so nothing is late.
        never = Tumbling(1000)
        first, counts = ListSink(), ListSink()
        by_key = keyed(stream(lateness=lateness))
        deduped = by_key.dedup(lambda _: 0, ttl=ttl).window(never).fold(list[int], _number)
        running = by_key.stateful(count_up, ttl=ttl).window(never).fold(list[int], _number)
        flow = deduped.sink(first).also(running.sink(counts))

        outcome = run_flow(flow, {"in": events}, **way(chance))

        passed = sorted(number for result in outcome.of(first) for number in result.value)
        assert passed == sorted(remembered(events, lateness, ttl)), (seed, events)
        found = sorted(number for result in outcome.of(counts) for number in result.value)
        assert found == sorted(counted(events, lateness, ttl)), (seed, events)


def _number(found: list[int], event: Any) -> list[int]:
    return [*found, event[2]]


def numbers_of(by_key: KeyedStream[Any, Any]) -> dict[str, Any]:
    """Aggregates of sessions, and what each makes of the numbers of its records."""
    sessions = by_key.window(Session(5))
    # The merge of lists has no order: what is compared is their content.
    folded = sessions.fold(list[int], _number, merge=lambda one, two: sorted([*one, *two]))
    aggregates: dict[str, tuple[Any, Callable[[list[int]], Any]]] = {
        "count": (sessions.count(), len),
        "sum": (sessions.sum(lambda event: event[2]), sum),
        "max": (sessions.max(lambda event: event[2]), max),
        "min": (sessions.min(lambda event: event[2]), min),
        "fold": (folded.map(lambda r: r._replace(value=sorted(r.value))), sorted),
    }
    return aggregates


@pytest.mark.parametrize("name", ["count", "sum", "max", "min", "fold"])
def test_merged_sessions_have_what_their_definition_says(name: str) -> None:
    joined = 0
    for seed in range(CASES):
        chance = random.Random(f"{name}-{seed}")  # noqa: S311
        events, lateness = disordered(chance), chance.choice((0, 3, 30))
        stream_, of_numbers = numbers_of(keyed(stream(lateness=lateness)))[name]

        outcome = run_flow(stream_.sink(ListSink()), {"in": events}, **way(chance))
        answer = reference.of_sessions(events, lateness, 5)

        # Sessions that begin and end alike are one in the reference.
        if len(answer.windows) == len(outcome.of()):
            wanted = sorted((*place, of_numbers(numbers)) for place, numbers in answer.windows.items())
            assert sorted((r.key, r.start, r.end, r.value) for r in outcome.of()) == wanted, (seed, events)
            joined += len(outcome.of())
    assert joined > CASES


@pytest.mark.parametrize("kind", ["dedup", "stateful", "session", "join"])
def test_a_crash_changes_nothing(kind: str) -> None:
    chance = random.Random(kind)  # noqa: S311
    events = disordered(chance) + disordered(chance, first=50)
    by_key = keyed(stream())
    streams: dict[str, Any] = {
        "dedup": by_key.dedup(lambda event: event[1] % 2, ttl=4),
        "stateful": by_key.stateful(count_up, ttl=4),
        "session": by_key.window(Session(5)).count(),
        "join": by_key.join(by_key, lambda a, b: (a[2], b[2]), window=Tumbling(10)),
    }

    assert check_flow(streams[kind].sink(ListSink()), {"in": events}, batch=3).of()


def fold_of(merge: Callable[[Any, Any], Any] | None) -> SessionFold:
    step = SessionFold(Session(5), lambda: 0, lambda total, value: total + value, merge)
    step.name = "totals"
    return step


def test_sessions_that_kept_their_values_become_merged_ones() -> None:
    """A checkpoint from before the step had a merge."""
    before, after, sink = fold_of(None), fold_of(lambda one, two: one + two), Taking()
    after.outs.append((sink, 0))

    async def run() -> None:
        await before.push([(1, "a", 10.0, 0), (2, "a", 3.0, 0), (4, "b", 5.0, 0)], 0)
        after.states["sessions"].load([[key, value] for key, value in before.states["sessions"].whole()])
        after.loaded()
        await after.push([(8, "a", 7.0, 0)], 0)
        await after.advance(100.0)

    asyncio.run(run())

    assert [(r[0].key, r[0].start, r[0].end, r[0].value) for r in sink.records] == [
        ("b", 5, 10, 4),
        ("a", 3, 15, 11),
    ]


def test_merged_sessions_are_not_taken_for_kept_ones() -> None:
    before, after = fold_of(lambda one, two: one + two), fold_of(None)
    asyncio.run(before.push([(1, "a", 10.0, 0)], 0))
    after.states["sessions"].load([[key, value] for key, value in before.states["sessions"].whole()])

    with pytest.raises(StateMismatch, match="merge="):
        after.loaded()


def test_a_value_that_a_merged_session_cannot_take_goes_to_errors_and_belongs_to_the_session() -> None:
    results, failures = ListSink(), ListSink()
    sessions = keyed(stream()).window(Session(5)).sum(lambda event: 1 // event[2])
    flow = sessions.sink(results).also(sessions.errors.sink(failures))

    outcome = run_flow(flow, {"in": [("a", 0, 1), ("a", 4, 0), ("b", 5, 0), ("a", 30, 1)]}, restart_every=1)

    assert [(r.key, r.start, r.end, r.value) for r in outcome.of(results)] == [
        ("a", 0, 9, 1),
        ("a", 30, 35, 1),
    ]
    assert [failure.value for failure in outcome.of(failures)] == [("a", 4, 0), ("b", 5, 0)]


# Work.


class Counting(dict[Any, Any]):
    """A dict that counts the keys that are looked at."""

    looks = 0

    def _look(self, count: int) -> None:
        self.looks += count

    def __getitem__(self, key: Any) -> Any:
        self._look(1)
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self._look(1)
        return super().__contains__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self._look(1)
        return super().get(key, default)

    def __iter__(self) -> Iterator[Any]:
        self._look(len(self))
        return super().__iter__()

    def items(self) -> Any:
        self._look(len(self))
        return super().items()


class Taking(Step):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []

    async def push(self, records: list[Record], port: int) -> None:
        self.records += records


STEPS: dict[str, Callable[[], Step]] = {
    "dedup": lambda: Dedup(lambda value: value, 100),
    "stateful": lambda: StatefulMap(lambda state, value: ((state or 0) + 1, [value]), 100),
    "session": lambda: SessionFold(Session(100), lambda: 0, lambda n, _: n + 1, lambda a, b: a + b),
    "kept session": lambda: SessionFold(Session(100), list[int], lambda found, n: [*found, n]),
    "window": lambda: WindowFold(Tumbling(1), lambda: 0, lambda n, _: n + 1),
    "join": lambda: WindowJoin(Tumbling(1), lambda a, b: (a, b)),
}


async def work(make: Callable[[], Step], live: int) -> tuple[int, int]:
    """With `live` keys in the state: the keys that one batch and one advance look at, and change."""
    step, out = make(), Taking()
    step.outs.append((out, 0))
    # They fill a hundred seconds, so the state of the oldest is nearly over.
    records: list[Record] = [(number, f"key-{number}", number * 100 / live, 0) for number in range(live)]
    await step.push(records, 0)
    await step.advance(99.0)
    counting: list[Counting] = []
    for state in step.states.values():
        state.values = Counting(state.values)
        counting.append(state.values)
        state.clean()
    step.loaded()
    for values in counting:
        values.looks = 0
    await step.push([(live + n, f"key-{live + n}", 100.0, 0) for n in range(BATCH)], 0)
    await step.advance(99.5)
    looks = sum(values.looks for values in counting)
    return looks, sum(len(state.delta()) for state in step.states.values())


@pytest.mark.parametrize("name", STEPS)
def test_the_work_of_a_batch_does_not_grow_with_the_state(name: str) -> None:
    few, changed_few = asyncio.run(work(STEPS[name], 1_000))
    many, changed_many = asyncio.run(work(STEPS[name], LIVE))

    # Windows that close are work too: twenty times as many keys are in them.
    closed = max(0, changed_many - changed_few)
    assert many <= 1.3 * few + 2 * closed, (few, many, closed)
    assert changed_many <= 2 * BATCH + closed


def test_a_scan_of_the_state_would_be_seen() -> None:
    class Scanning(Dedup):
        async def advance(self, watermark: float) -> None:
            for place in [p for p, t in self._seen.values.items() if t + 100 <= watermark]:
                self._seen.remove(place)

    few, _ = asyncio.run(work(lambda: Scanning(lambda value: value, 100), 1_000))
    many, _ = asyncio.run(work(lambda: Scanning(lambda value: value, 100), LIVE))

    assert many > 1.3 * few


def test_a_key_is_deleted_within_a_bucket_of_its_time() -> None:
    touched = KeyedState()
    expiry = Expiry(64, touched.values.get)
    for key, time in (("a", 0.0), ("b", 0.5), ("c", 3.0)):
        touched.put(key, time)
        expiry.add(key, time)
    touched.put("b", 2.0)

    assert expiry.expired(64.9) == []
    assert expiry.expired(65) == ["a"]
    assert expiry.expired(67) == ["b"]
    touched.remove("c")
    assert expiry.expired(float("inf")) == []


def test_a_deadline_moves_forward_and_back() -> None:
    deadlines = Deadlines()
    deadlines.add("a", 10)
    deadlines.add("a", 20)
    assert deadlines.due(10) == ["a"]
    deadlines.add("a", 20)
    deadlines.add("a", 15)
    assert deadlines.due(14) == []
    assert deadlines.due(16) == ["a"]
    assert deadlines.due(30) == []


def test_state_is_not_kept_beyond_its_time() -> None:
    step = Dedup(lambda value: value, 10)

    async def run() -> int:
        for number in range(1000):
            await step.push([(number, "a", float(number), 0)], 0)
            await step.advance(float(number))
        return len(step.states["seen"].values)

    assert asyncio.run(run()) <= 12


def test_a_step_restores_its_index() -> None:
    """Without it, state from before the restart would stay for ever."""
    step = Dedup(lambda value: value, 10)
    step.states["seen"].load([[("a", "x"), 0.0]])
    step.loaded()
    asyncio.run(step.advance(50.0))
    assert not step.states["seen"].values
