"""How a run gets to more faults in the same time. No fault is milder for it, and every check stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OPEN_MAX = 60


@dataclass(frozen=True, slots=True)
class RunPace:
    """What a goal of thousands of faults sets; a run without a goal has these defaults."""

    crowd: int = 1
    """Multiplies the processes of each system: a stopped process costs nothing, and others go on."""
    crowds: Mapping[str, int] = field(default_factory=dict[str, int])
    """The same for single systems."""
    open_max: int = OPEN_MAX
    """How much work is kept open for each system."""
    helpings_per_second: Mapping[str, float] = field(default_factory=dict[str, float])
    """How often systems are asked for work, where that is not as often as they finish it."""
    weights: Mapping[str, int] = field(default_factory=dict[str, int])
    """The weights of kinds of fault that differ from the table of the schedule."""
    shares: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often a system is hit relative to the others, where that is not 1."""
    abreast: bool = False
    """Faults of Redis have a schedule of their own, and do not wait for faults of PostgreSQL."""
    evenly: bool = False
    """Every other order to end or to stop at a crash point is for one that was hit least so far, and a system
    is hit in proportion to the number of its crash points."""
    rests: bool = False
    """The next fault comes when the last is healed, every system has done something, and the gap is over."""

    def shares_of(self, points: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
        """The shares of systems with these crash points, where they are not 1."""
        by_points = {name: len(own) for name, own in points.items()} if self.evenly else {}
        return {**by_points, **self.shares}
