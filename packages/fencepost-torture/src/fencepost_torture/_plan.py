"""The plan of a run, and how much time its end may take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fencepost_torture._pace import RunPace
from fencepost_torture._process_main import prepare
from fencepost_torture._process_pool import Preparation
from fencepost_torture._system_environment import LEASE_SECONDS, Account, SystemEnvironment
from fencepost_torture._tally import Tally
from fencepost_torture._verdict import Floors


@dataclass(frozen=True)
class RunPlan:
    """What runs, for how long, and what must hold afterwards."""

    seed: int
    seconds: float
    """Infinite where `enough` ends the run."""
    systems: Sequence[str]
    kinds: Sequence[str]
    points: Sequence[str] = ()
    """The crash points that count; empty for all that the systems have."""
    gap_seconds: float = 0.5
    lease_seconds: float = LEASE_SECONDS
    pace: RunPace = field(default_factory=RunPace)
    server_settings: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    floors: Floors = field(default_factory=Floors)
    liveness_leases: float = 5.0
    """Everything is done this many lease periods after the last fault, plus the time that the work takes."""
    patience_seconds: float = 60.0
    """How long overdue work is waited for, before it counts as lost."""
    enough: Callable[[Tally, Mapping[str, int]], bool] = lambda tally, effects: False
    """Ends the faults early, by the faults that hit and by the effects since the first fault, by system:
    neither a goal nor a test lasts longer than it needs."""
    prepare: Preparation = prepare
    """Loads the systems in the process that is forked; tests plant their bugs there."""
    prepare_arguments: Sequence[str] = ()
    before: Callable[[SystemEnvironment], None] = lambda env: None
    """Called with each system's environment before the first process; tests plant their bugs here."""
    after: Callable[[SystemEnvironment], None] = lambda env: None
    """Called with each system's environment after its check, with its database; tests read its history."""


def allowed_seconds(plan: RunPlan, seconds: float, accounts: Iterable[Account]) -> float:
    """Five lease periods, plus the time that the open work would take at the pace under faults.

    The open work was asked for while the faults lasted, so without them it takes no longer than they lasted:
    the limit is finite for a system that did nothing at all.
    """
    paces = [account.open * seconds / max(1, account.done) for account in accounts]
    return plan.liveness_leases * plan.lease_seconds + min(seconds, max(paces))
