"""What follows for a transaction: one table, without a chain and without a database."""

from typing import Any

import pytest

from fencepost_nonces.sending._fees import Fees
from fencepost_nonces.sending._next_step import (
    ChainView,
    NextStep,
    StuckPolicy,
    after_sending,
    before_sending,
)
from fencepost_nonces.sending._transaction_calls import Open, TransactionRequest

PATIENCE = StuckPolicy(confirmations=3, stuck_seconds=60)


def tx(**more: Any) -> Open:
    facts: dict[str, Any] = {
        "transaction_id": 1,
        "state": "BOUND",
        "nonce": 5,
        "hold": 1,
        "status": "BROADCAST",
        "order": TransactionRequest("0x" + "1" * 40, 1, b"", 21_000),
        "fees": Fees(10, 1),
        "block_hash": None,
        "raw": b"bytes",
        "hashes": ["0xaa"],
        "signed_seconds": 10.0,
        "cancelling": False,
        "rejected": False,
        "purpose": "send",
        "error": None,
    }
    return Open(**{**facts, **more})


def mined_in(number: int, block: str = "0xb1") -> dict[str, str]:
    return {"blockNumber": hex(number), "blockHash": block}


@pytest.mark.parametrize(
    ("status", "cancelling", "step"),
    [
        ("HELD", False, NextStep.SIGN),
        ("HELD", True, NextStep.GIVE_UP),
        ("SIGNING", False, NextStep.SIGN),
        ("SIGNING", True, NextStep.SIGN),  # It may have been signed: it must be stored to be cancelled.
        ("SIGNED", False, NextStep.SEND),
        ("SIGNED", True, NextStep.CANCEL),
        ("BROADCAST", False, None),
    ],
)
def test_before_it_is_sent(status: Any, cancelling: bool, step: NextStep | None) -> None:
    assert before_sending(tx(status=status, cancelling=cancelling)) is step


@pytest.mark.parametrize(
    ("facts", "view", "step"),
    [
        ({}, ChainView(9, 5, 0, in_pool=True), NextStep.WAIT),
        ({}, ChainView(9, 5, 0, in_pool=False), NextStep.SEND_AGAIN),
        ({"signed_seconds": 60.0}, ChainView(9, 5, 0, in_pool=True), NextStep.REPLACE),
        ({"signed_seconds": 60.0}, ChainView(9, 5, 0, in_pool=False), NextStep.REPLACE),
        # Not the first in line: it is not this one that is stuck.
        ({"signed_seconds": 60.0}, ChainView(9, 4, 0, in_pool=True), NextStep.WAIT),
        ({"cancelling": True}, ChainView(9, 5, 0, in_pool=True), NextStep.CANCEL),
        ({"cancelling": True, "purpose": "cancel"}, ChainView(9, 5, 0, in_pool=True), NextStep.WAIT),
        ({}, ChainView(9, 6, 0), NextStep.WAIT),
        ({}, ChainView(9, 6, 6), NextStep.PROVE),
        ({}, ChainView(9, 6, 0, mined_in(9), "0xb1"), NextStep.RECORD_BLOCK),
        ({}, ChainView(9, 6, 6, mined_in(6), "0xb1"), NextStep.CONFIRM),
        ({"state": "MINED", "block_hash": "0xb1"}, ChainView(9, 6, 0, mined_in(8), "0xb1"), NextStep.WAIT),
        (
            {"state": "MINED", "block_hash": "0xb0"},
            ChainView(9, 6, 0, mined_in(8), "0xb1"),
            NextStep.RECORD_BLOCK,
        ),
        # Another block is in the place of its block; with none shown, and with its own, nothing is known.
        (
            {"state": "MINED", "block_hash": "0xb1"},
            ChainView(9, 5, 0, block_hash="0xb2"),
            NextStep.TAKE_BLOCK_BACK,
        ),
        ({"state": "MINED", "block_hash": "0xb1"}, ChainView(9, 5, 0), NextStep.WAIT),
        ({"state": "MINED", "block_hash": "0xb1"}, ChainView(9, 6, 6, block_hash="0xb1"), NextStep.WAIT),
        # A receipt whose block the chain does not show, or has another one in the place of.
        ({}, ChainView(9, 6, 6, mined_in(6)), NextStep.WAIT),
        ({}, ChainView(9, 6, 6, mined_in(6), "0xb2"), NextStep.WAIT),
        ({"state": "MINED", "block_hash": "0xb1"}, ChainView(9, 6, 6, mined_in(6), "0xb2"), NextStep.WAIT),
        ({"cancelling": True}, ChainView(9, 6, 6, mined_in(6), "0xb1"), NextStep.CONFIRM),
    ],
)
def test_after_it_was_sent(facts: dict[str, Any], view: ChainView, step: NextStep) -> None:
    assert after_sending(tx(**facts), view, PATIENCE) is step


def test_receipts_are_worth_a_question_below_the_count_or_once_it_was_mined() -> None:
    assert ChainView(9, 6, 5).may_be_mined(tx())
    assert not ChainView(9, 5, 5).may_be_mined(tx())
    assert ChainView(9, 5, 5).may_be_mined(tx(state="MINED"))


@pytest.mark.parametrize(
    ("facts", "view", "step"),
    [
        # On the very bounds: so many confirmations, so many seconds, the count itself.
        ({}, ChainView(9, 6, 6, mined_in(7), "0xb1"), NextStep.RECORD_BLOCK),
        ({"block_hash": "0xb1"}, ChainView(9, 6, 6, mined_in(7), "0xb1"), NextStep.WAIT),
        ({"signed_seconds": 59.9}, ChainView(9, 5, 0, in_pool=True), NextStep.WAIT),
        ({"signed_seconds": 60.0}, ChainView(9, 4, 0), NextStep.SEND_AGAIN),
        ({}, ChainView(9, 6, 5), NextStep.WAIT),
        ({"cancelling": True}, ChainView(9, 6, 5), NextStep.WAIT),
        ({"cancelling": True}, ChainView(9, 6, 6), NextStep.PROVE),
        ({"cancelling": True, "purpose": "cancel"}, ChainView(9, 5, 0), NextStep.SEND_AGAIN),
        ({"cancelling": False, "purpose": "cancel"}, ChainView(9, 5, 0, in_pool=True), NextStep.WAIT),
        ({"cancelling": True, "signed_seconds": 60.0}, ChainView(9, 5, 0), NextStep.CANCEL),
        (
            {"cancelling": True, "purpose": "cancel", "signed_seconds": 60.0},
            ChainView(9, 5, 0),
            NextStep.REPLACE,
        ),
        ({"state": "MINED"}, ChainView(9, 6, 6), NextStep.WAIT),
    ],
)
def test_on_the_bounds_of_what_is_waited_for(facts: dict[str, Any], view: ChainView, step: NextStep) -> None:
    assert after_sending(tx(**facts), view, PATIENCE) is step
