"""Declared graphs without a server: what is refused, and what is decided."""

from typing import Any

import pytest

from fencepost import Fencepost, Graph, Job, Workflow, previous, task
from fencepost.errors import InvalidInput
from fencepost.workflows._graph_plan import (
    FAN_OUT_MAX,
    NODES_MAX,
    Ended,
    NodePlan,
    Plan,
    Source,
    arguments_of,
    found_at,
    why_skipped,
)

fp = Fencepost("postgresql://nowhere/nothing")
fp.graph_runner("graphs")


@fp.job("prices", tries=3)
async def price(job: Job, order_id: int) -> None: ...


@fp.job("packing", priority="bulk", lease=30)
async def pack(job: Job, line: dict[str, Any], order_id: int = 0) -> None: ...


@fp.job("shipping")
async def ship(job: Job, parcels: list[str], cents: int = 0) -> None: ...


@fp.job("reports", unique="day:{day}")
async def report(job: Job, day: str) -> None: ...


@fp.workflow("orders", version=2)
async def approve(wf: Workflow, order_id: int) -> bool: ...  # type: ignore[empty-body]


def fulfil() -> Graph:
    graph = fp.graph("fulfil")
    quote = graph.add(task(price, order_id=7))
    packed = graph.add(task(pack, line=quote.result["lines"].each(), order_id=7))
    agreed = graph.add(task(approve, order_id=7), after=[quote])
    graph.add(
        task(ship, parcels=[packed.result[0], packed.result[1]], cents=quote.result["cents"]),
        when=[agreed.result, quote.result["cents"].above(100)],
        on_failure="skip",
    )
    return graph


def test_a_graph_is_stored_as_a_document_that_is_read_again() -> None:
    submission = fulfil().submission()

    assert (submission.queue, submission.kind) == ("graphs/graph@1", "graph@1")
    assert submission.headers["graph"] == "fulfil"
    plan = Plan.read(submission.payload["graph"])
    assert plan == fulfil().plan()
    nodes = {node.name: node for node in plan.nodes}
    assert {name: node.predecessors for name, node in nodes.items()} == {
        "price": [],
        "pack": ["price"],
        "approve": ["price"],
        "ship": ["pack", "price", "approve"],
    }
    assert (nodes["price"].tries, nodes["pack"].priority, nodes["pack"].lease_seconds) == (3, 3, 30)
    assert (nodes["approve"].kind, nodes["approve"].queue) == ("approve@2", "orders/approve@2")
    assert [str(condition) for condition in nodes["ship"].when] == [
        "approve is true",
        "price['cents'] above 100",
    ]
    assert [leaf.name for leaf in plan.leaves] == ["ship"]


def test_the_nodes_come_in_an_order_in_which_they_can_run() -> None:
    graph = fp.graph("backwards")
    graph.add(task(ship, parcels=graph.result("pack")))
    graph.add(task(pack, line=graph.result("price")["lines"].each()))
    graph.add(task(price, order_id=7))

    assert [node.name for node in graph.plan().nodes] == ["price", "pack", "ship"]


def test_a_cycle_is_refused_and_named() -> None:
    graph = fp.graph("round")
    graph.add(task(price, order_id=1), name="free")
    graph.add(task(price, order_id=1), name="a", after=["free", "c"])
    graph.add(task(price, order_id=1), name="b", after=["a"])
    graph.add(task(price, order_id=1), name="c", after=["b"])
    graph.add(task(price, order_id=1), name="tail", after=["c"])

    with pytest.raises(InvalidInput, match=r"cycle: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c)\."):
        graph.submission()


def test_a_node_that_waits_for_itself_is_a_cycle() -> None:
    graph = fp.graph("self")
    graph.add(task(price, order_id=graph.result("price")))
    with pytest.raises(InvalidInput, match="cycle: price -> price"):
        graph.plan()


def test_a_deep_chain_is_no_recursion() -> None:
    graph = fp.graph("deep")
    graph.add(task(price, order_id=1), name="n0")
    for number in range(1, NODES_MAX):
        graph.add(task(price, order_id=1), name=f"n{number}", after=[f"n{number - 1}"])
    assert len(graph.plan().nodes) == NODES_MAX

    with pytest.raises(InvalidInput, match=f"at most {NODES_MAX} nodes"):
        graph.add(task(price, order_id=1), name="one more")
    nodes = tuple(NodePlan(name=f"n{n}", kind="price", queue="prices") for n in range(NODES_MAX + 1))
    with pytest.raises(InvalidInput, match="1001 nodes; at most 1000"):
        Plan(name="large", nodes=nodes).checked()


def test_what_a_graph_does_not_have_is_refused() -> None:
    graph = fp.graph("unknown")
    graph.add(task(ship, parcels=graph.result("packed")))
    with pytest.raises(InvalidInput, match="ship depends on 'packed', which the graph does not have: ship"):
        graph.submission()

    graph = fp.graph("unknown")
    graph.add(task(price, order_id=1))
    graph.returns({"all": graph.result("others")})
    with pytest.raises(InvalidInput, match="returns depends on 'others'"):
        graph.submission()


def test_a_name_that_is_used_twice_is_refused_and_so_is_an_empty_graph() -> None:
    graph = fp.graph("twice")
    with pytest.raises(InvalidInput, match="no nodes"):
        graph.plan()
    graph.add(task(price, order_id=1))
    with pytest.raises(InvalidInput, match="give this one another name"):
        graph.add(task(price, order_id=2))
    graph.add(task(price, order_id=2), name="a/ended")
    with pytest.raises(InvalidInput, match="no slash"):
        graph.plan()


def test_an_argument_that_is_no_result_is_checked_when_the_graph_is_built() -> None:
    graph = fp.graph("wrong")
    wrong: Any = "seven"
    with pytest.raises(InvalidInput, match="price: order_id"):
        graph.add(task(price, order_id=wrong))
    unknown: Any = {"order": 7}
    with pytest.raises(InvalidInput, match="price has no argument order"):
        task(price, **unknown)
    node = graph.add(task(price, order_id=7))
    given: Any = node
    with pytest.raises(InvalidInput, match=r"its result is `\.result`"):
        graph.add(task(ship, parcels=given))


def test_a_unique_or_timed_job_is_no_node() -> None:
    with pytest.raises(InvalidInput, match="is unique"):
        task(report, day="monday")
    task(report.options(unique=None), day="monday")
    with pytest.raises(InvalidInput, match="has a time"):
        task(price.options(delay=5), order_id=7)


def test_two_fan_outs_in_one_node_are_refused() -> None:
    graph = fp.graph("product")
    quote = graph.add(task(price, order_id=7))
    graph.add(task(pack, line=quote.result.each(), order_id=quote.result.each()))
    with pytest.raises(InvalidInput, match="fans out over one result"):
        graph.plan()


def test_without_a_runner_nothing_is_started() -> None:
    other = Fencepost("postgresql://nowhere/nothing")

    @other.job("mail")
    async def send(job: Job) -> None: ...

    chain = other.chain(task(send))
    with pytest.raises(InvalidInput, match=r"declare `fp\.graph_runner"):
        chain.submission()
    other.graph_runner("graphs")
    assert chain.submission().kind == "graph@1"
    with pytest.raises(InvalidInput, match="runner already"):
        other.graph_runner("others")


def plan_of(form: Any) -> dict[str, list[str]]:
    return {node.name: node.predecessors for node in form.plan().nodes}


def test_a_chain_passes_results_along() -> None:
    chain = fp.chain(
        task(price, order_id=7), task(pack, line=previous["lines"].each()), task(ship, parcels=previous)
    )
    assert plan_of(chain) == {"price": [], "pack": ["price"], "ship": ["pack"]}
    [line] = next(node for node in chain.plan().nodes if node.name == "pack").inputs
    assert (line.source, line.each) == (Source(node="price", path=("lines",)), True)
    output = chain.plan().output
    assert output is not None
    assert [given.source.node for given in output.inputs] == ["ship"]


def test_forms_nest_and_name_their_nodes() -> None:
    form = fp.chain(
        task(price, order_id=1),
        fp.group(fp.chain(task(pack, line=previous), task(pack, line=previous)), task(price, order_id=2)),
        task(ship, parcels=previous, cents=previous[1]["cents"]),
    )
    assert plan_of(form) == {
        "price": [],
        "pack": ["price"],
        "pack-2": ["pack"],
        "price-2": ["price"],
        "ship": ["pack-2", "price-2"],
    }
    ship_inputs = next(node for node in form.plan().nodes if node.name == "ship").inputs
    assert [(given.at, str(given.source)) for given in ship_inputs] == [
        (("parcels", 0), "pack-2"),
        (("parcels", 1), "price-2"),
        (("cents",), "price-2['cents']"),
    ]


def test_a_chord_is_a_group_and_what_comes_after() -> None:
    chord = fp.chord(
        [task(price, order_id=1), task(price, order_id=2)],
        task(ship, parcels=previous),
        on_failure="continue",
    )
    assert plan_of(chord) == {"price": [], "price-2": [], "ship": ["price", "price-2"]}
    assert [node.on_failure for node in chord.plan().nodes] == ["continue", "continue", "fail"]


def test_what_a_form_cannot_mean_is_refused() -> None:
    with pytest.raises(InvalidInput, match="needs at least one task"):
        fp.group()
    alone = fp.chain(task(ship, parcels=previous))
    with pytest.raises(InvalidInput, match="previous has nothing before it"):
        alone.plan()
    assert plan_of(fp.chain(task(price, order_id=1), alone)) == {"price": [], "ship": ["price"]}
    with pytest.raises(InvalidInput, match="has no part 2"):
        fp.chord([task(price, order_id=1)], task(ship, parcels=previous[2])).plan()
    with pytest.raises(InvalidInput, match="instead of `each"):
        fp.chord([task(price, order_id=1)], task(pack, line=previous.each())).plan()
    with pytest.raises(InvalidInput, match="previous has nothing before it"):
        fp.graph("plain").add(task(ship, parcels=previous))
    with pytest.raises(InvalidInput, match="at most 1000 nodes"):
        fp.group(*(task(price, order_id=number) for number in range(NODES_MAX + 1))).submission()


def node_of(**given: Any) -> NodePlan:
    return NodePlan(name="n", kind="k", queue="q", **given)


@pytest.mark.parametrize(
    ("needs", "states", "skipped"),
    [
        ("all", {"a": "finished", "b": "finished"}, None),
        ("all", {"a": "finished", "b": "skipped"}, "b skipped"),
        ("all", {"a": "failed", "b": "skipped"}, "a failed, b skipped"),
        ("all", {"a": "finished", "c": "failed"}, None),
        ("any", {"a": "finished", "b": "skipped"}, None),
        ("any", {"a": "failed", "b": "skipped"}, "a failed, b skipped"),
        ("any", {}, None),
    ],
)
def test_what_a_node_needs_decides_whether_it_runs(
    needs: Any, states: dict[str, Any], skipped: str | None
) -> None:
    ended = {name: Ended(state) for name, state in states.items()}
    node = node_of(needs=needs, after=tuple(states))
    assert why_skipped(node, ended, {"a": "skip", "b": "fail", "c": "continue"}) == skipped


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("is_true", None, True),
        ("is_false", None, False),
        ("equals", 5, True),
        ("differs", 5, False),
        ("above", 4, True),
        ("below", 5, False),
    ],
)
def test_conditions(condition: str, value: Any, holds: bool) -> None:
    result = fp.graph("any").result("a")
    made = getattr(result, condition)(*([] if value is None else [value]))
    assert made.holds(5) is holds


def test_a_condition_on_what_cannot_be_compared_says_so() -> None:
    result = fp.graph("any").result("a")
    assert result.contains("x").holds(["x"])
    with pytest.raises(InvalidInput, match="a above 5 cannot be tested"):
        result.above(5).holds("six")
    with pytest.raises(InvalidInput, match="cannot be tested"):
        result.contains(5).holds(None)


def inputs(graph: Graph, name: str) -> NodePlan:
    return next(node for node in graph.plan().nodes if node.name == name)


def test_the_arguments_of_a_node_are_filled_from_results() -> None:
    results = {"price": {"lines": [{"sku": 1}, {"sku": 2}], "cents": 900}, "pack": ["p1", "p2"]}
    graph = fulfil()

    assert arguments_of(inputs(graph, "pack"), results) == [
        {"line": {"sku": 1}, "order_id": 7},
        {"line": {"sku": 2}, "order_id": 7},
    ]
    assert arguments_of(inputs(graph, "ship"), results) == [{"parcels": ["p1", "p2"], "cents": 900}]
    # Filling changes neither the plan nor the next call.
    assert inputs(graph, "ship").arguments["parcels"] == [None, None]


def test_results_that_do_not_fit_are_named() -> None:
    pack_node = inputs(fulfil(), "pack")
    with pytest.raises(InvalidInput, match=r"no part price\['lines'\]"):
        arguments_of(pack_node, {"price": {"cents": 1}})
    with pytest.raises(InvalidInput, match="is no list"):
        arguments_of(pack_node, {"price": {"lines": "two"}})
    with pytest.raises(InvalidInput, match="10001 elements"):
        arguments_of(pack_node, {"price": {"lines": [0] * (FAN_OUT_MAX + 1)}})
    assert arguments_of(pack_node, {"price": None}) == []
    assert found_at(Source(node="price", path=("lines",)), None) is None


def test_a_document_that_is_no_graph_is_refused() -> None:
    with pytest.raises(InvalidInput, match="This is no graph: nodes: Field required"):
        Plan.read({"name": "x"})
    with pytest.raises(InvalidInput, match="This is no graph"):
        Plan.read({"name": "x", "nodes": [], "edges": []})
