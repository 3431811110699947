"""What a graph promises, and what it refuses when it is built."""

import pytest

from fencepost.flows import (
    CallSink,
    Flow,
    GraphRefused,
    GuaranteeNotMet,
    IterableSource,
    ListSink,
    TableSink,
    Tumbling,
)
from fencepost.flows._plan import FlowPlan


def numbers(name: str = "numbers") -> IterableSource:
    return IterableSource([1, 2, 3], name=name)


def test_a_sink_that_cannot_keep_the_promise_is_refused_with_the_reason_and_the_alternatives() -> None:
    stream = Flow("f").source(numbers())

    with pytest.raises(
        GuaranteeNotMet, match=r"CallSink is at-least-once.*called again.*OutboxSink"
    ) as refused:
        stream.sink(CallSink(print))

    assert "ask for at_least_once" in str(refused.value)


def test_the_same_sink_is_taken_where_less_was_asked() -> None:
    flow = Flow("f", guarantee="at_least_once").source(numbers()).sink(CallSink(print))

    assert flow.promised.words == "at-least-once"


def test_a_stream_is_a_value_and_building_on_it_changes_nothing() -> None:
    stream = Flow("f").source(numbers())
    plain = stream.sink(ListSink())
    stream.map(str).sink(ListSink())

    assert [node.kind for node in plain.nodes()] == ["source", "sink"]


def test_branches_of_one_flow_share_their_nodes() -> None:
    even, odd = Flow("f").source(numbers()).map(abs).branch(lambda n: n % 2 == 0)
    flow = even.sink(ListSink()).also(odd.sink(ListSink()))

    assert [node.kind for node in flow.nodes()].count("map") == 1


def test_two_flows_are_not_put_together() -> None:
    with pytest.raises(GraphRefused, match="two flows"):
        Flow("a").source(numbers()).sink(ListSink()).also(Flow("b").source(numbers()).sink(ListSink()))


def test_a_window_without_event_time_is_refused() -> None:
    flow = Flow("f").source(numbers()).key_by(str).window(Tumbling(10)).count().sink(ListSink())

    with pytest.raises(GraphRefused, match="event_time"):
        FlowPlan(flow)


def test_a_fold_at_commits_into_a_sink_that_appends_is_refused() -> None:
    with pytest.raises(GraphRefused, match="once per commit"):
        Flow("f").source(numbers()).key_by(str).count().sink(ListSink())

    Flow("f").source(numbers()).key_by(str).count().sink(TableSink())
    Flow("f").source(numbers()).key_by(str).count(emit="each").sink(ListSink())


def test_event_time_behind_key_by_is_refused() -> None:
    with pytest.raises(GraphRefused, match="before key_by"):
        Flow("f").source(numbers()).key_by(str).event_time(float)


async def enriched(number: int) -> int:
    return number + 1


def test_an_enrichment_before_an_exchange_is_refused() -> None:
    flow = Flow("f").source(numbers()).enrich(enriched).key_by(str, groups=4).count().sink(TableSink())

    with pytest.raises(GraphRefused, match="behind key_by"):
        FlowPlan(flow)


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "a b", "{a}"])
def test_a_name_that_cannot_be_part_of_a_resource_is_refused(name: str) -> None:
    with pytest.raises(GraphRefused, match="no name"):
        Flow(name)


def test_a_flow_without_a_sink_is_refused() -> None:
    with pytest.raises(GraphRefused, match="no sink"):
        FlowPlan(Flow("f"))


def test_the_same_graph_from_functions() -> None:
    def halves(number: int) -> object:
        yield number / 2

    flow = Flow.of_functions("f", numbers(), abs, halves, enriched, sink=ListSink())

    assert [node.kind for node in flow.nodes()] == ["source", "map", "flat_map", "enrich", "sink"]


def test_the_picture_has_every_node_and_edge() -> None:
    picture = FlowPlan(
        Flow("f").source(numbers()).key_by(str).count(name="counts").sink(TableSink())
    ).picture()

    assert [node["name"] for node in picture["nodes"]] == ["numbers", "key_by-1", "counts", "sink-1"]
    assert picture["edges"] == [[0, 1], [1, 2], [2, 3]]
