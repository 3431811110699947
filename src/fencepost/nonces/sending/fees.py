"""What a transaction offers, and by how much it is raised when it is stuck. Wei, and whole numbers only."""

from __future__ import annotations

from dataclasses import dataclass

GWEI = 10**9
# Nodes ask for a tenth more, of both; a little over it, because some round.
BUMP_PERCENT = 12


@dataclass(frozen=True, slots=True)
class Fees:
    """As EIP-1559 has them."""

    max_fee: int
    max_priority: int


def suggested(base_fee: int, priority: int, cap: int) -> Fees | None:
    """Enough for the base fee to double; None when even the present one is above the cap: wait."""
    if base_fee + 1 > cap:
        return None
    offered = min(cap, 2 * base_fee + priority)
    return Fees(offered, min(priority, offered))


def raised(old: Fees, base_fee: int, priority: int, cap: int) -> Fees | None:
    """At least a tenth above the old ones, and not below what is usual now; None when the cap forbids it."""
    least = Fees(_bumped(old.max_fee), _bumped(old.max_priority))
    if least.max_fee > cap:
        return None
    fresh = suggested(base_fee, priority, cap) or least
    offered = min(cap, max(least.max_fee, fresh.max_fee))
    return Fees(offered, min(offered, max(least.max_priority, fresh.max_priority)))


def _bumped(wei: int) -> int:
    return wei + max(1, -(-wei * BUMP_PERCENT // 100))
