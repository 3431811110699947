"""The systems that can be tortured, by name; or given as `module:attribute`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost_torture._system_environment import System

PLACES = {
    "leases": "fencepost_torture.systems._leases:LEASES",
    "jobs": "fencepost_torture.systems._jobs:JOBS",
    "orders": "fencepost_torture.systems._orders:ORDERS",
    "players": "fencepost_torture.systems._players:PLAYERS",
    "nonces": "fencepost_torture.systems._nonces:NONCES",
    "flows": "fencepost_torture.systems._flows:FLOWS",
}
BY_NAME = {
    # A thousand effects with each call, for goals of millions.
    "bulk-nonces": "fencepost_torture.systems._nonces:BULK_NONCES",
    "bulk-flows": "fencepost_torture.systems._flows:BULK_FLOWS",
    # Hundreds a second, at all times: for faults that take seconds.
    "steady-flows": "fencepost_torture.systems._flows:STEADY_FLOWS",
    # Code paths that the others never take; a chain and a sandbox are not on every machine.
    "odd-jobs": "fencepost_torture.systems._scheduled_jobs:ODD_JOBS",
    "sinks": "fencepost_torture.systems._sinks:SINKS",
    "transactions": "fencepost_torture.systems._transactions:TRANSACTIONS",
    "judge": "fencepost_torture.systems._judge:JUDGE",
    "workflows": "fencepost_torture.systems._workflows:WORKFLOWS",
}
"""These run only when they are asked for."""


def system_of(name: str) -> System:
    """The system by its name, or by `module:attribute`."""
    places = PLACES | BY_NAME
    module, _, attribute = places.get(name, name).partition(":")
    if not attribute:
        raise ValueError(
            f"There is no system {name}; allowed: {', '.join(places)}, or module:attribute of one of your own"
        )
    found: System = getattr(importlib.import_module(module), attribute)()
    return found
