"""A flow's graph as boxes and arrows: from the picture that its workers register to an SVG's geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BOX_WIDTH, BOX_HEIGHT = 150, 46
GAP_X, GAP_Y = 110, 18


@dataclass(frozen=True, slots=True)
class GraphBox:
    name: str
    kind: str
    section: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class GraphArrow:
    """From one box to another, and the position of its label."""

    edge: str
    path: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Graph:
    boxes: Sequence[GraphBox]
    arrows: Sequence[GraphArrow]
    width: int
    height: int


def lay_out(picture: Mapping[str, Any]) -> Graph:
    """From left to right by the longest path from a source; from top to bottom as they were declared."""
    nodes, edges = picture.get("nodes", ()), [(int(a), int(b)) for a, b in picture.get("edges", ())]
    depths = _depths(len(nodes), edges)
    rows: dict[int, int] = {}
    boxes: list[GraphBox] = []
    for node, depth in zip(nodes, depths, strict=True):
        row = rows.get(depth, 0)
        rows[depth] = row + 1
        place = (depth * (BOX_WIDTH + GAP_X), row * (BOX_HEIGHT + GAP_Y))
        boxes.append(GraphBox(str(node["name"]), str(node["kind"]), str(node.get("section", "")), *place))
    arrows = [_arrow(f"{a}-{b}", boxes[a], boxes[b]) for a, b in edges]
    width = (max(depths, default=0) + 1) * (BOX_WIDTH + GAP_X) - GAP_X
    height = max(rows.values(), default=1) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    return Graph(boxes, arrows, width, height)


def _depths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Parents precede their children, so that one pass in order is enough."""
    depths = [0] * count
    for node in range(count):
        depths[node] = max((depths[a] + 1 for a, b in edges if b == node and a < node), default=0)
    return depths


def edge_words(edge: Mapping[str, Any]) -> str:
    """What flows over an edge lately: a rate, what waits in the source, and how busy the receiver is."""
    told = [f"{edge['per_second']:,.0f}/s"] if edge["per_second"] is not None else []
    if edge["lag"]:
        told.append(f"{edge['lag']:,} wait")
    if edge["backpressure"]:
        told.append(f"{edge['backpressure']:.0%} busy")
    return " · ".join(told)


def _arrow(edge: str, start: GraphBox, end: GraphBox) -> GraphArrow:
    x, y = start.x + BOX_WIDTH, start.y + BOX_HEIGHT // 2
    to_x, to_y = end.x, end.y + BOX_HEIGHT // 2
    bend = (x + to_x) // 2
    path = f"M{x} {y}C{bend} {y} {bend} {to_y} {to_x} {to_y}m-7 -4l7 4l-7 4"
    return GraphArrow(edge, path, bend, (y + to_y) // 2 - 5)
