"""The fees of a transaction, and how they are raised when it is stuck. Wei, in whole numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

GWEI = 10**9
Speed = Literal["slow", "standard", "fast"]
# Of the priority fees that the transactions of the last blocks paid, weighted by gas (eth_feeHistory).
PERCENTILES: Mapping[Speed, int] = {"slow": 20, "fast": 90}
HISTORY_BLOCKS = 20
# On a chain without a base fee, which has no history of priority fees.
FAST_PRICE_PERCENT = 125
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


def at_speed(market: Market, speed: Speed, paid: Mapping[Speed, int]) -> Market:
    """The market for a transaction of this speed. `standard` is what the node suggests; `slow` is never above
    it and `fast` never below it. Without a history, `slow` and `fast` are `standard`."""
    if speed == "fast" and market.base_fee is None:
        return replace(market, tip=-(-market.tip * FAST_PRICE_PERCENT // 100))
    tip = paid.get(speed)
    if tip is None or market.base_fee is None:
        return market
    return replace(market, tip=min(tip, market.tip) if speed == "slow" else max(tip, market.tip))


def tips_of(history: Mapping[str, Any]) -> Mapping[Speed, int]:
    """The median over the blocks, by speed, of an answer to eth_feeHistory. Empty blocks say nothing, and a
    fee of 0 is not offered: many nodes take none."""
    rewards: list[list[str]] = history.get("reward") or []
    rows = [
        [int(reward, 16) for reward in row]
        for row, used in zip(rewards, history["gasUsedRatio"], strict=False)
        if used > 0
    ]
    medians: dict[Speed, int] = {
        speed: sorted(row[place] for row in rows)[len(rows) // 2]
        for place, speed in enumerate(PERCENTILES)
        if rows
    }
    return {speed: tip for speed, tip in medians.items() if tip > 0}


def room_for_a_no_op(cap: int) -> int:
    """The highest fee after which one more replacement, the no-op of a deadline, still fits below the cap."""
    least = cap * 100 // (100 + BUMP_PERCENT)
    while _bumped(least) > cap:
        least -= 1
    return least


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
