"""Classifies the errors of a chain's nodes: one table for all node implementations.

A wrong classification costs money: a temporary error taken for final gives away a nonce that is used, and a
final one taken for temporary sends the same bytes forever. An error that no row matches is temporary: sending
the same bytes again does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Meaning(StrEnum):
    """The meaning of an error; it decides what to do."""

    KNOWN = "known"
    """The node has it already: as good as sent."""
    NONCE_TOO_LOW = "nonce_too_low"
    """The nonce is used: by a version signed here, or by another holder of the key. Receipts show which."""
    NONCE_TOO_HIGH = "nonce_too_high"
    """An earlier transaction is missing: send that first."""
    UNDERPRICED = "underpriced"
    """It would replace another transaction at too low a fee: raise the fee."""
    FEE_TOO_LOW = "fee_too_low"
    """Below what a block, or the pool, accepts at present: raise the fee."""
    INSUFFICIENT_FUNDS = "insufficient_funds"
    """The sender cannot pay. The transaction waits until it can."""
    INVALID = "invalid"
    """No block will ever accept it: a no-op takes its nonce."""
    POOL_FULL = "pool_full"
    """The pool is full: the same bytes again, later."""
    PASSING = "passing"
    """Unknown: the same bytes again, later."""


# The texts for the caller. Fixed texts: a node's own message may contain anything, and be of any length.
_TOLD = {
    Meaning.NONCE_TOO_LOW: "its nonce is used already. The receipts will show by which transaction.",
    Meaning.NONCE_TOO_HIGH: "the node lacks an earlier transaction of this signer. It is sent again.",
    Meaning.UNDERPRICED: "the pool has another transaction with its nonce and a higher fee. Its "
    "fee is raised when it is stuck.",
    Meaning.FEE_TOO_LOW: "its fee is below the current minimum. It is raised when it is stuck.",
    Meaning.INSUFFICIENT_FUNDS: "the signer cannot pay for it. It is sent again until the account "
    "has enough funds.",
    Meaning.INVALID: "no block will ever take it. A no-op takes its nonce.",
    Meaning.POOL_FULL: "the pool of the node is full. It is sent again.",
    Meaning.PASSING: "the node refused it for an unknown reason. It is sent again.",
}


def told(meaning: Meaning | None) -> str | None:
    """What blocks a transaction, or None when nothing does."""
    return None if meaning is None or meaning is Meaning.KNOWN else f"{meaning}: {_TOLD[meaning]}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text, the nodes that use it, and its meaning."""

    meaning: Meaning
    text: re.Pattern[str]
    nodes: str


def _row(meaning: Meaning, text: str, nodes: str) -> Pattern:
    return Pattern(meaning, re.compile(text, re.IGNORECASE), nodes)


# The first match decides: "replacement … underpriced" comes before "underpriced".
PATTERNS: Sequence[Pattern] = (
    _row(Meaning.KNOWN, r"already ?known", "geth, erigon, reth; nethermind: AlreadyKnown"),
    _row(Meaning.KNOWN, r"known transaction", "besu, hardhat, older geth"),
    _row(Meaning.KNOWN, r"already imported|already in (the )?pool", "anvil"),
    _row(Meaning.KNOWN, r"existing tx with same hash", "erigon"),
    _row(Meaning.NONCE_TOO_LOW, r"nonce( is)? too low|oldnonce", "all; nethermind: OldNonce"),
    _row(Meaning.NONCE_TOO_HIGH, r"nonce( is)? too high|noncegap", "hardhat; nethermind: NonceGap"),
    _row(Meaning.NONCE_TOO_HIGH, r"nonce.*too distant", "besu"),
    _row(Meaning.UNDERPRICED, r"replacement.*underpriced", "geth, anvil, hardhat"),
    _row(Meaning.UNDERPRICED, r"replacementnotallowed|could not replace", "nethermind, erigon"),
    _row(Meaning.FEE_TOO_LOW, r"less than block base fee", "geth, anvil"),
    _row(Meaning.FEE_TOO_LOW, r"is too low for the next block", "hardhat"),
    _row(Meaning.FEE_TOO_LOW, r"fee ?too ?low|gas price below|underpriced", "nethermind, besu, erigon"),
    _row(Meaning.INSUFFICIENT_FUNDS, r"insufficient ?funds", "geth, anvil, erigon, nethermind"),
    _row(Meaning.INSUFFICIENT_FUNDS, r"enough funds|upfront cost exceeds", "hardhat, besu"),
    _row(Meaning.INVALID, r"intrinsic gas too (low|high)|gaslimitexceeded", "geth, anvil, nethermind"),
    _row(Meaning.INVALID, r"exceeds( the)? block gas limit|requires at least \d+ gas", "geth, hardhat"),
    _row(Meaning.INVALID, r"invalid (sender|signature|chain ?id)|wrong chain", "geth, anvil, erigon"),
    _row(Meaning.INVALID, r"incompatible eip-155", "hardhat"),
    _row(Meaning.INVALID, r"oversized data|max initcode size|exceeds the configured cap", "geth, anvil"),
    _row(Meaning.INVALID, r"priority fee.*higher than", "geth, anvil"),
    _row(Meaning.POOL_FULL, r"txpool is full|pool (is )?full|account limit exceeded", "geth, erigon"),
    _row(Meaning.POOL_FULL, r"too many transactions", "besu"),
)


def classify(message: str) -> Meaning:
    """The meaning of an error text."""
    return next((row.meaning for row in PATTERNS if row.text.search(message)), Meaning.PASSING)
