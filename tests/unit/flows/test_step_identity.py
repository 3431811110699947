"""The identity of a step from one release to the next."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from fencepost.flows import (
    Flow,
    GraphRefused,
    IterableSource,
    ListSink,
    Sliding,
    StateMismatch,
    TableSink,
    Tumbling,
)
from fencepost.flows._graph import KeyedStream, Stream
from fencepost.flows._layout import Layout, LayoutChange
from fencepost.flows._plan import FlowPlan


def records() -> Stream[Any]:
    return Flow("f").source(IterableSource([], name="in"))


def keyed(source: Stream[Any] | None = None) -> KeyedStream[Any, Any]:
    return (source or records()).key_by(itemgetter("user"))


def steps(*flows: Flow) -> set[str]:
    return set(FlowPlan(flows[0].also(*flows[1:])).steps())


def _amount(record: Any) -> int:
    return int(record["amount"])


def test_a_derived_name_does_not_depend_on_other_branches() -> None:
    source = records()
    stream = keyed(source)
    count = stream.count().sink(TableSink())
    [alone] = steps(count)

    assert alone.startswith("fold-")
    for other in (
        stream.sum(_amount).sink(TableSink()),
        stream.reduce(max).sink(TableSink()),
        stream.map(str).key_by(len).count().sink(TableSink()),
        keyed(source.filter(lambda record: record["amount"] > 3)).count().sink(TableSink()),
    ):
        both = steps(other, count)
        assert alone in both
        assert len(both) == 2
        assert both == steps(count, other)


def test_a_place_is_what_leads_to_a_step() -> None:
    names = [
        steps(stream.count().sink(TableSink()))
        for stream in (
            keyed(),
            records().key_by(itemgetter("order")),
            keyed(records().map(_amount)),
            keyed(Flow("f").source(IterableSource([], name="other"))),
        )
    ]
    timed = records().event_time(_amount).key_by(itemgetter("user"))
    names += [steps(timed.window(window).count().sink(ListSink())) for window in (Tumbling(5), Sliding(5, 1))]

    assert len({name for each in names for name in each}) == len(names)


def test_keeping_dead_letters_changes_no_other_step() -> None:
    def flow(stream: Stream[Any]) -> Flow:
        return keyed(stream.filter(bool)).count().sink(TableSink())

    read = records().map(_amount)
    assert steps(flow(read)) == steps(flow(read.dead_letters("unreadable")))


def test_a_number_in_a_lambda_is_in_the_fingerprint_and_not_in_the_name() -> None:
    """Versions of Python keep numbers in different places."""

    def summed(amount: Callable[[Any], Any]) -> dict[str, Any]:
        return FlowPlan(keyed().sum(amount).sink(TableSink())).steps()

    once, twice, other = (
        summed(lambda record: record["amount"]),
        summed(lambda record: 2 * record["amount"]),
        summed(lambda record: record["price"]),
    )
    assert once.keys() == twice.keys() != other.keys()
    [[one], [two]] = [list(each.values()) for each in (once, twice)]
    assert one["print"] != two["print"]
    assert [one["print"]] == [each["print"] for each in summed(lambda record: record["amount"]).values()]


def test_steps_that_cannot_be_told_apart_need_names() -> None:
    stream = keyed()
    first, second = stream.count().sink(TableSink()), stream.count().sink(TableSink())

    with pytest.raises(GraphRefused, match=r"Two steps of f have one name: fold-\w+\..*give each a name="):
        FlowPlan(first.also(second))
    assert steps(first, stream.count(name="again").sink(TableSink())) >= {"again"}


def test_a_step_is_followed_through_the_layouts() -> None:
    changes = [
        LayoutChange(1, 0, {"fold-1": "a"}, []),
        LayoutChange(2, 1, {"a": "b"}, ["x"]),
        LayoutChange(3, 1, {}, []),
        LayoutChange(4, 3, {"a": "c"}, []),
    ]
    known = {change.layout: change for change in changes}

    assert Layout(2, known).name_of("fold-1", 0) == "b"
    assert Layout(2, known).name_of("x", 1) is None
    assert Layout(2, known).name_of("b", 2) == "b"
    # Layout 3 is a restored savepoint of layout 1.
    assert Layout(4, known).name_of("a", 1) == "c"
    assert Layout(4, known).name_of("x", 1) == "x"
    with pytest.raises(StateMismatch, match="stored by layout 2"):
        Layout(4, known).name_of("b", 2)
