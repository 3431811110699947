"""Maps and a key_by behind a source run as one loop: the results, counts and failures of the steps."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.flows import Flow, IterableSource, ListSink, TableSink
from fencepost.flows._edge_stats import counted
from fencepost.flows._graph import Stream
from fencepost.flows._plan import FlowPlan, SourceStage
from fencepost.flows._steps import Chain
from fencepost.testing import run_flow


def numbers() -> Stream[Any]:
    return Flow("f").source(IterableSource([], name="in"))


def stage(flow: Flow) -> tuple[FlowPlan, SourceStage]:
    program = FlowPlan(flow)
    return program, SourceStage(program, program.sources[0])


def test_a_chain_makes_the_records_of_its_steps_and_counts_them() -> None:
    flow = numbers().map(lambda n: n + 1).map(str).key_by(len).count().sink(TableSink())
    program, head = stage(flow)

    [(_, records)] = asyncio.run(head.feed([8, 9, 10]))

    assert records == [("9", 1, None, 0), ("10", 2, None, 1), ("11", 2, None, 2)]
    assert sum(counted(program, head.steps).values()) == 9, "three edges, three records each"


def stops(_: int) -> int:
    raise StopIteration


def fails(_: int) -> int:
    raise ValueError("no")


@pytest.mark.parametrize("function", [stops, fails])
@pytest.mark.parametrize("place", ["map", "key_by"])
def test_what_fails_in_a_chain_is_not_dropped(function: Callable[[int], int], place: str) -> None:
    """StopIteration would end the loop as if there were no more records."""
    stream = numbers().map(function) if place == "map" else numbers()
    flow = stream.key_by(function).count().sink(TableSink())

    with pytest.raises((ValueError, StopIteration, RuntimeError)):
        run_flow(flow, {"in": [1, 2, 3]})


def test_a_step_with_errors_is_no_part_of_a_chain() -> None:
    mapped = numbers().map(lambda n: 6 // n)
    results, failures = ListSink(), ListSink()
    flow = mapped.sink(results).also(mapped.errors.sink(failures))

    outcome = run_flow(flow, {"in": [1, 0, 3]})

    assert outcome.of(results) == [6, 2]
    assert [failure.value for failure in outcome.of(failures)] == [0]


def test_a_branch_ends_a_chain() -> None:
    mapped = numbers().map(lambda n: n * 2)
    one, two = ListSink(), ListSink()
    flow = mapped.map(lambda n: n + 1).sink(one).also(mapped.filter(lambda n: n > 2).sink(two))

    outcome = run_flow(flow, {"in": [1, 2]})

    assert (outcome.of(one), outcome.of(two)) == ([3, 5], [4])


def test_a_source_without_a_map_has_no_chain() -> None:
    _, head = stage(numbers().filter(bool).sink(ListSink()))

    assert Chain.of(head._entry) is None  # pyright: ignore[reportPrivateUsage] - The one thing that is asked.


@pytest.mark.parametrize("groups", [None, 2])
def test_sums_and_counts_of_a_batch_are_those_of_its_records(groups: int | None) -> None:
    keyed = numbers().key_by(lambda n: n % 3, groups=groups)
    sums, counts, each = TableSink(), TableSink(), ListSink()
    flow = keyed.sum(lambda n: n).sink(sums).also(keyed.count().sink(counts))
    flow = flow.also(keyed.sum(lambda n: n, emit="each", name="each").sink(each))

    outcome = run_flow(flow, {"in": range(10)}, batch=4, restart_every=1)

    assert outcome.table(sums) == {0: 18, 1: 12, 2: 15}
    assert outcome.table(counts) == {0: 4, 1: 3, 2: 3}
    assert dict(outcome.of(each)) == outcome.table(sums)
