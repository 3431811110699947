"""The keyed stages of a graph: which of its steps share a task. No I/O.

Steps that are connected without a `key_by` in between share a task, since they share keys. So the graph falls
into parts, each behind one `key_by` or several. A part that receives from sources alone belongs to the first
stage, and every other one to the stage after the last that it receives from. All parts of a stage run in the
same tasks, one for each key group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.flows._errors import GraphRefused
from fencepost.flows._node import GraphNode

if TYPE_CHECKING:
    from fencepost.flows._plan import FlowPlan


@dataclass(frozen=True, slots=True, eq=False)
class StagePlan:
    """One keyed stage: its steps and sinks, and the numbers of the borders through which it receives and
    sends."""

    number: int
    """From 1."""
    groups: int | None
    nodes: frozenset[GraphNode]
    sinks: tuple[GraphNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sends_to: frozenset[int]
    """The numbers of the stages that it sends to."""

    def receives_from(self, other: StagePlan) -> bool:
        return self.number in other.sends_to


class _Parts:
    """Sets of connected nodes, which can be joined."""

    def __init__(self, nodes: Iterable[GraphNode]) -> None:
        self._of = {node: node for node in nodes}

    def of(self, node: GraphNode) -> GraphNode:
        """The node that stands for the part."""
        while self._of[node] is not node:
            node = self._of[node]
        return node

    def __contains__(self, node: GraphNode) -> bool:
        return node in self._of

    def join(self, nodes: Sequence[GraphNode]) -> None:
        for node in nodes[1:]:
            self._of[self.of(node)] = self.of(nodes[0])


def stages_of(
    program: FlowPlan, borders: Mapping[GraphNode, int], body: Sequence[GraphNode]
) -> list[StagePlan]:
    """The keyed stages, in order; one that has everything without key groups, or without a second key_by."""
    parts = _parts(program, borders, body)
    levels = _levels(program, borders, body, parts)
    members: dict[int, list[GraphNode]] = {level: [] for level in range(1, max([1, *levels.values()]) + 1)}
    for node in body:
        members[levels[parts.of(node)]].append(node)
    targets = {border: levels[parts.of(border)] for border in borders}
    keyed = [border for border in borders if border.kind == "key_by"]
    return [
        StagePlan(
            level,
            _groups_of([border for border in keyed if targets[border] == level]),
            frozenset(nodes),
            tuple(n for n in program.flow.sinks if n in nodes or targets.get(n) == level),
            tuple(number for border, number in borders.items() if targets[border] == level),
            tuple(number for border, number in borders.items() if _sends(border, nodes, targets, level)),
            frozenset(to for border, to in targets.items() if _sends(border, nodes, targets, level)),
        )
        for level, nodes in members.items()
    ]


def _sends(
    border: GraphNode, nodes: Sequence[GraphNode], targets: Mapping[GraphNode, int], level: int
) -> bool:
    """Whether a stage sends through a border: its parent is a step of the stage, or a border to it."""
    return any(parent in nodes or targets.get(parent) == level for parent in border.parents)


def _groups_of(keyed: Sequence[GraphNode]) -> int | None:
    asked = {node.groups for node in keyed}
    if len(asked) > 1:
        raise GraphRefused(
            f"The streams of one flow are keyed into different numbers of groups: {asked}. Streams that meet "
            "need the same number, and so do all that come from sources alone."
        )
    return next(iter(asked), None)


def _parts(program: FlowPlan, borders: Mapping[GraphNode, int], body: Sequence[GraphNode]) -> _Parts:
    parts = _Parts([*borders, *body])
    for node in body:
        parents: Iterable[GraphNode] = node.parents
        if node.side == "errors" and node.parents[0] in borders:
            # A key_by fails where it is called: in the stage before it.
            parents = node.parents[0].parents
        parts.join([node, *(parent for parent in parents if parent in parts)])
    for clock in program.nodes:
        if clock.kind == "event_time":
            parts.join(_deciding(program, clock, borders, body))
    return parts


def _deciding(
    program: FlowPlan, clock: GraphNode, borders: Mapping[GraphNode, int], body: Sequence[GraphNode]
) -> list[GraphNode]:
    """What must be in one stage, so that it is known there which records of an event_time are late: the
    windows that they come to, and the steps behind `.late`."""
    if not program.windows_decide(clock):
        return []
    windows = [node for node in first_windows(program.nodes, clock) if not node.by_arrival]
    late = [node for node in body if node.side == "late" and node.parents == (clock,)]
    entered = [each for each in borders if program.enters(each) and program.clock_of(each) is clock]
    return [*(windows or entered[:1]), *late]


def first_windows(nodes: Sequence[GraphNode], clock: GraphNode) -> list[GraphNode]:
    """The windows and joins that records of an event_time come to, and not only what windows emit."""
    reached, found = {clock}, list[GraphNode]()
    for node in nodes:
        if node.side != "late" and any(parent in reached for parent in node.parents):
            found += [node] if node.window is not None else []
            reached |= set() if node.window is not None else {node}
    return found


def _levels(
    program: FlowPlan, borders: Mapping[GraphNode, int], body: Sequence[GraphNode], parts: _Parts
) -> dict[GraphNode, int]:
    """The stage of each part: 1, or one more than the highest that it receives from."""
    before: dict[GraphNode, dict[GraphNode, GraphNode]] = {parts.of(node): {} for node in (*borders, *body)}
    for border in borders:
        for parent in border.parents:
            if parent in parts:
                before[parts.of(border)][parts.of(parent)] = border
    levels: dict[GraphNode, int] = {}

    def level(part: GraphNode, way: tuple[GraphNode, ...]) -> int:
        if part not in levels:
            for other, border in before.get(part, {}).items():
                if other in (part, *way):
                    raise GraphRefused(
                        f"{program.names[border]} brings records back to steps that they come from: these "
                        "steps also take a stream that was keyed before. Give that stream a key_by of its "
                        "own for each use. Windows that decide which records of one event_time are late "
                        "must lie behind the same key_by."
                    )
                level(other, (*way, part))
            levels[part] = 1 + max((levels[other] for other in before.get(part, {})), default=0)
        return levels[part]

    for part in before:
        level(part, ())
    return levels
