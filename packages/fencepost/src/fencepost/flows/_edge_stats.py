"""Traffic over each edge of the graph, and how units spend their time: for display only."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencepost.kernel.call import Json

if TYPE_CHECKING:
    from fencepost.flows._node import GraphNode
    from fencepost.flows._plan import FlowPlan
    from fencepost.flows._steps import Step


@dataclass(frozen=True, slots=True)
class EdgeStats:
    """What a unit has done since it began: records by edge, and seconds spent waiting."""

    edges: Mapping[str, int]
    lags: Mapping[str, int | None]
    idle_seconds: float
    """Seconds without work."""
    blocked_seconds: float | None = None
    """Seconds in which it could not send what it had; None for a unit that sends nothing."""
    taken: Mapping[str, int] = field(default_factory=dict[str, int])
    """Records read so far, by partition of a source, as the source counts them."""
    uncommitted_seconds: float = 0.0
    """Seconds since it took in the oldest record that is not committed; 0 when there is none."""


class UnitClock:
    """Counts the seconds in which a unit waits, including a wait that is still in progress."""

    def __init__(self) -> None:
        self._idle_seconds = 0.0
        self._blocked_seconds = 0.0
        self._idle_since: float | None = None

    @property
    def idle_seconds(self) -> float:
        under_way = 0.0 if self._idle_since is None else time.monotonic() - self._idle_since
        return self._idle_seconds + under_way

    @property
    def blocked_seconds(self) -> float:
        return self._blocked_seconds

    @contextmanager
    def idle(self) -> Generator[None]:
        began = self._idle_since = time.monotonic()
        try:
            yield
        finally:
            self._idle_since = None
            self._idle_seconds += time.monotonic() - began

    @contextmanager
    def blocked(self) -> Generator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._blocked_seconds += time.monotonic() - began


def counted(program: FlowPlan, steps: Mapping[GraphNode, Step]) -> dict[str, int]:
    """Records by edge, named by the node numbers of the plan.

    A border is part of a source stage and of a keyed stage; an edge is counted in the stage of its child.
    """
    numbers = {node: number for number, node in enumerate(program.nodes)}
    return {
        f"{numbers[parent]}-{numbers[node]}": steps[parent].counts[node.side]
        for node in program.nodes
        for parent in node.parents
        if parent in steps and node in steps
    }


def activity(before: EdgeStats, now: EdgeStats, seconds: float, *, reads: Sequence[str]) -> Json:
    """The activity report of a unit: rates and shares over the last `seconds`. `reads` are its sources; a
    unit that reads channels has none, and what waits for it there is not counted in records."""
    rates = {
        edge: round(max(0, count - before.edges.get(edge, 0)) / seconds, 2)
        for edge, count in now.edges.items()
    }
    idle = (now.idle_seconds - before.idle_seconds) / seconds
    blocked: float | None = None
    if now.blocked_seconds is not None:
        blocked = _share((now.blocked_seconds - (before.blocked_seconds or 0.0)) / seconds)
    return {
        "edges": rates,
        "lag": dict(now.lags) if reads else {},
        "waiting": {} if reads else dict(now.lags),
        "busy": _share(1 - idle),
        "blocked": blocked,
        "reads": list(reads),
    }


def _share(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 3)
