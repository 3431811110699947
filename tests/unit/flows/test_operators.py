"""What each operator answers, in the harness: whatever the batches, the interleaving and the restarts."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.flows import (
    Context,
    Flow,
    GuaranteeNotMet,
    IdempotentRecord,
    IterableSource,
    ListSink,
    Session,
    Sliding,
    TableSink,
    Tumbling,
    WindowResult,
)
from fencepost.flows._graph import KeyedStream, Stream
from fencepost.testing import FlowOutcome, run_flow

Way = dict[str, Any]
WAYS: list[Way] = [
    {"batch": 100},
    {"batch": 1},
    {"batch": 2, "restart_every": 1},
    {"batch": 2, "crash_at": "flows.commit.before_commit", "nth": None},
]


def numbers(flow: str = "f", name: str = "in") -> Stream[Any]:
    return Flow(flow).source(IterableSource([], name=name))


def timed(name: str = "in", lateness: float = 0) -> KeyedStream[Any, Any]:
    """Records are (key, time)."""
    stream = numbers(name=name).event_time(lambda r: r[1], allowed_lateness=lateness)
    return stream.key_by(lambda r: r[0])


@pytest.mark.parametrize("way", WAYS)
def test_map_filter_and_flat_map(way: Way) -> None:
    flow = (
        numbers()
        .map(lambda n: n + 1)
        .filter(lambda n: n % 2 == 0)
        .flat_map(lambda n: [n] * 2)
        .sink(ListSink())
    )

    assert run_flow(flow, {"in": [1, 2, 3]}, **way).of() == [2, 2, 4, 4]


@pytest.mark.parametrize("way", WAYS)
def test_running_totals_by_key(way: Way) -> None:
    flow = numbers().key_by(lambda n: n % 2).sum(lambda n: n).sink(TableSink())

    assert run_flow(flow, {"in": [1, 2, 3, 4]}, **way).table() == {1: 4, 0: 6}


def test_each_record_may_speak() -> None:
    flow = numbers().key_by(lambda n: n % 2).reduce(max, emit="each").sink(ListSink())

    assert run_flow(flow, {"in": [1, 5, 3]}).of() == [(1, 1), (1, 5), (1, 5)]


@pytest.mark.parametrize("way", WAYS)
def test_a_stateful_map_remembers_each_key_and_forgets_on_none(way: Way) -> None:
    def pairs(state: list[int] | None, n: int) -> tuple[Any, list[Any]]:
        return (None, [(state[0], n)]) if state else ([n], [])

    flow = numbers().key_by(lambda n: n % 2).stateful(pairs).sink(ListSink())

    assert run_flow(flow, {"in": [1, 2, 3, 5, 4, 7]}, **way).of() == [(1, 3), (2, 4), (5, 7)]


@pytest.mark.parametrize("way", WAYS)
def test_state_outlives_its_time_by_no_record(way: Way) -> None:
    def count(state: int | None, _: Any) -> tuple[int, list[int]]:
        return (state or 0) + 1, [(state or 0) + 1]

    flow = timed().stateful(count, ttl=10).sink(ListSink())

    assert run_flow(flow, {"in": [("a", 0), ("a", 9), ("a", 19), ("a", 20)]}, **way).of() == [1, 2, 1, 2]


@pytest.mark.parametrize("way", WAYS)
def test_an_id_passes_once(way: Way) -> None:
    flow = timed().dedup(lambda r: r[2], ttl=10).sink(ListSink())
    records = [("a", 0, "x"), ("a", 1, "x"), ("b", 1, "x"), ("a", 20, "x")]

    assert run_flow(flow, {"in": records}, **way).of() == [records[0], records[2], records[3]]


@pytest.mark.parametrize("way", WAYS)
def test_tumbling_windows_close_behind_the_watermark(way: Way) -> None:
    flow = timed(lateness=6).window(Tumbling(10)).count().sink(ListSink())

    results = run_flow(flow, {"in": [("a", 1), ("a", 9), ("b", 3), ("a", 12)]}, **way).of()

    assert sorted(results) == [
        WindowResult("a", 0, 10, 2),
        WindowResult("a", 10, 20, 1),
        WindowResult("b", 0, 10, 1),
    ]


@pytest.mark.parametrize("way", WAYS)
def test_a_record_belongs_to_every_window_that_slides_over_it(way: Way) -> None:
    flow = timed().window(Sliding(10, 5)).count().sink(ListSink())

    results = run_flow(flow, {"in": [("a", 7)]}, **way).of()

    assert [(r.start, r.end) for r in results] == [(0, 10), (5, 15)]


@pytest.mark.parametrize("way", WAYS)
def test_a_record_joins_the_sessions_that_it_lies_between(way: Way) -> None:
    flow = timed(lateness=100).window(Session(5)).collect().sink(ListSink())

    results = run_flow(flow, {"in": [("a", 0), ("a", 8), ("a", 4), ("a", 30)]}, **way).of()

    assert [(r.start, r.end, [v[1] for v in r.value]) for r in results] == [
        (0, 13, [0, 4, 8]),
        (30, 35, [30]),
    ]


@pytest.mark.parametrize("way", WAYS)
def test_late_records_have_a_stream_of_their_own(way: Way) -> None:
    stream = timed(lateness=5)
    counts, late = ListSink(), ListSink()
    flow = stream.window(Tumbling(10)).count().sink(counts).also(stream.late.sink(late))

    outcome = run_flow(flow, {"in": [("a", 1), ("a", 20), ("a", 15), ("a", 14), ("a", 9)]}, **way)

    assert outcome.of(late) == [("a", 9)], "the window of 14 is open until 20"
    assert sum(r.value for r in outcome.of(counts)) == 4


@pytest.mark.parametrize("way", WAYS)
def test_records_of_two_streams_are_joined_within_their_window(way: Way) -> None:
    flow = timed("left").join(timed("right"), lambda a, b: (a[2], b[2]), window=Tumbling(10)).sink(ListSink())
    left = [("a", 1, "l1"), ("a", 11, "l2"), ("b", 2, "l3")]
    right = [("a", 2, "r1"), ("a", 3, "r2"), ("a", 25, "r3")]

    outcome = run_flow(flow, {"left": left, "right": right}, **way)

    assert sorted(outcome.of()) == [("l1", "r1"), ("l1", "r2")]


@pytest.mark.parametrize("seed", range(5))
def test_a_table_is_looked_up_as_of_the_records_own_time(seed: int) -> None:
    flow = timed("orders").lookup(timed("rates"), lambda order, rate: rate and rate[2]).sink(ListSink())
    orders = [("a", 1), ("a", 5), ("a", 9)]
    rates = [("a", 2, "low"), ("a", 7, "high")]

    outcome = run_flow(flow, {"orders": orders, "rates": rates}, batch=1, seed=seed)

    assert outcome.of() == [None, "low", "high"]


class Silence:
    """Speaks when a key has been silent for ten seconds."""

    def on_record(self, context: Context, value: Any) -> None:
        context.state = context.time
        context.call_at((context.time or 0) + 10)

    def on_timer(self, context: Context) -> None:
        if context.time == context.state + 10:
            context.emit((context.key, context.state))
            context.state = None


@pytest.mark.parametrize("way", WAYS)
def test_timers_fire_in_event_time(way: Way) -> None:
    flow = timed(lateness=3).process(Silence).sink(ListSink())

    outcome = run_flow(flow, {"in": [("a", 0), ("a", 4), ("b", 1), ("a", 30)]}, **way)

    assert sorted(outcome.of()) == [("a", 4), ("a", 30), ("b", 1)]


async def doubled(n: int) -> int:
    return n * 2


def test_an_enrichment_keeps_the_order() -> None:
    assert run_flow(numbers().enrich(doubled, concurrency=2).sink(ListSink()), {"in": [3, 1, 2]}).of() == [
        6,
        2,
        4,
    ]


def test_a_branch_takes_each_record_once() -> None:
    small, even, rest = numbers().branch(lambda n: n < 3, lambda n: n % 2 == 0)
    sinks = [ListSink(), ListSink(), ListSink()]
    flow = small.sink(sinks[0]).also(even.sink(sinks[1]), rest.sink(sinks[2]))

    outcome = run_flow(flow, {"in": [1, 2, 3, 4, 5]})

    assert [outcome.of(sink) for sink in sinks] == [[1, 2], [4], [3, 5]]


events = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(0, 99)), max_size=25)


@settings(max_examples=25, deadline=None)
@given(events, st.integers(1, 7), st.integers(1, 3))
def test_the_windows_of_one_partition_are_the_same_whatever_the_batches_and_restarts(
    records: list[Any], batch: int, restart_every: int
) -> None:
    stream = timed(lateness=5)
    flow = stream.window(Tumbling(10)).collect().sink(ListSink()).also(stream.late.sink(ListSink()))

    calm = run_flow(flow, {"in": records})
    rough = run_flow(flow, {"in": records}, batch=batch, restart_every=restart_every)

    def results(outcome: FlowOutcome) -> list[Any]:
        return sorted([r.key, r.start, [list(value) for value in r.value]] for r in outcome.of(0))

    assert results(rough) == results(calm)
    assert rough.of(1) == calm.of(1)


@settings(max_examples=25, deadline=None)
@given(events, events, st.integers(1, 5), st.integers(0, 50))
def test_the_merge_of_partitions_is_the_same_the_caller_that_is_faster(
    one: list[Any], two: list[Any], batch: int, seed: int
) -> None:
    flow = timed(lateness=5).stateful(lambda s, r: ([*(s or []), r[2]], [(s, r)])).sink(ListSink())

    first = run_flow(flow, {"in": {"0": one, "1": two}})
    second = run_flow(flow, {"in": {"0": one, "1": two}}, batch=batch, seed=seed, restart_every=2)

    def by_key(outcome: FlowOutcome) -> Counter[str]:
        return Counter(repr((r[0], s and list(s), list(r))) for s, r in outcome.of())

    assert by_key(first) == by_key(second)


def test_an_unknown_guarantee_is_refused() -> None:
    with pytest.raises(GuaranteeNotMet, match="exactly_once"):
        Flow("f", guarantee="twice")


class Order(msgspec.Struct):
    user: str
    amount: int


def test_records_are_made_again_behind_an_exchange() -> None:
    orders = [Order("ann", 1), Order("bob", 2), Order("ann", 3)]
    keyed = numbers().key_by(lambda order: order.user, groups=4, value=Order)
    undeclared = numbers().key_by(lambda order: order.user, groups=4)

    assert run_flow(keyed.sum(lambda o: o.amount).sink(TableSink()), {"in": orders}).table() == {
        "ann": 4,
        "bob": 2,
    }
    totals = undeclared.sum(lambda o: o.amount)
    assert run_flow(totals.sink(TableSink()), {"in": orders}).table() == {"ann": 4, "bob": 2}


@pytest.mark.parametrize("way", WAYS)
def test_a_union_has_every_record_of_each_in_its_order(way: Way) -> None:
    flow = numbers(name="a").union(numbers(name="b"), numbers(name="c").map(lambda n: -n)).sink(ListSink())

    found = run_flow(flow, {"a": [1, 2, 3], "b": [11, 12], "c": [1, 2]}, **way).of()

    assert [n for n in found if 0 < n < 10] == [1, 2, 3]
    assert [n for n in found if n > 10] == [11, 12]
    assert [n for n in found if n < 0] == [-1, -2]
    assert len(found) == 7


@pytest.mark.parametrize("way", WAYS)
def test_a_union_can_be_keyed(way: Way) -> None:
    both = numbers(name="a").union(numbers(name="b"))
    flow = both.key_by(lambda n: n % 2).sum(lambda n: n).sink(TableSink())

    assert run_flow(flow, {"a": [1, 2, 3], "b": [10, 20, 5]}, **way).table() == {1: 9, 0: 32}


@pytest.mark.parametrize("way", WAYS)
def test_the_least_and_the_greatest_of_a_window(way: Way) -> None:
    """Records are (key, time, amount); the extremes stand neither first nor last."""
    records = [("a", 1, 5), ("a", 2, -3), ("b", 3, 7), ("a", 4, 9), ("a", 5, 0), ("a", 12, 1), ("a", 25, 2)]

    def by(how: str) -> dict[tuple[Any, float], Any]:
        windowed = timed().window(Tumbling(10))
        best = windowed.min(lambda r: r[2]) if how == "min" else windowed.max(lambda r: r[2])
        results: list[WindowResult] = run_flow(best.sink(ListSink()), {"in": records}, **way).of()
        return {(result.key, result.start): result.value for result in results}

    assert by("min") == {("a", 0): -3, ("b", 0): 7, ("a", 10): 1, ("a", 20): 2}
    assert by("max") == {("a", 0): 9, ("b", 0): 7, ("a", 10): 1, ("a", 20): 2}


def test_enriching_awaits_no_more_than_its_bound_at_once_and_keeps_the_order() -> None:
    """Each call waits until as many are under way as may be, and those that came later answer first."""
    under_way: list[int] = []
    most = 0
    answered: list[int] = []

    async def enrich(number: int) -> int:
        nonlocal most
        under_way.append(number)
        most = max(most, len(under_way))
        # Several turns of the loop for the earlier ones: the last of a handful is the first to end.
        for _ in range(3 * (5 - number % 5)):
            await asyncio.sleep(0)
        under_way.remove(number)
        answered.append(number)
        return number * 10

    given = list(range(50))
    flow = numbers().enrich(enrich, concurrency=5).sink(ListSink())

    assert run_flow(flow, {"in": given}).of() == [n * 10 for n in given]
    assert most == 5
    assert answered != given, "they did not overtake each other: nothing was shown"


@pytest.mark.parametrize("groups", [None, 2])
def test_a_record_with_an_id_is_one_behind_a_channel_and_a_restart_too(groups: int | None) -> None:
    def added(left: Any, right: Any) -> Any:
        return IdempotentRecord(right.id, left.value + right.value)

    totals = numbers().key_by(lambda record: record.id, groups=groups).reduce(added)
    values = [IdempotentRecord(f"m-{n % 2}", n) for n in range(6)]

    found = run_flow(totals.sink(TableSink()), {"in": values}, batch=1, restart_every=1)

    assert found.table() == {"m-0": IdempotentRecord("m-0", 6), "m-1": IdempotentRecord("m-1", 9)}
