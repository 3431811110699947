"""What can be tortured, by name; or by place, as `module:attribute`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.torture.stage import System

PLACES = {
    "leases": "fencepost.torture.systems.leases:LEASES",
    "jobs": "fencepost.torture.systems.jobs:JOBS",
    "orders": "fencepost.torture.systems.orders:ORDERS",
    "players": "fencepost.torture.systems.players:PLAYERS",
    "nonces": "fencepost.torture.systems.nonces:NONCES",
    "flows": "fencepost.torture.systems.flows:FLOWS",
}
BULK = {
    "bulk-nonces": "fencepost.torture.systems.nonces:BULK_NONCES",
    "bulk-flows": "fencepost.torture.systems.flows:BULK_FLOWS",
}
"""By the thousand, for goals of millions; only by name."""


def system_of(name: str) -> System:
    """The system by its name, or by the place of its class."""
    places = PLACES | BULK
    module, _, attribute = places.get(name, name).partition(":")
    if not attribute:
        raise ValueError(
            f"There is no system {name}; allowed: {', '.join(places)}, or module:attribute of one of your own"
        )
    found: System = getattr(importlib.import_module(module), attribute)()
    return found
