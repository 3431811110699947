"""Decides which transaction used a nonce: without I/O, from reads that each name their block.

One URL may be many backends, and each read may reach another one. A count from one and a missing receipt from
another prove nothing together. So a nonce counts as used by a foreign transaction only when that transaction
is seen: in the block in which the account's count passed the nonce, read by its number and by its hash, with
as many blocks on top of it as the settings require, each with the hash of the one before it.
When answers cannot all be true, the chain is asked again.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from fencepost_nonces.sending._transaction_calls import TransactionRequest

# How many links are checked, one read each. A deeper block is checked by its number only.
LINKS_MAX = 64


class Contradiction(Exception):
    """Answers that cannot all be true of one chain."""


@dataclass(frozen=True, slots=True)
class Mined:
    """A transaction in a block. Addresses and hashes are in lower case."""

    tx_hash: str
    sender: str
    nonce: int
    order: TransactionRequest


@dataclass(frozen=True, slots=True)
class Block:
    """A block, with its transactions if they were asked for."""

    number: int
    block_hash: str
    parent_hash: str
    transactions: Sequence[Mined] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read about the block in which the account's count passed the nonce."""

    count_before: int
    count_at: int
    by_number: Block | None
    by_hash: Block | None
    on_top: Sequence[Block | None]
    """The blocks after it, in order, without their transactions."""
    head: int


class Use(Enum):
    OURS = auto()  # A version signed here is in the block: its receipt is only late.
    STRANGER = auto()  # Proved: a transaction that was signed elsewhere with the same key.
    ASK_AGAIN = auto()  # Reads are missing, contradict each other, or are not deep enough yet.
    UNPROVED = auto()  # Everything was read, and it proves neither OURS nor STRANGER.


@dataclass(frozen=True, slots=True)
class Finding:
    """Which transaction used the nonce, and why that is known or not."""

    use: Use
    why: str
    tx_hash: str | None = None
    block: Block | None = None


def passing_block(nonce: int, newest: int) -> Generator[int, int, int]:
    """Yields the number of a block, is sent the account's count at it, and returns the block that passed.

    The search begins at `newest` and doubles its steps on the way back, because most nodes keep the state of
    the last hundred blocks or so only; then it halves the interval. Raises Contradiction for counts that
    cannot all be true: a later block never counts less.
    """
    high, high_count = newest, (yield newest)
    if high_count <= nonce:
        raise Contradiction(f"block {newest} counts {high_count}, and more was counted there before")
    step, low, low_count = 1, newest, high_count
    while low_count > nonce:
        if low == 0:
            raise Contradiction(f"the first block counts {low_count} already")
        high, high_count = low, low_count
        low = max(0, newest - step)
        step *= 2
        low_count = _not_above(high, high_count, low, (yield low))
    while high - low > 1:
        middle = (low + high) // 2
        count = _not_above(high, high_count, middle, (yield middle))
        _not_above(middle, count, low, low_count)
        if count > nonce:
            high, high_count = middle, count
        else:
            low, low_count = middle, count
    return high


def _not_above(later: int, later_count: int, earlier: int, earlier_count: int) -> int:
    if earlier_count > later_count:
        raise Contradiction(
            f"block {earlier} counts {earlier_count}, and block {later} after it {later_count}"
        )
    return earlier_count


def judge(
    sender: str,
    nonce: int,
    ours: Collection[str],
    order: TransactionRequest,
    evidence: Evidence,
    confirmations: int,
) -> Finding:
    """Decide what used the nonce of `sender`. `ours` are the hashes of all versions ever signed for it."""
    unread = _not_read(nonce, evidence)
    if unread is not None:
        return Finding(Use.ASK_AGAIN, unread)
    block = evidence.by_number
    assert block is not None
    found = next((tx for tx in block.transactions if tx.sender == sender and tx.nonce == nonce), None)
    if found is None:
        # An EIP-7702 authorisation raises the count, and so does a contract that the account delegates to.
        why = f"block {block.number} counts the nonce, and no transaction in it has it"
        return Finding(Use.UNPROVED, why, None, block)
    if found.tx_hash in {tx_hash.lower() for tx_hash in ours}:
        return Finding(Use.OURS, f"it is in block {block.number}", found.tx_hash, block)
    missing = _not_deep(block, evidence, confirmations)
    if missing is not None:
        return Finding(Use.ASK_AGAIN, missing, found.tx_hash, block)
    if (found.order.to, found.order.value, found.order.data) == (order.to, order.value, order.data):
        # For example sped up from a wallet. It was signed elsewhere, and the payment is made.
        why = f"{found.tx_hash} in block {block.number} was not signed here and does the same"
        return Finding(Use.UNPROVED, why, found.tx_hash, block)
    return Finding(Use.STRANGER, f"{found.tx_hash} in block {block.number} used it", found.tx_hash, block)


def links(confirmations: int) -> int:
    """How many blocks on top of the one in question are read."""
    return min(confirmations, LINKS_MAX)


def _not_read(nonce: int, evidence: Evidence) -> str | None:
    """What contradicts that the nonce was used in this block; None when nothing does."""
    block, again = evidence.by_number, evidence.by_hash
    if block is None or again is None:
        return "the endpoint counts a block that it does not show"
    if not evidence.count_before <= nonce < evidence.count_at:
        return f"the count does not pass nonce {nonce} in block {block.number}"
    if block != again:
        return f"block {block.number} is another one when it is read by its hash"
    return None


def _not_deep(block: Block, evidence: Evidence, confirmations: int) -> str | None:
    """Why the block is not proved deep enough; None when it is."""
    if evidence.head - block.number < confirmations:
        return f"block {block.number} is not {confirmations} blocks deep"
    if len(evidence.on_top) < links(confirmations):
        return f"the blocks on top of {block.number} were not read"
    before = block
    for after in evidence.on_top:
        if after is None:
            return f"the endpoint does not show the block after {before.number}"
        if (after.number, after.parent_hash) != (before.number + 1, before.block_hash):
            return f"block {after.number} does not follow block {before.number}"
        before = after
    return None
