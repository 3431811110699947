"""Units of work: the parts of a flow, each with its own lease and frontier."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.flows._node import GraphNode
from fencepost.flows._plan import FlowPlan
from fencepost.flows.sources._source import goes_on, is_timeless, reads_of
from fencepost.kernel.call import Json


@dataclass(frozen=True, slots=True)
class RecordSender:
    """One partition of one source, under its name in frontiers."""

    name: str
    node: GraphNode
    partition: str

    @property
    def source_name(self) -> str:
        """The name of its source in the plan."""
        return self.name.removesuffix(f":{self.partition}")

    @property
    def timeless(self) -> bool:
        return is_timeless(self.node.source)

    @property
    def goes_on(self) -> bool:
        return goes_on(self.node.source)


@dataclass(frozen=True, slots=True)
class Unit:
    """`whole` reads sources and commits; `forward` reads one partition and sends; `group` receives and
    commits."""

    resource: str
    kind: str
    senders: tuple[RecordSender, ...]
    group: int = 0

    @property
    def commits(self) -> bool:
        return self.kind != "forward"


def senders_of(program: FlowPlan) -> tuple[RecordSender, ...]:
    return tuple(
        RecordSender(f"{program.names[node]}:{partition}", node, partition)
        for node in program.sources
        if node.source is not None
        for partition in node.source.partitions
    )


def divide(program: FlowPlan) -> list[Unit]:
    """With key groups: one unit per partition and one per group. Otherwise one for all keys, or one per
    partition."""
    prefix = f"flow:{program.flow.name}"
    senders = senders_of(program)
    if program.groups is not None:
        forwards = [Unit(f"{prefix}/source/{s.name}", "forward", (s,)) for s in senders]
        groups = [
            Unit(f"{prefix}/group/{group:04}", "group", senders, group) for group in range(program.groups)
        ]
        return [*forwards, *groups]
    if program.is_one:
        return [Unit(f"{prefix}/all", "whole", senders)]
    return [Unit(f"{prefix}/part/{s.name}", "whole", (s,)) for s in senders]


def shape(program: FlowPlan) -> Json:
    """What gives the frontiers of the flow's tasks their meaning: its units, its key groups, and what each
    sender reads."""
    units = "groups" if program.groups is not None else "all" if program.is_one else "parts"
    senders = {s.name: reads_of(s.node.source, s.partition) for s in senders_of(program)}
    return {"units": units, "groups": program.groups, "senders": senders, "entrances": program.inputs()}


def plan(program: FlowPlan) -> Json:
    """What a worker registers: the picture, the shape, the steps with state, and the renames and drops of
    earlier steps."""
    flow = program.flow
    return {
        **program.picture(),
        "shape": shape(program),
        "steps": program.steps(),
        "rename": dict(flow.rename),
        "drop_state": list(flow.drop_state),
    }


def slot(flow: str, number: int) -> str:
    return f"flow:{flow}/slot/{number:04}"
