"""What a run is to be, and how much time its end may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fencepost_torture.pace import RunPace
from fencepost_torture.process_pool import NURSERY
from fencepost_torture.system_environment import LEASE_SECONDS, Account, SystemEnvironment
from fencepost_torture.tally import Tally
from fencepost_torture.verdict import Floors


@dataclass(frozen=True)
class RunPlan:
    """What is run, for how long, and what must be so afterwards."""

    seed: int
    seconds: float
    """Infinite where `enough` ends it."""
    systems: Sequence[str]
    kinds: Sequence[str]
    points: Sequence[str] = ()
    """The crash points that count; none for all that the systems have."""
    gap_seconds: float = 0.5
    lease_seconds: float = LEASE_SECONDS
    pace: RunPace = field(default_factory=RunPace)
    server_settings: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    floors: Floors = field(default_factory=Floors)
    liveness_leases: float = 5.0
    """So many lease periods after the last fault everything is done, beside the time that the work takes."""
    patience_seconds: float = 60.0
    """How long what is late is waited for, before it is called lost."""
    enough: Callable[[Tally, Mapping[str, int]], bool] = lambda tally, effects: False
    """Ends the faults before their time, by what has hit and by the effects since the first fault, by system:
    neither a goal nor a test lasts longer than what it wants to see."""
    fork_server: str = NURSERY
    fork_server_arguments: Sequence[str] = ()
    before: Callable[[SystemEnvironment], None] = lambda stage: None
    """Called with each stage before the first process; tests plant their bugs here."""
    after: Callable[[SystemEnvironment], None] = lambda stage: None
    """Called with each stage when it is judged, and its database still there; tests take its history here."""


def allowed_seconds(plan: RunPlan, seconds: float, accounts: Iterable[Account]) -> float:
    """Five lease periods, and as long as the work that is open took while there were faults.

    It was asked for while they lasted, so without them it takes no longer than they did: a system that did
    nothing at all has not all the time in the world.
    """
    paces = [account.open * seconds / max(1, account.done) for account in accounts]
    return plan.liveness_leases * plan.lease_seconds + min(seconds, max(paces))
