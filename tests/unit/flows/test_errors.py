"""What a step cannot take goes to `.errors`, also what it notices only when a window closes or a timer fires.

A state that was restored has lists where there were tuples.
"""

import pytest

from fencepost.flows import Context, Failure, ListSink, Session, Tumbling
from fencepost.testing import run_flow
from tests.unit.flows.test_operators import WAYS, Silence, Way, numbers, timed


@pytest.mark.parametrize("way", WAYS)
def test_what_a_step_cannot_take_goes_to_its_errors(way: Way) -> None:
    good, bad = ListSink(), ListSink()
    halves = numbers().map(lambda n: 10 // n)
    flow = halves.sink(good).also(halves.errors.sink(bad))

    outcome = run_flow(flow, {"in": [1, 0, 2]}, **way)

    assert outcome.of(good) == [10, 5]
    [failure] = outcome.of(bad)
    assert isinstance(failure, Failure)
    assert failure.value == 0
    assert "ZeroDivisionError" in failure.error


@pytest.mark.parametrize("way", WAYS)
def test_what_fails_when_a_window_closes_goes_to_its_errors(way: Way) -> None:
    good, bad = ListSink(), ListSink()
    sums = timed().window(Session(5)).fold(lambda: 0, lambda total, r: total + 10 // r[2])
    flow = sums.sink(good).also(sums.errors.sink(bad))

    outcome = run_flow(flow, {"in": [("a", 0, 1), ("a", 1, 0), ("a", 2, 5), ("b", 3, 0)]}, **way)

    assert [(r.key, r.value) for r in outcome.of(good)] == [("a", 12)]
    assert [tuple(failure.value) for failure in outcome.of(bad)] == [("a", 1, 0), ("b", 3, 0)]


@pytest.mark.parametrize("way", WAYS)
def test_a_pair_that_cannot_be_joined_goes_to_the_errors(way: Way) -> None:
    good, bad = ListSink(), ListSink()
    joined = timed("left").join(timed("right"), lambda a, b: a[2] // b[2], window=Tumbling(10))
    flow = joined.sink(good).also(joined.errors.sink(bad))

    outcome = run_flow(flow, {"left": [("a", 1, 8)], "right": [("a", 2, 0), ("a", 3, 2)]}, **way)

    assert outcome.of(good) == [4]
    [(left, right)] = [failure.value for failure in outcome.of(bad)]
    assert (tuple(left), tuple(right)) == (("a", 1, 8), ("a", 2, 0))


class Grumpy(Silence):
    def on_timer(self, context: Context) -> None:
        if context.key == "b":
            raise ValueError("no")
        super().on_timer(context)


@pytest.mark.parametrize("way", WAYS)
def test_a_timer_that_fails_goes_to_the_errors(way: Way) -> None:
    good, bad = ListSink(), ListSink()
    called = timed().process(Grumpy)
    flow = called.sink(good).also(called.errors.sink(bad))

    outcome = run_flow(flow, {"in": [("a", 0), ("b", 1)]}, **way)

    assert outcome.of(good) == [("a", 0)]
    assert [(failure.key, failure.value, failure.error) for failure in outcome.of(bad)] == [
        ("b", None, "ValueError: no")
    ]


def test_without_a_stream_for_errors_they_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        run_flow(numbers().map(lambda n: 10 // n).sink(ListSink()), {"in": [0]})
