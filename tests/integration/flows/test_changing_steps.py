"""A release that changes the graph: state stays with its step, or the flow does not start and says what
to do."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.errors import Mismatch
from fencepost.flows import Flow, StartRefused, TableSink
from fencepost.flows import _flow_store as flow_store
from fencepost.flows import _units as units
from fencepost.flows._graph import KeyedStream
from fencepost.flows._plan import FlowPlan
from fencepost.flows._state import decode
from fencepost.flows._value_codec import flat
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.kernel import lease
from tests.integration.flows.harness import FlowHarness


def totals(prefix: str) -> PostgresUpsert:
    return PostgresUpsert("total", ["key"], ["value"], row=lambda pair: (f"{prefix}{pair[0]}", pair[1]))


def keyed(flow: Flow, groups: int | None = None) -> KeyedStream[str, Any]:
    return flow.source(RedisStreams("in")).json().key_by(_user, groups=groups)


def _user(order: Any) -> str:
    return str(order["user"])


def _amount(order: Any) -> int:
    return int(order["amount"])


def found(harness: FlowHarness) -> dict[str, int]:
    return dict(harness.rows("select * from total"))


async def take(harness: FlowHarness, flow: Flow, expected: dict[str, int], amount: int = 10) -> None:
    """One order more, and what the tables have then."""
    harness.redis.xadd("in", {"data": f'{{"user": "u", "amount": {amount}}}'})
    async with harness.running(harness.worker(flow)):
        await harness.until(lambda: found(harness) == expected)


async def refused(harness: FlowHarness, flow: Flow) -> str:
    with pytest.raises(StartRefused) as told:
        await harness.worker(flow).run()
    return str(told.value)


def counting(groups: int | None = None, **flow: Any) -> Flow:
    return keyed(Flow("orders", **flow), groups).count().sink(totals("count-"))


@pytest.mark.parametrize("groups", [None, 2])
async def test_a_new_branch_above_leaves_the_state_of_the_others(
    harness: FlowHarness, groups: int | None
) -> None:
    await take(harness, counting(groups), {"count-u": 1})
    await take(harness, counting(groups), {"count-u": 2})

    orders = keyed(Flow("orders"), groups)
    sums = orders.sum(_amount).sink(totals("sum-"))
    await take(harness, sums.also(orders.count().sink(totals("count-"))), {"count-u": 3, "sum-u": 10})


async def test_another_branch_with_a_key_of_its_own_takes_its_own_records(harness: FlowHarness) -> None:
    """Its border stands before the old one: inputs are found by name, not by number."""
    await take(harness, counting(2), {"count-u": 1})

    by_amount = Flow("orders").source(RedisStreams("in")).json()
    amounts = by_amount.key_by(_amount, groups=2).count(name="amounts").sink(totals("amount-"))
    users = by_amount.key_by(_user, groups=2).count().sink(totals("count-"))
    await take(harness, amounts.also(users), {"count-u": 2, "amount-10": 1})


async def test_a_removed_step_is_refused_until_its_state_is_dropped(harness: FlowHarness) -> None:
    orders = keyed(Flow("orders"))
    sums = orders.sum(_amount, name="sums").sink(totals("sum-"))
    await take(harness, sums.also(orders.count().sink(totals("count-"))), {"count-u": 1, "sum-u": 10})

    told = await refused(harness, counting())
    assert "sums (fold)" in told
    assert "drop_state=['sums']" in told
    assert "name='sums'" in told

    await take(harness, counting(drop_state=["sums"]), {"count-u": 2, "sum-u": 10})
    await take(harness, counting(), {"count-u": 3, "sum-u": 10})


async def test_a_renamed_step_is_refused_until_it_is_said(harness: FlowHarness) -> None:
    def named(name: str, **flow: Any) -> Flow:
        return keyed(Flow("orders", **flow)).count(name=name).sink(totals("count-"))

    await take(harness, named("old"), {"count-u": 1})

    told = await refused(harness, named("new"))
    assert "rename={'old': 'new'}" in told
    assert found(harness) == {"count-u": 1}

    await take(harness, named("new", rename={"old": "new"}), {"count-u": 2})
    # It may stay in the code, and may go.
    await take(harness, named("new", rename={"old": "new"}), {"count-u": 3})
    await take(harness, named("new"), {"count-u": 4})
    assert "rename={'new': 'old'}" in await refused(harness, named("old"))


async def test_another_function_under_a_derived_name_is_refused(harness: FlowHarness) -> None:
    def summed(amount: Callable[[Any], Any], **options: Any) -> Flow:
        return keyed(Flow("orders")).sum(amount, **options).sink(totals("sum-"))

    await take(harness, summed(lambda order: 2 * order["amount"]), {"sum-u": 20})
    [[step]] = harness.rows("select jsonb_object_keys(steps) from fencepost.flow_layouts('orders')")

    told = await refused(harness, summed(lambda order: 3 * order["amount"]))
    assert f"{step} (fold) has another function" in told
    assert f"name='{step}'" in told

    await take(harness, summed(lambda order: 3 * order["amount"], name=step), {"sum-u": 50})


async def test_another_kind_of_step_under_a_name_is_refused(harness: FlowHarness) -> None:
    def running(state: int | None, order: Any) -> tuple[int, list[Any]]:
        return (state or 0) + 1, [(order["user"], (state or 0) + 1)]

    await take(harness, keyed(Flow("orders")).count(name="n").sink(totals("n-")), {"n-u": 1})

    def other(**flow: Any) -> Flow:
        return keyed(Flow("orders", **flow)).stateful(running, name="n").sink(totals("n-"))

    assert "n was a fold and is a stateful" in await refused(harness, other())
    await take(harness, other(drop_state=["n"]), {"n-u": 1})
    await take(harness, other(drop_state=["n"]), {"n-u": 2})


async def test_a_savepoint_of_before_is_carried_over(harness: FlowHarness) -> None:
    def named(name: str, **flow: Any) -> Flow:
        return keyed(Flow("orders", **flow)).count(name=name).sink(totals("count-"))

    await take(harness, named("old"), {"count-u": 1})
    await harness.fp.run(flow_store.save("orders", "before"))
    await take(harness, named("new", rename={"old": "new"}), {"count-u": 2})

    await harness.fp.run(flow_store.restore("orders", "before"))
    assert "rename={'old': 'new'}" in await refused(harness, named("new")), "the flow is what it was then"
    # The second order comes again: it lies behind the savepoint.
    await take(harness, named("new", rename={"old": "new"}), {"count-u": 3})

    # And the release before goes on from it too, without a word.
    await harness.fp.run(flow_store.restore("orders", "before"))
    await take(harness, named("old"), {"count-u": 4})


async def test_a_worker_of_the_graph_before_cannot_commit(harness: FlowHarness) -> None:
    def named(name: str, **flow: Any) -> Flow:
        return keyed(Flow("orders", **flow)).count(name=name).sink(totals("count-"))

    await take(harness, named("old"), {"count-u": 1})
    held = await harness.fp.run(lease.acquire("flow:orders/all", "a/boot-1", 60))
    [[edition]] = harness.rows("select edition from fencepost.flow")
    plan = units.plan(FlowPlan(named("new", rename={"old": "new"})))
    await harness.fp.run(flow_store.register("orders", plan, "b/boot-1"))

    with pytest.raises(Mismatch) as told:
        await harness.fp.run(
            flow_store.commit(
                "flow:orders/all",
                held.token,
                expected=None,
                frontier={},
                state=None,
                whole=True,
                edition=edition,
            )
        )
    assert told.value.noun == "flow"


async def test_state_under_the_names_of_the_version_before_is_taken_over(harness: FlowHarness) -> None:
    """It counted steps by their order in the graph, and knew no layouts."""
    await take(harness, counting(), {"count-u": 1})
    [[step]] = harness.rows("select jsonb_object_keys(steps) from fencepost.flow_layouts('orders')")
    _as_before(harness, step)

    await take(harness, counting(), {"count-u": 2})


async def test_with_another_graph_the_names_of_the_version_before_must_be_said(harness: FlowHarness) -> None:
    await take(harness, counting(), {"count-u": 1})
    [[step]] = harness.rows("select jsonb_object_keys(steps) from fencepost.flow_layouts('orders')")
    _as_before(harness, step)

    def changed(**flow: Any) -> Flow:
        orders = keyed(Flow("orders", **flow))
        sums = orders.sum(_amount, name="sums").sink(totals("sum-"))
        return sums.also(orders.count(name="counts").sink(totals("count-")))

    told = await refused(harness, changed())
    assert "fold-1 (fold)" in told
    await take(harness, changed(rename={"fold-1": "counts"}), {"count-u": 2, "sum-u": 10})


def _as_before(harness: FlowHarness, step: str) -> None:
    """As the version before has left it: other names in the state and the plan, and no layout."""
    for number, state in harness.rows(
        "select number, state from fencepost.checkpoint where state is not null"
    ):
        body = decode(bytes(state)).body
        assert body is not None
        steps = {name.replace(step, "fold-1"): pairs for name, pairs in body.steps.items()}
        older = {"versions": {"fold-1": 1}, "steps": steps, "watermark": body.watermark, "merge": None}
        with harness.database.connect_admin() as connection:
            connection.execute(
                "update fencepost.checkpoint set state = %s where number = %s",
                (flat({"body": older}), number),
            )
    harness.rows("delete from fencepost.flow_layout returning 1")
    [[plan]] = harness.rows("select plan from fencepost.flow")
    nodes = [{**{k: n[k] for k in ("kind", "section")}, "name": n["place"]} for n in plan["nodes"]]
    with harness.database.connect_admin() as connection:
        connection.execute(
            "update fencepost.flow set layout = 0, plan = %s::jsonb, shape = shape - 'inputs'",
            (json.dumps({"nodes": nodes, "edges": plan["edges"], "shape": plan["shape"]}),),
        )


def test_a_table_sink_is_no_state() -> None:
    program = FlowPlan(keyed(Flow("orders")).count(name="counts").sink(TableSink()))

    assert list(program.steps()) == ["counts"]


async def test_a_reader_of_the_graph_before_sends_nothing_to_the_groups_of_the_next(
    harness: FlowHarness,
) -> None:
    """Its entries name inputs by their numbers in its own graph."""
    worker = harness.worker(counting(2))
    running = asyncio.create_task(worker.run())
    await harness.until(lambda: len(worker.holds) == 3)
    harness.rows("update fencepost.flow set edition = edition + 1 returning name")

    async with asyncio.timeout(60):
        with pytest.raises(StartRefused, match="Another graph of the flow orders was registered"):
            await running
