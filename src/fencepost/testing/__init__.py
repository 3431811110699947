"""What our users and we test with: time that moves, crashes at a named place, faults on the wire.

Clock                             the database's time, in the test's hand
Child                             a real process: stepped, stopped, killed
crash_at, at_crash_point          a crash, or anything else, at a named place of this process
Signals                           named moments to wait for
Proxy                             late, cut and half-open connections; the reply to a COMMIT lost
History, check, once, ...         what happened, and the rules that it must keep
points_in                         the named places of a package, for a test of their names
"""

from fencepost.crashpoints import PlannedCrash
from fencepost.testing.children import Child
from fencepost.testing.clock import Clock
from fencepost.testing.crashes import at_crash_point, crash_at
from fencepost.testing.errors import ChildFailed, HistoryBroken, KitError, NotATestDatabase, PointMissed
from fencepost.testing.faults import Proxy
from fencepost.testing.history import (
    Breach,
    Entry,
    History,
    Rule,
    at_most_once,
    breaches,
    check,
    once,
    tokens_grow,
)
from fencepost.testing.points import Point, points_in
from fencepost.testing.signals import Signals
from fencepost.testing.weather import Ambush

__all__ = [
    "Ambush",
    "Breach",
    "Child",
    "ChildFailed",
    "Clock",
    "Entry",
    "History",
    "HistoryBroken",
    "KitError",
    "NotATestDatabase",
    "PlannedCrash",
    "Point",
    "PointMissed",
    "Proxy",
    "Rule",
    "Signals",
    "at_crash_point",
    "at_most_once",
    "breaches",
    "check",
    "crash_at",
    "once",
    "points_in",
    "tokens_grow",
]
