"""A release that changes the graph: state stays with its step, or the flow does not start and says what
to do."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.errors import Mismatch
from fencepost.flows import Flow, StartRefused, TableSink, ledger, units
from fencepost.flows.graph import KeyedStream
from fencepost.flows.program import Program
from fencepost.flows.sinks.postgres import PostgresUpsert
from fencepost.flows.sources.redis_streams import RedisStreams
from fencepost.flows.stored import decode
from fencepost.flows.value_codec import flat
from fencepost.kernel import lease
from tests.integration.flows.scene import Scene


def totals(prefix: str) -> PostgresUpsert:
    return PostgresUpsert("total", ["key"], ["value"], row=lambda pair: (f"{prefix}{pair[0]}", pair[1]))


def keyed(flow: Flow, groups: int | None = None) -> KeyedStream[str, Any]:
    return flow.source(RedisStreams("in")).json().key_by(_user, groups=groups)


def _user(order: Any) -> str:
    return str(order["user"])


def _amount(order: Any) -> int:
    return int(order["amount"])


def found(scene: Scene) -> dict[str, int]:
    return dict(scene.rows("select * from total"))


async def take(scene: Scene, flow: Flow, expected: dict[str, int], amount: int = 10) -> None:
    """One order more, and what the tables have then."""
    scene.redis.xadd("in", {"data": f'{{"user": "u", "amount": {amount}}}'})
    async with scene.running(scene.worker(flow)):
        await scene.until(lambda: found(scene) == expected)


async def refused(scene: Scene, flow: Flow) -> str:
    with pytest.raises(StartRefused) as told:
        await scene.worker(flow).run()
    return str(told.value)


def counting(groups: int | None = None, **flow: Any) -> Flow:
    return keyed(Flow("orders", **flow), groups).count().sink(totals("count-"))


@pytest.mark.parametrize("groups", [None, 2])
async def test_a_new_branch_above_leaves_the_state_of_the_others(scene: Scene, groups: int | None) -> None:
    await take(scene, counting(groups), {"count-u": 1})
    await take(scene, counting(groups), {"count-u": 2})

    orders = keyed(Flow("orders"), groups)
    sums = orders.sum(_amount).sink(totals("sum-"))
    await take(scene, sums.also(orders.count().sink(totals("count-"))), {"count-u": 3, "sum-u": 10})


async def test_another_branch_with_a_key_of_its_own_takes_its_own_records(scene: Scene) -> None:
    """Its border stands before the old one: entrances are found by name, not by number."""
    await take(scene, counting(2), {"count-u": 1})

    by_amount = Flow("orders").source(RedisStreams("in")).json()
    amounts = by_amount.key_by(_amount, groups=2).count(name="amounts").sink(totals("amount-"))
    users = by_amount.key_by(_user, groups=2).count().sink(totals("count-"))
    await take(scene, amounts.also(users), {"count-u": 2, "amount-10": 1})


async def test_a_removed_step_is_refused_until_its_state_is_dropped(scene: Scene) -> None:
    orders = keyed(Flow("orders"))
    sums = orders.sum(_amount, name="sums").sink(totals("sum-"))
    await take(scene, sums.also(orders.count().sink(totals("count-"))), {"count-u": 1, "sum-u": 10})

    told = await refused(scene, counting())
    assert "sums (fold)" in told
    assert "drop_state=['sums']" in told
    assert "name='sums'" in told

    await take(scene, counting(drop_state=["sums"]), {"count-u": 2, "sum-u": 10})
    await take(scene, counting(), {"count-u": 3, "sum-u": 10})


async def test_a_renamed_step_is_refused_until_it_is_said(scene: Scene) -> None:
    def named(name: str, **flow: Any) -> Flow:
        return keyed(Flow("orders", **flow)).count(name=name).sink(totals("count-"))

    await take(scene, named("old"), {"count-u": 1})

    told = await refused(scene, named("new"))
    assert "rename={'old': 'new'}" in told
    assert found(scene) == {"count-u": 1}

    await take(scene, named("new", rename={"old": "new"}), {"count-u": 2})
    # It may stay in the code, and may go.
    await take(scene, named("new", rename={"old": "new"}), {"count-u": 3})
    await take(scene, named("new"), {"count-u": 4})
    assert "rename={'new': 'old'}" in await refused(scene, named("old"))


async def test_another_function_under_a_derived_name_is_refused(scene: Scene) -> None:
    def summed(amount: Callable[[Any], Any], **options: Any) -> Flow:
        return keyed(Flow("orders")).sum(amount, **options).sink(totals("sum-"))

    await take(scene, summed(lambda order: 2 * order["amount"]), {"sum-u": 20})
    [[step]] = scene.rows("select jsonb_object_keys(steps) from fencepost.flow_layouts('orders')")

    told = await refused(scene, summed(lambda order: 3 * order["amount"]))
    assert f"{step} (fold) has another function" in told
    assert f"name='{step}'" in told

    await take(scene, summed(lambda order: 3 * order["amount"], name=step), {"sum-u": 50})


async def test_another_kind_of_step_under_a_name_is_refused(scene: Scene) -> None:
    def running(state: int | None, order: Any) -> tuple[int, list[Any]]:
        return (state or 0) + 1, [(order["user"], (state or 0) + 1)]

    await take(scene, keyed(Flow("orders")).count(name="n").sink(totals("n-")), {"n-u": 1})

    def other(**flow: Any) -> Flow:
        return keyed(Flow("orders", **flow)).stateful(running, name="n").sink(totals("n-"))

    assert "n was a fold and is a stateful" in await refused(scene, other())
    await take(scene, other(drop_state=["n"]), {"n-u": 1})
    await take(scene, other(drop_state=["n"]), {"n-u": 2})


async def test_a_savepoint_of_before_is_carried_over(scene: Scene) -> None:
    def named(name: str, **flow: Any) -> Flow:
        return keyed(Flow("orders", **flow)).count(name=name).sink(totals("count-"))

    await take(scene, named("old"), {"count-u": 1})
    await scene.fp.run(ledger.save("orders", "before"))
    await take(scene, named("new", rename={"old": "new"}), {"count-u": 2})

    await scene.fp.run(ledger.restore("orders", "before"))
    assert "rename={'old': 'new'}" in await refused(scene, named("new")), "the flow is what it was then"
    # The second order comes again: it lies behind the savepoint.
    await take(scene, named("new", rename={"old": "new"}), {"count-u": 3})

    # And the release before goes on from it too, without a word.
    await scene.fp.run(ledger.restore("orders", "before"))
    await take(scene, named("old"), {"count-u": 4})


async def test_a_worker_of_the_graph_before_cannot_commit(scene: Scene) -> None:
    def named(name: str, **flow: Any) -> Flow:
        return keyed(Flow("orders", **flow)).count(name=name).sink(totals("count-"))

    await take(scene, named("old"), {"count-u": 1})
    held = await scene.fp.run(lease.acquire("flow:orders/all", "a/boot-1", 60))
    [[edition]] = scene.rows("select edition from fencepost.flow")
    plan = units.plan(Program(named("new", rename={"old": "new"})))
    await scene.fp.run(ledger.register("orders", plan, "b/boot-1"))

    with pytest.raises(Mismatch) as told:
        await scene.fp.run(
            ledger.commit(
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


async def test_state_under_the_names_of_the_version_before_is_taken_over(scene: Scene) -> None:
    """It counted steps by their order in the graph, and knew no layouts."""
    await take(scene, counting(), {"count-u": 1})
    [[step]] = scene.rows("select jsonb_object_keys(steps) from fencepost.flow_layouts('orders')")
    _as_before(scene, step)

    await take(scene, counting(), {"count-u": 2})


async def test_with_another_graph_the_names_of_the_version_before_must_be_said(scene: Scene) -> None:
    await take(scene, counting(), {"count-u": 1})
    [[step]] = scene.rows("select jsonb_object_keys(steps) from fencepost.flow_layouts('orders')")
    _as_before(scene, step)

    def changed(**flow: Any) -> Flow:
        orders = keyed(Flow("orders", **flow))
        sums = orders.sum(_amount, name="sums").sink(totals("sum-"))
        return sums.also(orders.count(name="counts").sink(totals("count-")))

    told = await refused(scene, changed())
    assert "fold-1 (fold)" in told
    await take(scene, changed(rename={"fold-1": "counts"}), {"count-u": 2, "sum-u": 10})


def _as_before(scene: Scene, step: str) -> None:
    """As the version before has left it: other names in the state and the plan, and no layout."""
    for number, state in scene.rows("select number, state from fencepost.checkpoint where state is not null"):
        body = decode(bytes(state)).body
        assert body is not None
        steps = {name.replace(step, "fold-1"): pairs for name, pairs in body.steps.items()}
        older = {"versions": {"fold-1": 1}, "steps": steps, "watermark": body.watermark, "merge": None}
        with scene.database.connect_admin() as connection:
            connection.execute(
                "update fencepost.checkpoint set state = %s where number = %s",
                (flat({"body": older}), number),
            )
    scene.rows("delete from fencepost.flow_layout returning 1")
    [[plan]] = scene.rows("select plan from fencepost.flow")
    nodes = [{**{k: n[k] for k in ("kind", "section")}, "name": n["place"]} for n in plan["nodes"]]
    with scene.database.connect_admin() as connection:
        connection.execute(
            "update fencepost.flow set layout = 0, plan = %s::jsonb, shape = shape - 'entrances'",
            (json.dumps({"nodes": nodes, "edges": plan["edges"], "shape": plan["shape"]}),),
        )


def test_a_table_sink_is_no_state() -> None:
    program = Program(keyed(Flow("orders")).count(name="counts").sink(TableSink()))

    assert list(program.steps()) == ["counts"]


async def test_a_reader_of_the_graph_before_sends_nothing_to_the_groups_of_the_next(scene: Scene) -> None:
    """Its entries name entrances by their numbers in its own graph."""
    worker = scene.worker(counting(2))
    running = asyncio.create_task(worker.run())
    await scene.until(lambda: len(worker.holds) == 3)
    scene.rows("update fencepost.flow set edition = edition + 1 returning name")

    async with asyncio.timeout(60):
        with pytest.raises(StartRefused, match="Another graph of the flow orders was registered"):
            await running
