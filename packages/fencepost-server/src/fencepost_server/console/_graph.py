"""A flow's graph as boxes and arrows: from the picture that its workers register to an SVG's geometry.

It goes from left to right where that fits the page, and from top to bottom where it does not, as on a phone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost_server.web.words import say

BOX_HEIGHT = 46
GAP_X, GAP_Y = 96, 26
"""Between boxes, when the graph goes to the right: the label of an arrow stands in the first."""
DOWN_X, DOWN_Y = 24, 52
"""The same when it goes down: the label stands beside its arrow."""
PAGE_WIDTH = 1150
"""What the page of a flow has room for without making the names much smaller."""
# A name of this many characters fits a box of the width that is computed for it.
CHARACTER_WIDTH, PADDING = 8, 24
WIDTH_MIN, WIDTH_MAX = 96, 256
NAME_MAX = (WIDTH_MAX - PADDING) // CHARACTER_WIDTH
INNER = frozenset({"map", "filter", "flat_map", "json", "enrich", "event_time"})
"""Kinds that only pass records on: a chain of them is folded into one box."""


@dataclass(frozen=True, slots=True)
class GraphBox:
    name: str
    kind: str
    section: str
    x: int
    y: int
    width: int
    names: Sequence[str] = ()
    """Every node that the box stands for."""
    is_failing: bool = False

    @property
    def title(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class GraphArrow:
    """From one box to another, and the position of its label. `edge` has the numbers of the nodes."""

    edge: str
    path: str
    x: int
    y: int
    is_down: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    boxes: Sequence[GraphBox]
    arrows: Sequence[GraphArrow]
    width: int
    height: int
    folded: int = 0
    """How many nodes are not drawn by themselves."""


def draw(picture: Mapping[str, Any], *, failing: Collection[str] = (), fold: bool = True) -> Sequence[Graph]:
    """The graph for a wide page and for a phone, or the one that is for both."""
    wide = lay_out(picture, failing=failing, fold=fold)
    narrow = lay_out(picture, failing=failing, fold=fold, down=True)
    is_too_wide = wide.width > PAGE_WIDTH and narrow.width < wide.width
    return (narrow,) if is_too_wide else (wide, narrow)


def lay_out(
    picture: Mapping[str, Any], *, failing: Collection[str] = (), fold: bool = True, down: bool = False
) -> Graph:
    """Onward by the longest path from a source; beside one another as they were declared."""
    nodes: Sequence[Mapping[str, Any]] = picture.get("nodes", ())
    edges = [(int(a), int(b)) for a, b in picture.get("edges", ())]
    chains = _chains(nodes, edges) if fold else [[number] for number in range(len(nodes))]
    box_of = {node: box for box, chain in enumerate(chains) for node in chain}
    drawn = [(a, b) for a, b in edges if box_of[a] != box_of[b]]
    links = [(box_of[a], box_of[b]) for a, b in drawn]
    depths = _depths(len(chains), links)
    told = [_words(nodes, chain) for chain in chains]
    widths = [_box_width(name, kind) for name, kind in told]
    places = _downward(depths, widths) if down else _rightward(depths, widths)
    boxes: list[GraphBox] = []
    for chain, place, (name, kind) in zip(chains, places, told, strict=True):
        names = [str(nodes[node]["name"]) for node in chain]
        section = str(nodes[chain[0]].get("section", ""))
        is_failing = any(one in failing for one in names)
        boxes.append(GraphBox(name, kind, section, *place, names, is_failing))
    arrows = [_arrow(f"{a}-{b}", boxes[box_of[a]], boxes[box_of[b]], down=down) for a, b in drawn]
    width = max((box.x + box.width for box in boxes), default=0)
    height = max((box.y + BOX_HEIGHT for box in boxes), default=0)
    return Graph(boxes, arrows, width, height, len(nodes) - len(chains))


def _box_width(name: str, kind: str) -> int:
    return min(WIDTH_MAX, max(WIDTH_MIN, max(len(name), len(kind)) * CHARACTER_WIDTH + PADDING))


def _rightward(depths: Sequence[int], widths: Sequence[int]) -> list[tuple[int, int, int]]:
    """x, y and width of each box: a column for each depth, as wide as its widest box."""
    columns = [0] * (max(depths, default=0) + 1)
    for depth, width in zip(depths, widths, strict=True):
        columns[depth] = max(columns[depth], width)
    left = [sum(columns[:depth]) + depth * GAP_X for depth in range(len(columns))]
    rows: dict[int, int] = {}
    places: list[tuple[int, int, int]] = []
    for depth in depths:
        row = rows.get(depth, 0)
        rows[depth] = row + 1
        places.append((left[depth], row * (BOX_HEIGHT + GAP_Y), columns[depth]))
    return places


def _downward(depths: Sequence[int], widths: Sequence[int]) -> list[tuple[int, int, int]]:
    """x, y and width of each box: a row for each depth, the rows one in the middle of the other."""
    spans = dict.fromkeys(depths, -DOWN_X)
    for depth, width in zip(depths, widths, strict=True):
        spans[depth] += width + DOWN_X
    widest = max(spans.values(), default=0)
    next_x = {depth: (widest - span) // 2 for depth, span in spans.items()}
    places: list[tuple[int, int, int]] = []
    for depth, width in zip(depths, widths, strict=True):
        places.append((next_x[depth], depth * (BOX_HEIGHT + DOWN_Y), width))
        next_x[depth] += width + DOWN_X
    return places


def _chains(nodes: Sequence[Mapping[str, Any]], edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The nodes in order, neighbours that only pass records on as one chain."""
    children: dict[int, list[int]] = {}
    parents: dict[int, list[int]] = {}
    for a, b in edges:
        children.setdefault(a, []).append(b)
        parents.setdefault(b, []).append(a)
    chains: list[list[int]] = []
    chain_of: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        above = parents.get(number, [])
        joins = (
            len(above) == 1
            and len(children[above[0]]) == 1
            and node["kind"] in INNER
            and nodes[above[0]]["kind"] in INNER
            and node.get("section") == nodes[above[0]].get("section")
        )
        chain = chain_of[above[0]] if joins else []
        if not joins:
            chains.append(chain)
        chain.append(number)
        chain_of[number] = chain
    return chains


def _words(nodes: Sequence[Mapping[str, Any]], chain: Sequence[int]) -> tuple[str, str]:
    """The two lines of a box: the name, and the kind with the section and the stage, of several."""
    first, last = nodes[chain[0]], nodes[chain[-1]]
    section = f" · {first['section']}" if first.get("section") else ""
    if first.get("stage"):
        section = f"{section} {first['stage']}"
    if len(chain) == 1:
        return _fitting(str(first["name"])), f"{first['kind']}{section}"
    return _fitting(f"{first['name']} … {last['name']}"), say(
        "{chain} steps{section}", chain=len(chain), section=section
    )


def _fitting(name: str) -> str:
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 1]}…"


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
        told.append(say("{lag} wait", lag=f"{edge['lag']:,}"))
    if edge["backpressure"]:
        told.append(say("{backpressure} busy", backpressure=f"{edge['backpressure']:.0%}"))
    return " · ".join(told)


def _arrow(edge: str, start: GraphBox, end: GraphBox, *, down: bool) -> GraphArrow:
    if down:
        x, y = start.x + start.width // 2, start.y + BOX_HEIGHT
        to_x, to_y = end.x + end.width // 2, end.y
        bend = (y + to_y) // 2
        path = f"M{x} {y}C{x} {bend} {to_x} {bend} {to_x} {to_y}m-4 -7l4 7l4 -7"
        return GraphArrow(edge, path, (x + to_x) // 2 + 10, bend, is_down=True)
    x, y = start.x + start.width, start.y + BOX_HEIGHT // 2
    to_x, to_y = end.x, end.y + BOX_HEIGHT // 2
    bend = (x + to_x) // 2
    path = f"M{x} {y}C{bend} {y} {bend} {to_y} {to_x} {to_y}m-7 -4l7 4l-7 4"
    return GraphArrow(edge, path, bend, (y + to_y) // 2 - 6)
