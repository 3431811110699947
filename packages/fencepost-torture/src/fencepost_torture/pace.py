"""How a run gets to more faults in the same time. None is softer for it, and nothing is judged less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OPEN_MAX = 60


@dataclass(frozen=True, slots=True)
class RunPace:
    """What a goal of thousands sets; a run without one has these."""

    crowd: int = 1
    """So many times the processes of each system: who sleeps costs nothing, and others go on."""
    crowds: Mapping[str, int] = field(default_factory=dict[str, int])
    """The same of systems that have another."""
    open_max: int = OPEN_MAX
    """How much work lies ready for each system."""
    helpings_per_second: Mapping[str, float] = field(default_factory=dict[str, float])
    """How often systems are asked for work, where that is not as often as they get it done."""
    weights: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often kinds come, where that is not as often as the table of the schedule says."""
    shares: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often systems are struck, where that is not as often as the others."""
    abreast: bool = False
    """What befalls Redis has a schedule of its own, and waits for nothing that befalls PostgreSQL."""
    evenly: bool = False
    """Every other order to end or to stop somewhere is for a crash point that was hit least so far, and a
    system is struck as often as it has crash points."""
    rests: bool = False
    """The next blow comes when the last is healed, every system has done something, and the gap is over."""

    def shares_of(self, points: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
        """How often systems with these crash points are struck, of those for which it is not once."""
        by_points = {name: len(own) for name, own in points.items()} if self.evenly else {}
        return {**by_points, **self.shares}
