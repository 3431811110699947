"""The kit for flows: crashes in memory, and a check that sees what they change."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost import testing
from fencepost.flows import Flow, IterableSource, ListSink, Sink, TableSink, Tumbling, TwoPhaseCommitSink
from fencepost.flows._graph import Stream
from fencepost.testing import FlowBroken, PointMissed, check_flow, run_flow
from fencepost.testing._flow_windows import DURABLE, PHASES, TWO_PHASES, WITHIN, windows_of

NUMBERS = list(range(40))


class Staged(ListSink):
    """Goes through the phases, and keeps what it gets in memory all the same."""

    staged = True


class TwoPhase(TwoPhaseCommitSink[Any, Any]):
    async def begin_transaction(self, checkpoint: Any) -> Any: ...
    async def invoke(self, value: Any, txn: Any) -> None: ...
    async def pre_commit(self, txn: Any) -> None: ...
    async def commit(self, txn: Any) -> None: ...
    async def abort(self, txn: Any) -> None: ...


def source() -> Stream[int]:
    return Flow("kit").source(IterableSource(NUMBERS, name="numbers"))


def running(state: int | None, number: int) -> tuple[int, list[int]]:
    total = (state or 0) + number
    return total, [total]


def totals(sink: Sink) -> Flow:
    return source().key_by(lambda n: n % 3).stateful(running).sink(sink)


def test_the_windows_of_a_flow_are_those_of_its_sinks() -> None:
    assert windows_of(ListSink(), TableSink()) == WITHIN
    assert windows_of(Staged()) == PHASES
    assert windows_of(TwoPhase()) == TWO_PHASES
    assert windows_of(ListSink(), TwoPhase())[-1] == "flows.commit.between_finishes"


@pytest.mark.parametrize("sink", [ListSink(), Staged(), TwoPhase()], ids=lambda sink: type(sink).__name__)
def test_a_crash_at_any_window_changes_nothing(sink: Sink) -> None:
    flow = totals(sink)
    expected = run_flow(flow, {"numbers": NUMBERS}, batch=7).of()

    for window in windows_of(sink):
        for nth in (1, 3, None):
            found = run_flow(flow, {"numbers": NUMBERS}, batch=7, crash_at=window, nth=nth)
            assert found.of() == expected, window


def test_what_is_not_durable_comes_again_and_what_is_does_not() -> None:
    for window in TWO_PHASES:
        seen: list[int] = []
        flow = source().map(lambda n, seen=seen: seen.append(n) or n).sink(TwoPhase())  # type: ignore[misc]

        run_flow(flow, {"numbers": NUMBERS}, batch=10, crash_at=window, nth=2)

        again = 0 if window in DURABLE else 10
        assert len(seen) == len(NUMBERS) + again, window


def test_a_window_that_is_not_reached_is_told() -> None:
    with pytest.raises(PointMissed, match="does not come to"):
        run_flow(totals(ListSink()), {"numbers": NUMBERS}, crash_at="flows.commit.after_pre_commit")
    with pytest.raises(PointMissed, match="4 commits"):
        run_flow(
            totals(ListSink()), {"numbers": NUMBERS}, batch=10, crash_at="flows.commit.before_commit", nth=5
        )


def counting() -> Callable[[int], tuple[int, int]]:
    """A bug: what a step remembers outside the keyed state is not rewound."""
    seen = 0

    def number(value: int) -> tuple[int, int]:
        nonlocal seen
        seen += 1
        return value, seen

    return number


def batched() -> Callable[[int], tuple[int, int]]:
    """A bug: remembers across a crash what it has passed on, and passes it on no more."""
    passed: set[int] = set()

    def first_time(value: int) -> list[int]:
        fresh = value not in passed
        passed.add(value)
        return [value] if fresh else []

    return first_time  # type: ignore[return-value]


@pytest.mark.parametrize("bug", [counting, batched])
def test_a_step_that_remembers_outside_its_state_is_found(bug: Callable[[], Callable[[int], Any]]) -> None:
    stream = source()
    flow = (stream.map(bug()) if bug is counting else stream.flat_map(bug())).sink(ListSink())
    with pytest.raises(FlowBroken, match=r"Crashed at flows\.commit\.before_fence of every commit, ListSink"):
        check_flow(flow, {"numbers": NUMBERS})


def test_state_that_does_not_survive_its_bytes_is_found() -> None:
    """The declared type makes a list of a tuple, and this step knows only tuples."""

    def pairs(state: Any, number: int) -> tuple[Any, list[str]]:
        return (number, number), [f"{type(state).__name__} {number}"]

    flow = source().key_by(lambda n: n % 3).stateful(pairs, state=list[int]).sink(ListSink())
    with pytest.raises(FlowBroken, match="of them 'list 7', and without"):
        check_flow(flow, {"numbers": NUMBERS})


def test_a_check_that_finds_nothing_answers_what_was_to_be_expected() -> None:
    assert check_flow(totals(ListSink()), {"numbers": [1, 4, 7]}).of() == [1, 5, 12]


def test_a_sink_that_replaces_by_key_is_compared_as_a_table() -> None:
    flow = source().key_by(lambda n: n % 3).sum(lambda n: n).sink(TableSink())
    assert check_flow(flow, {"numbers": NUMBERS}).table() == {0: 273, 1: 247, 2: 260}


def test_windows_in_event_time_over_several_partitions_with_given_time() -> None:
    timed = source().event_time(float, allowed_lateness=2)
    windows = timed.key_by(lambda n: n % 2, groups=4).window(Tumbling(10)).collect()
    inputs = {"numbers": {"a": NUMBERS[::2], "b": NUMBERS[1::2]}}

    outcome = check_flow(windows.sink(ListSink()), inputs)

    assert len(outcome.of()) == 8


def test_everything_of_the_kit_for_flows_can_be_had_from_the_package() -> None:
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    with pytest.raises(AttributeError):
        _ = testing.nothing  # type: ignore[attr-defined]
