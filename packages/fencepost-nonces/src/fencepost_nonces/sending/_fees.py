"""The fees of a transaction, and how they are raised when it is stuck. Wei, in whole numbers only."""

from __future__ import annotations

from dataclasses import dataclass

GWEI = 10**9
# Nodes require a tenth more, for both fees; this is a little over it, because some nodes round.
BUMP_PERCENT = 12


@dataclass(frozen=True, slots=True)
class Fees:
    """The fees of EIP-1559; without a priority fee, one gas price, as on chains before it."""

    max_fee: int
    max_priority: int | None


@dataclass(frozen=True, slots=True)
class Market:
    """The fees that the chain requires at present. Without a base fee, `tip` is the whole gas price."""

    base_fee: int | None
    tip: int

    def usual(self) -> int:
        """Enough for the base fee to double."""
        return 2 * (self.base_fee or 0) + self.tip


def suggested(market: Market, cap: int) -> Fees | None:
    """The usual fees; None when even the least that a block accepts now is above the cap: wait."""
    if market.base_fee is None:
        return None if market.tip > cap else Fees(market.tip, None)
    if market.base_fee + 1 > cap:
        return None
    offered = min(cap, market.usual())
    return Fees(offered, min(market.tip, offered))


def raised(old: Fees, market: Market, cap: int) -> Fees | None:
    """At least a tenth above the old fees, and not below the usual ones now; None when the cap forbids it.

    A gas price is replaced by a gas price: every chain still accepts those.
    """
    least = _bumped(old.max_fee)
    if least > cap:
        return None
    offered = min(cap, max(least, market.usual()))
    if old.max_priority is None:
        return Fees(offered, None)
    return Fees(offered, min(offered, max(_bumped(old.max_priority), market.tip)))


def _bumped(wei: int) -> int:
    return wei + max(1, -(-wei * BUMP_PERCENT // 100))
