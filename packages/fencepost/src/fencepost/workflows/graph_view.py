"""A declared graph as it stands, for pages and programs that show it.

view = await fp.run(graph_view(workflow_id))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from fencepost.kernel import _workflow as kernel
from fencepost.kernel.call import Call, Json, Row
from fencepost.workflows._graph_plan import NodePlan, Plan
from fencepost.workflows._graph_runner import ENDED

NodeState = Literal["waiting", "pending", "running", "finished", "failed", "skipped"]
"""Waiting for other nodes; its jobs wait for a worker; they run; and how it ended."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. The counts are of its jobs: one, or as many as it fanned out to; all 0 before it begins."""

    name: str
    kind: str
    queue: str
    state: NodeState
    because: str | None
    """Why it failed or was skipped."""
    conditions: Sequence[str]
    on_failure: str
    fans_out_over: str | None
    jobs: int = 0
    remaining: int = 0
    running: int = 0
    finished: int = 0
    dead: int = 0
    cancelled: int = 0
    first_job_id: int | None = None
    batch_id: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EdgeView:
    """`target` is decided when `source` has ended. `carries` says for what: its result, only the order, or a
    condition."""

    source: str
    target: str
    carries: Sequence[Literal["result", "order", "condition"]]


@dataclass(frozen=True, slots=True)
class GraphView:
    workflow_id: int
    name: str
    state: str
    """The state of the workflow, as of a job."""
    nodes: Sequence[NodeView]
    """Each after all that it depends on."""
    edges: Sequence[EdgeView]


def graph_view(workflow_id: int) -> Call[GraphView | None]:
    """The nodes, edges and states of a workflow that was started as a graph, chain, group or chord; None
    for any other. A call: `fp.run(graph_view(7))`, or on a connection of yours."""
    call = kernel.graph(workflow_id)

    def read(rows: Sequence[Row]) -> GraphView | None:
        stored = call.read(rows)
        return None if stored is None else _view(workflow_id, stored)

    return Call(call.sql, call.arguments, read)


def _view(workflow_id: int, stored: kernel.StoredGraph) -> GraphView:
    plan = Plan.read(stored.document)
    steps = {str(step["name"]): step for step in stored.steps}
    nodes = [_node(node, steps.get(node.name), steps.get(node.name + ENDED)) for node in plan.nodes]
    edges = [edge for node in plan.nodes for edge in _edges(node)]
    return GraphView(workflow_id, plan.name, stored.state, nodes, edges)


def _node(plan: NodePlan, spawned: Mapping[str, Json] | None, ended: Mapping[str, Json] | None) -> NodeView:
    each = plan.each
    view = NodeView(
        name=plan.name,
        kind=plan.kind,
        queue=plan.queue,
        state="waiting",
        because=None,
        conditions=[str(condition) for condition in plan.when],
        on_failure=plan.on_failure,
        fans_out_over=None if each is None else str(each.source),
    )
    if spawned is not None:
        running = spawned["running"] or 0
        view = replace(
            view,
            state="running" if running else "pending",
            jobs=spawned["size"] or 0,
            remaining=spawned["remaining"] or 0,
            running=running,
            finished=spawned["finished"] or 0,
            dead=spawned["dead"] or 0,
            cancelled=spawned["cancelled"] or 0,
            first_job_id=spawned["first_job"],
            batch_id=spawned["batch"],
            started_at=datetime.fromisoformat(spawned["at"]),
        )
        if not view.remaining:
            # Its end is recorded by the next run of the workflow.
            view = replace(view, state="failed" if view.dead or view.cancelled else "finished")
    if ended is not None:
        told = ended["ended"]
        at = datetime.fromisoformat(ended["at"])
        view = replace(view, state=told["state"], because=told["because"], ended_at=at)
    return view


def _edges(node: NodePlan) -> list[EdgeView]:
    carried: dict[str, list[Literal["result", "order", "condition"]]] = {n: [] for n in node.predecessors}
    for given in node.inputs:
        carried[given.source.node].append("result")
    for condition in node.when:
        carried[condition.source.node].append("condition")
    for name in node.after:
        carried[name].append("order")
    return [EdgeView(name, node.name, tuple(dict.fromkeys(carries))) for name, carries in carried.items()]
