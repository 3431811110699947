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


def system_of(name: str) -> System:
    """The system by its name, or by the place of its class."""
    module, _, attribute = PLACES.get(name, name).partition(":")
    if not attribute:
        raise ValueError(
            f"There is no system {name}; allowed: {', '.join(PLACES)}, or module:attribute of one of your own"
        )
    found: System = getattr(importlib.import_module(module), attribute)()
    return found
