"""One place of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fencepost.flows import steps
from fencepost.flows.sinks.sink import Sink
from fencepost.flows.sources.source import Source
from fencepost.flows.windows import Window


@dataclass(frozen=True, slots=True, eq=False)
class GraphNode:
    """One place of the graph. Two nodes are equal only if they are the same."""

    kind: str
    parents: tuple[GraphNode, ...] = ()
    make: Callable[[], steps.Step] = steps.Pass
    source: Source | None = None
    sink: Sink | None = None
    side: str = ""
    """`late` or `errors`: what of its parent it carries."""
    name: str = ""
    ordered: bool = False
    """Whether the order of the records of a key changes what it answers."""
    timers: bool = False
    needs_time: bool = False
    needs_key: bool = False
    at_commit: bool = False
    """Whether it speaks at commits only, so that how often depends on when they were."""
    version: int = 1
    functions: tuple[Callable[..., Any], ...] = ()
    """What a user gave it: a part of who it is from one release to the next."""
    window: Window | None = None
    """What it gathers records in."""
    groups: int | None = None
    value: type[Any] | None = None
    """What the records of a key_by are made of again behind an exchange, which carries plain data."""

    def ancestors(self) -> Iterator[GraphNode]:
        """The node and everything before it, each once, parents first."""
        seen: set[int] = set()

        def walk(node: GraphNode) -> Iterator[GraphNode]:
            if id(node) in seen:
                return
            seen.add(id(node))
            for parent in node.parents:
                yield from walk(parent)
            yield node

        yield from walk(self)

    def is_behind(self, kind: str) -> bool:
        return any(node.kind == kind for node in self.ancestors())
