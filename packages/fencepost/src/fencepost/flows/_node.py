"""One node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fencepost.flows import _steps as steps
from fencepost.flows._windows import Gathering
from fencepost.flows.sinks._sink import Sink
from fencepost.flows.sources._source import Source


@dataclass(frozen=True, slots=True, eq=False)
class GraphNode:
    """One node of the graph. Nodes compare by identity."""

    kind: str
    parents: tuple[GraphNode, ...] = ()
    make: Callable[[], steps.Step] = steps.Pass
    source: Source | None = None
    sink: Sink | None = None
    side: str = ""
    """`late` or `errors`: which side output of its parent it carries."""
    name: str = ""
    ordered: bool = False
    """Whether the order of the records of a key changes its result."""
    timers: bool = False
    needs_time: bool = False
    needs_key: bool = False
    at_commit: bool = False
    """Whether it emits at commits only, so that how often it emits depends on when commits happen."""
    idle_seconds: float | None = None
    """Of an event_time: after how long a silent partition no longer holds the others back."""
    version: int = 1
    functions: tuple[Callable[..., Any], ...] = ()
    """The functions that the user gave: part of the step's identity from one release to the next."""
    window: Gathering | None = None
    """The window in which it gathers records."""
    by_arrival: bool = False
    """Whether its window gathers records by when they are processed, whatever their time is."""
    variant: str = ""
    """Part of its identity beside the window: how it joins."""
    groups: int | None = None
    value: type[Any] | None = None
    """The type that records of a key_by are converted to after an exchange, which carries plain data."""

    @property
    def gathers(self) -> str | None:
        """The window and variant, as the identity of the step has them."""
        if self.window is None:
            return None
        return f"{self.window!r} {self.variant}".rstrip()

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
