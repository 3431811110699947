"""Where dead letters re-enter a graph: before the step that could not process them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fencepost.flows._dead_letters import DeadLetterSource, key_of, value_of
from fencepost.flows._errors import GraphRefused
from fencepost.flows._node import GraphNode
from fencepost.flows._steps import KeyBy, Map
from fencepost.flows.sinks._rejecting import DeadLetters


def with_replays(step: GraphNode, flow: str, name: str, kind: type[Any] | None) -> GraphNode:
    """The same step, which also takes replayed records. After key_by they are replayed under their key."""
    if not step.parents:
        raise GraphRefused("dead_letters must follow the step whose failures it keeps.")
    parent, *others = step.parents
    again = GraphNode("source", source=DeadLetterSource(flow, name), name=f"dead-{name}")
    if parent.is_behind("key_by"):
        again = _keyed(again, parent, name)
    revive = value_of(kind)
    values = GraphNode("map", (again,), lambda: Map(revive), name=f"dead-{name}-value")
    return replace(step, parents=(GraphNode("union", (parent, values)), *others))


def with_rejected(sink: GraphNode, flow: str, letters: DeadLetters) -> GraphNode:
    """The same sink, which also takes values that it once rejected, when an operator replays them."""
    if not letters.replays:
        return sink
    [parent] = sink.parents
    if parent.is_behind("key_by") and parent.is_behind("event_time"):
        raise GraphRefused(
            "A sink after key_by in event time cannot be given its rejected values again. Use "
            f"DeadLetters({letters.name!r}, replays=False): they are kept and shown, with body and answer."
        )
    return with_replays(sink, flow, letters.name, letters.value)


def _keyed(again: GraphNode, parent: GraphNode, name: str) -> GraphNode:
    if parent.is_behind("event_time"):
        raise GraphRefused(
            "dead_letters stands behind key_by in event time: a record that comes back has no place in "
            "windows that are closed. Do what may fail before key_by, or end with .errors.sink(...)."
        )
    groups = next(node.groups for node in parent.ancestors() if node.kind == "key_by")
    return GraphNode("key_by", (again,), lambda: KeyBy(key_of), groups=groups, name=f"dead-{name}-key")
