"""Decides the next step of a transaction that has its nonce: without I/O, from what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from fencepost_nonces.sending._transaction_calls import Open

Receipt = Mapping[str, Any]


class NextStep(Enum):
    """The steps that the functions below decide on."""

    GIVE_UP = auto()  # Cancelled before it was signed: the nonce is free again.
    SIGN = auto()
    SEND = auto()  # Its bytes are stored: send those, and no others.
    SEND_AGAIN = auto()  # The node no longer has them: send the same bytes.
    CANCEL = auto()  # A no-op takes its nonce.
    REPLACE = auto()  # Stuck: the same with a higher fee.
    RECORD_BLOCK = auto()
    TAKE_BLOCK_BACK = auto()  # A reorganisation: another block has replaced its block.
    CONFIRM = auto()
    PROVE = auto()  # The nonce is finally used, and no receipt shows by what: find the transaction.
    WAIT = auto()


@dataclass(frozen=True, slots=True)
class ChainView:
    """What the chain says about one transaction, and about its sender.

    `block_hash` is the hash of the block that the chain has now at the number of the receipt, or of the block
    that the transaction was in; None when no endpoint returns one.
    """

    head: int
    latest_count: int
    final_count: int
    receipt: Receipt | None = None
    block_hash: str | None = None
    in_pool: bool = False
    pooled_count: int = 0

    def may_be_mined(self, tx: Open) -> bool:
        """Whether to read receipts: below the count, one of its versions or a foreign one was mined."""
        return self.latest_count > tx.nonce or tx.state == "MINED"


@dataclass(frozen=True, slots=True)
class StuckPolicy:
    confirmations: int
    stuck_seconds: float


def before_sending(tx: Open) -> NextStep | None:
    """What follows from the database alone; None when the chain must be asked."""
    match tx.status:
        case "HELD":
            return NextStep.GIVE_UP if tx.cancelling else NextStep.SIGN
        case "SIGNING":
            return NextStep.SIGN
        case "SIGNED":
            return NextStep.CANCEL if tx.cancelling and tx.purpose != "cancel" else NextStep.SEND
        case _:
            return None


def after_sending(tx: Open, view: ChainView, patience: StuckPolicy) -> NextStep:
    """What follows for bytes that were sent."""
    if view.receipt is not None:
        return _of_a_block(tx, view, view.receipt, patience)
    if tx.state == "MINED":
        # A lagging backend has no receipt either. Only another block at its number proves a reorganisation.
        taken_back = view.block_hash is not None and view.block_hash != tx.block_hash
        return NextStep.TAKE_BLOCK_BACK if taken_back else NextStep.WAIT
    if view.latest_count > tx.nonce:
        # One of its versions or a foreign one has used the nonce, finally or in a block that may be reverted.
        return NextStep.PROVE if view.final_count > tx.nonce else NextStep.WAIT
    if tx.cancelling and tx.purpose != "cancel":
        return NextStep.CANCEL
    # Only the first in line is stuck; the others wait for it.
    if tx.nonce == view.latest_count and tx.signed_seconds >= patience.stuck_seconds:
        return NextStep.REPLACE
    return NextStep.WAIT if view.in_pool else NextStep.SEND_AGAIN


def _of_a_block(tx: Open, view: ChainView, receipt: Receipt, patience: StuckPolicy) -> NextStep:
    block_hash = str(receipt["blockHash"]).lower()
    if block_hash != view.block_hash:
        # The chain has another block at the receipt's number: the receipt is of a fork, or a backend lags.
        return NextStep.WAIT
    if view.head - int(receipt["blockNumber"], 16) >= patience.confirmations:
        return NextStep.CONFIRM
    return NextStep.WAIT if block_hash == tx.block_hash else NextStep.RECORD_BLOCK
